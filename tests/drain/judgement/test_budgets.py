"""Disruption budgets as the API server will apply them, and where volumes could go."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hack.sim.cluster import Cluster, Refused
from sidecar.drain.facts.snapshot import Snapshot, Surroundings
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.budgets import BudgetFindings, check_budgets
from sidecar.drain.judgement.placement import places
from sidecar.drain.judgement.volumes import classify
from sidecar.kube import api
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, Toleration
from sidecar.model.objects import CapacityRecord, Class, Json, Volume
from sidecar.model.topology import Requirement, Term, terms_of
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain import samples
from tests.harness.drain.samples import GIB, KEY

PODS = tuple(samples.pod(f"db-{n}") for n in range(3))
NAMES = tuple(pod.full_name for pod in PODS)


def findings(*budgets: Budget, pods: Iterable[Pod] = PODS, stranded: Iterable[str] = NAMES) -> BudgetFindings:
    return check_budgets(budgets, pods, stranded=frozenset(stranded))


def test_E8_of_a_pod_with_two_budgets_both_are_named_and_neither_is_charged() -> None:
    found = findings(samples.budget("z", allowed=0), samples.budget("a", allowed=0))
    assert found.conflicting(PODS[0]) == ("apps/a", "apps/z")
    assert found.blocked == {} and found.exhausted == ()
    assert findings(samples.budget()).conflicting(PODS[0]) == ()


def budget_json(*, policy: object = None, **status: object) -> Json:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}, "unhealthyPodEvictionPolicy": policy}
    return {"metadata": {"namespace": "apps", "name": "db", "generation": 1}, "spec": spec, "status": status}


ENOUGH = {"currentHealthy": 2, "desiredHealthy": 2}


def test_what_a_budget_says_about_unready_pods() -> None:
    for obj, frees in [
        (budget_json(policy="AlwaysAllow"), True),
        (budget_json(policy="AlwaysAllow", currentHealthy=0, desiredHealthy=2), True),
        (budget_json(**ENOUGH), True),
        (budget_json(policy="IfHealthyBudget", currentHealthy=3, desiredHealthy=2), True),
        (budget_json(currentHealthy=1, desiredHealthy=2), False),
        (budget_json(currentHealthy=2, desiredHealthy=0), False),
        (budget_json(), False),
        (budget_json() | {"spec": None, "status": None}, False),
        (budget_json(policy="OnSundays", **ENOUGH), False),
        (budget_json(policy=["AlwaysAllow"], **ENOUGH), False),
        (budget_json(currentHealthy="many", desiredHealthy=2), False),
        (budget_json(currentHealthy=2, desiredHealthy={}), False),
    ]:
        assert Budget.of(obj).frees_unready is frees


def test_garbage_in_a_budgets_status_allows_nothing_and_hides_no_budget() -> None:
    for garbage in [None, "many", "", [], {}, 0.5]:
        assert Budget.of(budget_json(observedGeneration=1, disruptionsAllowed=garbage)) == samples.budget(allowed=0)
        assert not Budget.of(budget_json(observedGeneration=garbage, disruptionsAllowed=1)).observed


POLICIES = st.sampled_from([None, "IfHealthyBudget", "AlwaysAllow"])
FEW = st.integers(0, 3)
STATUSES = st.fixed_dictionaries(
    {"observedGeneration": st.integers(0, 1), "disruptionsAllowed": FEW, "currentHealthy": FEW, "desiredHealthy": FEW}
)


@given(POLICIES, STATUSES, st.lists(st.booleans(), min_size=1, max_size=4))
def test_what_is_refused_is_what_the_simulated_server_refuses(policy: str | None, status: dict[str, int], ready: list[bool]) -> None:
    cluster = new_cluster()
    cluster.create(api.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps"}})
    cluster.create(api.BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"} | budget_json(policy=policy), namespace="apps")
    set_status(cluster, api.BUDGETS, "db", status)
    pods = [run(cluster, f"db-{number}", is_ready=is_ready) for number, is_ready in enumerate(ready)]
    found = findings(Budget.of(cluster.get(api.BUDGETS, "db", namespace="apps").obj), pods=pods, stranded=[pod.full_name for pod in pods])
    assert {*found.blocked, *found.outdated} == {pod.full_name for pod in pods if not evicted(cluster, pod.name)}


def run(cluster: Cluster, name: str, *, is_ready: bool) -> Pod:
    spec = {"nodeName": "n1", "containers": [{"name": "db", "image": "db"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "db"}}, "spec": spec}
    cluster.create(api.PODS, pod, namespace="apps")
    set_status(cluster, api.PODS, name, {"phase": "Running", "conditions": [{"type": "Ready", "status": str(is_ready)}]})
    return Pod.of(cluster.get(api.PODS, name, namespace="apps").obj)


def set_status(cluster: Cluster, kind: api.Resource, name: str, status: Mapping[str, object]) -> None:
    cluster.patch(kind, name, {"status": status}, content_type=api.MERGE_PATCH, namespace="apps", subresource="status")


def evicted(cluster: Cluster, name: str) -> bool:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "apps"}}
    try:
        cluster.post(api.PODS, name, "eviction", body, namespace="apps")
    except Refused as refused:
        assert refused.code == 429
        return False
    return True


# --- Where volumes could go ---


N2, N3 = samples.node("n2"), samples.node("n3")


def found(
    *volumes: Volume,
    pods: Iterable[Pod] = (),
    nodes: Iterable[Node] = (N2, N3),
    capacities: Iterable[CapacityRecord] = (),
    classes: Iterable[Class] = (samples.class_(), samples.class_("slow")),
) -> tuple[Place, ...]:
    snapshot: Snapshot = samples.snapshot(volumes=volumes, pods=tuple(pods), classes=classes)
    around = Surroundings(tuple(nodes), tuple(capacities))
    return places(classify(snapshot, snapshot.pods), surroundings=around, classes=snapshot.classes)


def idle(number: int = 0, gib: float = 10, **changes: Any) -> Volume:
    return samples.volume(f"pv-{number}", f"data-{number}", gib=gib, policy="Reprovision", **changes)


def only(*volumes: Volume, **around: Any) -> Place:
    (place,) = found(*volumes, **around)
    return place


def test_nodes_that_do_not_come_into_question_say_why() -> None:
    for node, why in [
        (replace(N2, unschedulable=True), "cordoned"),
        (replace(N2, taints=(samples.taint("node.kubernetes.io/unschedulable"),)), "cordoned"),
        (replace(N2, ready="False"), "Ready=False"),
        (replace(N2, ready="Unknown"), "Ready=Unknown"),
        (replace(N2, deleting=True), "deleted"),
        (replace(N2, taints=(samples.taint("csi-node-sidecar.io/evacuate", "retire"),)), "csi-node-sidecar.io/evacuate=retire"),
        (replace(N2, taints=(samples.taint("karpenter.sh/disrupted"),)), "karpenter.sh/disrupted"),
        (replace(N2, annotations={names.DRAIN_INTENT: "retire"}), f"itself being drained (annotation {names.DRAIN_INTENT}='retire')"),
        (replace(N2, annotations={names.DRAIN_INTENT: f" \n{'x' * 50}"}), f"{names.DRAIN_INTENT}='{'x' * 40}')"),
        (replace(N2, taints=(samples.taint("dedicated", "gpu"),)), "dedicated=gpu:NoSchedule"),
        (replace(N2, labels={"zone": "a"}), "no CSIStorageCapacity is published"),
    ]:
        place = only(idle(), nodes=[node], capacities=[samples.record("n2")])
        ((name, said),) = place.excluded
        assert (place.node, place.shortfall, name) == ("", 0, "n2") and why in said


TAINTED = replace(N2, taints=(samples.taint("dedicated", "db"),))
LABELLED = replace(N2, labels={**N2.labels, "disk": "nvme"})
WANTS_NVME = (Term((Requirement("disk", "In", ("nvme",)),)),)


def by_name(*nodes: str) -> tuple[Term, ...]:
    return terms_of({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}]})


def test_what_the_pod_asks_of_a_node() -> None:
    for pod, node, fits in [
        ({}, TAINTED, False),
        ({"tolerations": (Toleration("dedicated", "Equal", "db", ""),)}, TAINTED, True),
        ({"tolerations": (Toleration("", "Exists", "", "NoExecute"),)}, TAINTED, False),
        ({"node_selector": {"disk": "nvme"}}, N2, False),
        ({"node_selector": {"disk": "nvme"}}, LABELLED, True),
        ({"affinity": WANTS_NVME}, N2, False),
        ({"affinity": WANTS_NVME}, LABELLED, True),
        ({"affinity": (Term((), has_fields=True), *WANTS_NVME)}, LABELLED, True),
        ({"affinity": by_name("n2")}, N2, True),
        ({"affinity": by_name("n3")}, N2, False),
        ({"affinity": ()}, LABELLED, False),
    ]:
        place = only(idle(), pods=[samples.pod("db-0", "data-0", **pod)], nodes=[node], capacities=[samples.record("n2")])
        assert bool(place.node) is fits


def test_what_is_published_has_to_be_for_the_class_and_the_node_and_enough() -> None:
    for changes, fits in [
        ({}, True),
        ({"maximum": 10 * GIB}, True),
        ({"maximum": 10 * GIB - 1}, False),
        ({"capacity": 10 * GIB}, True),
        ({"capacity": None}, False),
        ({"node_topology": None}, False),
        ({"node_topology": {KEY: "n9"}}, False),
        ({"node_topology": {KEY: "n2", "zone": ""}}, False),
        ({"class_name": "slow"}, False),
    ]:
        place = only(idle(), nodes=[N2], capacities=[samples.record("n2", **changes)])
        assert bool(place.node) is fits and place.shortfall == 0
