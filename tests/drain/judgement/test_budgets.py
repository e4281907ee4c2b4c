"""Disruption budgets as the API server will apply them, and where volumes could go."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hack.sim.cluster import Cluster, Refused
from sidecar.drain.facts.snapshot import Snapshot, Surroundings
from sidecar.drain.judgement.assessment import ExhaustedBudget, Place
from sidecar.drain.judgement.budgets import BudgetFindings, check_budgets
from sidecar.drain.judgement.free_space import Figures
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


def test_each_stranded_pod_takes_one_from_what_the_budget_allows() -> None:
    found = findings(samples.budget(allowed=2))
    assert found.blocked == {"apps/db-2": "apps/db"}
    assert found.exhausted == (ExhaustedBudget("apps/db", 2, 3, NAMES),)
    assert found.selecting == dict.fromkeys(NAMES, ("apps/db",))


def test_a_pod_that_becomes_ready_elsewhere_gives_it_back() -> None:
    found = findings(samples.budget(allowed=1), stranded=["apps/db-2"])
    assert found.blocked == {} and found.exhausted == (ExhaustedBudget("apps/db", 1, 1, ("apps/db-2",)),)
    assert findings(samples.budget(allowed=1), stranded=()).exhausted == ()


def test_E8_of_a_pod_with_two_budgets_both_are_named_and_neither_is_charged() -> None:
    found = findings(samples.budget("z", allowed=0), samples.budget("a", allowed=0))
    assert found.conflicting(PODS[0]) == ("apps/a", "apps/z")
    assert found.blocked == {} and found.exhausted == ()
    assert findings(samples.budget()).conflicting(PODS[0]) == ()


def test_a_budget_selects_by_expressions_too() -> None:
    wanted = Requirement("app", "In", ("web", "db"))
    assert findings(samples.budget(labels={}, expressions=(wanted,))).selecting == dict.fromkeys(NAMES, ("apps/db",))


def test_what_the_server_has_not_counted_is_not_known() -> None:
    found = findings(samples.budget(allowed=0, observed=False))
    assert found.outdated == dict.fromkeys(NAMES, "apps/db") and found.blocked == {} and found.exhausted == ()


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


# --- which budgets a pod has

VALUES = st.sampled_from(["a", "b", ""])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), VALUES, max_size=2)
EXPRESSIONS = st.builds(
    Requirement,
    st.sampled_from(["app", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(VALUES, max_size=3).map(tuple),
)
BUDGETS = st.builds(
    lambda number, namespace, labels, expressions, selects: samples.budget(
        f"b{number}", namespace=namespace, labels=labels, expressions=tuple(expressions), selects=selects
    ),
    st.integers(0, 9),
    st.sampled_from(["apps", "others"]),
    LABELS,
    st.lists(EXPRESSIONS, max_size=2),
    st.booleans(),
)


# --- Where volumes could go: who comes into question, what is free there, and what is missing ---


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


def test_only_what_may_go_is_placed() -> None:
    others = [samples.volume(f"pv-{policy}", f"data-{policy}", policy=policy) for policy in ("Ignore", "Block", "AllowIdle")]
    released = replace(idle(7), phase="Released")
    assert found(*others, released, idle(), capacities=[samples.record("n2")]) == (Place(("pv-0",), "n2", 0, ()),)


def test_the_largest_goes_first_and_the_first_node_with_free_space_takes_it() -> None:
    volumes = [idle(0, 30), idle(1, 60), idle(2, 40)]
    placed = found(*volumes, capacities=[samples.record("n2", 70), samples.record("n3", 70)])
    assert [(place.volumes, place.node) for place in placed] == [(("pv-0",), "n3"), (("pv-1",), "n2"), (("pv-2",), "n3")]


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


def test_a_forgotten_reboot_annotation_does_not_exclude_a_node() -> None:
    notes = {names.DRAIN_INTENT: "reboot", names.of_driver("other.example.com", names.REBOOT_INTENT): "Spent"}
    assert only(idle(), nodes=[replace(N2, annotations=notes)], capacities=[samples.record("n2")]).node == "n2"
    retiring = replace(N2, annotations=notes | {names.DRAIN_INTENT: "retire"})
    assert only(idle(), nodes=[retiring], capacities=[samples.record("n2")]).node == ""


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


def test_a_volume_that_stays_keeps_its_pod_and_the_pod_keeps_the_others() -> None:
    for policy, named in [
        ("Block", "Block"),
        ("AllowIdle", "AllowIdle (reboot) and Block (retire)"),
        ("Foo", "Block"),
        (None, "AllowIdle (reboot) and Block (retire)"),
        ("Ignore", ""),
        ("Migrate", ""),
    ]:
        pods = [samples.pod("db-0", "data-0", "data-1")]
        place = found(idle(0), samples.volume("pv-1", "data-1", policy=policy), pods=pods, capacities=[samples.record("n2")])[0]
        excluded = (("pv-1", f"its policy {named} keeps it here, and pod apps/db-0 with it"),) if named else ()
        assert (place.node, place.shortfall, place.excluded) == ("" if named else "n2", 0, excluded)


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


def test_what_is_missing_is_counted_where_it_is_least() -> None:
    place = only(idle(gib=100), capacities=[samples.record("n2", 10), samples.record("n3", 60)])
    assert place == Place(("pv-0",), "", 40 * GIB, ())


# --- Finding the first that has room, and what is published for the place a node is in ---


def test_what_is_published_for_a_node_its_zone_and_everywhere_is_found_by_its_labels() -> None:
    node = samples.node("n2", labels={samples.KEY: "n2", "zone": "a"})
    figures = Figures(
        [
            samples.record("n2", 1),
            samples.record("n3", 2),
            samples.record("zone-a", 3, node_topology={"zone": "a"}),
            samples.record("both", 4, node_topology={"zone": "a", samples.KEY: "n2"}),
            samples.record("none", 5, node_topology={"zone": "a", "row": ""}),
            samples.record("all", 6, node_topology={}),
            samples.record("slow", 7, of="slow", node_topology={"zone": "a"}),
        ]
    )
    found = figures.of(node)
    assert sorted(figure.capacity // GIB for figure in found["local"]) == [1, 3, 4, 6]
    assert [figure.capacity // GIB for figure in found["slow"]] == [7]


def test_a_class_that_is_gone_or_allows_other_places_only_leaves_a_node_out() -> None:
    elsewhere = samples.class_(allowed=({KEY: ("n3",)},))
    capacities = [samples.record("n2"), samples.record("n3")]
    assert only(idle(), capacities=capacities, classes=[elsewhere]).node == "n3"
    assert "does not exist" in only(idle(), capacities=capacities, classes=[]).excluded[0][1]
