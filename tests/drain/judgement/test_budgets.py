"""Disruption budgets, as the API server will apply them when these pods are evicted one after the other."""

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from hack.sim.cluster import Cluster, Refused
from sidecar.drain.judgement.assessment import ExhaustedBudget
from sidecar.drain.judgement.budgets import BudgetFindings, check_budgets
from sidecar.kube import api
from sidecar.model.nodes import Budget, Pod
from sidecar.model.objects import Json
from sidecar.model.topology import Requirement
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain import samples

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


def test_pods_that_no_budget_is_asked_about_take_nothing() -> None:
    for changes in [{"deleting_since": samples.stamp()}, {"phase": "Pending"}, {"phase": "Succeeded"}]:
        pod = samples.pod("db-0", **changes)
        assert findings(samples.budget(allowed=0), pods=(pod,)).blocked == {}
        assert findings(samples.budget(allowed=0), pods=(pod,)).exhausted == ()
        assert findings(samples.budget(), samples.budget("also"), pods=(pod,)).conflicting(pod) == ()


def test_pods_that_stay_are_selected_and_take_nothing() -> None:
    for changes in [{"static": True}, {"owner": samples.owner("DaemonSet")}]:
        found = findings(samples.budget(allowed=0), pods=(samples.pod("db-0", **changes),))
        assert (found.blocked, found.exhausted, found.selecting) == ({}, (), {"apps/db-0": ("apps/db",)})


def test_E8_of_a_pod_with_two_budgets_both_are_named_and_neither_is_charged() -> None:
    found = findings(samples.budget("z", allowed=0), samples.budget("a", allowed=0))
    assert found.conflicting(PODS[0]) == ("apps/a", "apps/z")
    assert found.blocked == {} and found.exhausted == ()
    assert findings(samples.budget()).conflicting(PODS[0]) == ()


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
