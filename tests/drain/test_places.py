"""Which other node takes a pod and its volumes, and what a StatefulSet says of its replicas: how many, which claims, how far apart."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.places import node_for
from sidecar.drain.statefulset import MOST_CLAIMS, StatefulSet, shut_out
from sidecar.model import names
from sidecar.model.nodes import Toleration
from sidecar.model.topology import Requirement, Term
from tests.harness.drain import samples
from tests.harness.drain.replica import TAINTED, replica, stateful_set
from tests.harness.drain.samples import CLASS, GIB, KEY

POD = samples.pod()
OTHERS = (samples.node("n2"), samples.node("n3"))
ROOM = (samples.record("n2"), samples.record("n3"))
TEN = ((CLASS, 10 * GIB),)


def found(**changes: Any) -> tuple[str, str]:
    given: dict[str, Any] = {"pod": POD, "wanted": TEN, "others": OTHERS, "capacities": ROOM} | changes
    classes = given.pop("classes", (samples.class_(),))
    pod, wanted, others = (given.pop(key) for key in ("pod", "wanted", "others"))
    return node_for(pod, wanted, others, classes={each.name: each for each in classes}, out=given.pop("out", {}), **given)


def only(**changes: Any) -> tuple[Any, ...]:
    return (samples.node("n2", **changes),)


TAINT = samples.taint("dedicated", "db")
TOLERANT = replace(POD, tolerations=(Toleration("", "Exists", "", ""),))
ZONE = (Term((Requirement(KEY, "In", ("n9",)),)),)
TWO = ((CLASS, 10 * GIB), ("fast", 10 * GIB))
BOTH = (samples.class_(), samples.class_("fast"))
APIECE = (samples.record("n2", 10), samples.record("n2", 10, of="fast"))


@pytest.mark.parametrize(
    ("changes", "node"),
    [
        pytest.param({}, "n2", id="the first by name"),
        pytest.param({"out": {"n2": "another replica is there"}}, "n3", id="the next one"),
        pytest.param({"capacities": (samples.record("n2", 5), samples.record("n3"))}, "n3", id="one with room"),
        pytest.param({"wanted": (), "capacities": ()}, "n2", id="no volume needs room"),
        pytest.param({"others": only(taints=(TAINT,)), "pod": TOLERANT}, "n2", id="tolerated"),
        pytest.param(
            {"wanted": TWO, "classes": BOTH, "capacities": APIECE},
            "n2",
            id="two classes",
        ),
        pytest.param({"capacities": (samples.record("n2", 5), samples.record("n2", 50))}, "n2", id="the best of several records counts"),
    ],
)
def test_a_node_that_takes_all_of_it(changes: Any, node: str) -> None:
    assert found(**changes) == (node, "")


OF_TWO = {"wanted": TWO, "classes": BOTH, "others": only()}
POOLED = tuple(samples.record("n2", 15, of=each.name, pool="vg0") for each in BOTH)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"others": ()}, "there is no other node", id="no other node"),
        pytest.param({"others": only(deleting=True)}, "it is being deleted", id="being deleted"),
        pytest.param({"others": only(ready="False")}, "it is not ready", id="not ready"),
        pytest.param({"others": only(ready="Unknown")}, "it is not ready", id="silent"),
        pytest.param({"others": only(unschedulable=True)}, "it is cordoned", id="cordoned"),
        pytest.param({"others": only(taints=(samples.taint(names.EVACUATE_TAINT, "retire"),))}, "itself being drained", id="evacuated"),
        pytest.param({"others": only(annotations={names.DRAIN_INTENT: "retire"})}, "itself being drained", id="announced to be drained"),
        pytest.param(
            {"others": only(taints=(samples.taint(names.RETIRING_TAINTS[0]),))},
            "itself being drained",
            id="an autoscaler takes it",
        ),
        pytest.param({"others": only(taints=(TAINT,))}, "taint dedicated=db:NoSchedule is not tolerated", id="a taint"),
        pytest.param({"pod": replace(POD, node_selector={"disk": "ssd"}), "others": only()}, "node selector", id="a node selector"),
        pytest.param({"pod": replace(POD, affinity=ZONE), "others": only()}, "node affinity", id="node affinity"),
        pytest.param({"out": {"n2": "taken", "n3": "taken too"}}, "n3: taken too", id="out of the question"),
        pytest.param({"capacities": (samples.record("n2", 5),), "others": only()}, f"{5 * GIB} bytes are missing", id="too little room"),
        pytest.param({"capacities": (samples.record("n2", None),), "others": only()}, "no CSIStorageCapacity", id="no figure"),
        pytest.param({"capacities": (samples.record("n3"),), "others": only()}, "no CSIStorageCapacity", id="another node's"),
        pytest.param({"classes": ()}, "does not exist", id="no class"),
        pytest.param({"capacities": (samples.record("n2", maximum=GIB),), "others": only()}, "maximumVolumeSize", id="too large a volume"),
        pytest.param(
            {"classes": (samples.class_(allowed=({KEY: ("n9",)},)),), "others": only()}, "allowedTopologies", id="not allowed by its class"
        ),
        pytest.param(
            OF_TWO | {"capacities": POOLED},
            f"{5 * GIB} bytes are missing",
            id="D5 two classes of one pool",
        ),
        pytest.param({"wanted": TEN * 2, "capacities": (samples.record("n2", 15),), "others": only()}, "are missing", id="two volumes"),
    ],
)
def test_drain_D6_why_no_node_takes_it(changes: Any, why: str) -> None:
    node, said = found(**changes)
    assert (node, why in said) == ("", True), said


# --- StatefulSets -----------------------------------------------------------------------------------------------------


def test_drain_D7_the_volumes_of_a_pod_stay_together() -> None:
    """Room for one here and one there is none for both."""
    wanted = ((CLASS, 30 * GIB), (CLASS, 30 * GIB))
    room = (samples.record("n2", 40), samples.record("n3", 70))
    assert found(wanted=wanted, capacities=room) == ("n3", "")


def test_what_a_statefulset_says_is_read_with_distrust() -> None:
    stored = {
        "metadata": {"name": "db", "uid": "u", "generation": 2},
        "spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}, {}], "minReadySeconds": True, "ordinals": None},
        "status": {"observedGeneration": "2", "updateRevision": "db-1"},
    }
    read = StatefulSet.of(stored)
    assert (read.replicas, read.start, read.ready_for, read.observed, read.revision) == (1, 0, 10.0, False, "db-1")
    assert read.claims_of("db-0") == {"data-db-0", "-db-0"}
    assert StatefulSet.of({"metadata": {"name": "db"}}).wants("db-0")
    wide = replace(read, start=10, replicas=3)
    asked = ("db-0", "db-9", "db-10", "db-12", "db-13", "db-x", "db-010", "db-\u0661\u0660", "db", "other-10", "db-", "db-1000000000")
    assert [pod for pod in asked if wide.wants(pod)] == ["db-10", "db-12"]
    assert (wide.missing({"db-10"}), wide.missing({"db-10", "db-11", "db-12"})) == ("db-11", "")
    assert StatefulSet.of({"metadata": {"name": "db"}, "spec": {"replicas": -5}}).missing(()) == ""
    many = {"volumeClaimTemplates": [{"metadata": {"name": f"c{number}"}} for number in range(MOST_CLAIMS + 1)]}
    assert StatefulSet.of({"metadata": {"name": "db"}, "spec": many}).not_understood


ZONES = "topology.kubernetes.io/zone"
OURS = {"matchLabels": {"app": "db"}}
EXISTS = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}


def apart(**more: Any) -> dict[str, Any]:
    term = {"topologyKey": ZONES, "labelSelector": OURS} | more
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def even(**more: Any) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{"topologyKey": ZONES, "labelSelector": OURS, "maxSkew": 1} | more]}


def kept_off(spec: dict[str, Any], *pods: Any) -> set[str]:
    """n1 and n2 are in zone a, n3 and n4 in b, n5 in c, n6 in none."""
    nodes = [samples.node(f"n{number}", labels={ZONES: zone}) for number, zone in ((2, "a"), (3, "b"), (4, "b"), (5, "c"))]
    tainted = replace(TAINTED, labels={ZONES: "a"})
    return set(shut_out(stateful_set(pod=spec), "db-0", pods, (*nodes, samples.node("n6", labels={}), tainted)))


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        pytest.param({}, "", id="it does not mind"),
        pytest.param(apart(), "n1 n2 n3 n4", id="apart"),
        pytest.param(even(), "n1 n2 n3 n4 n6", id="evenly, by default or not at all"),
        pytest.param(even(maxSkew=2), "n6", id="with one more in a zone"),
        pytest.param(even(whenUnsatisfiable="ScheduleAnyway"), "", id="if possible"),
        pytest.param(apart(labelSelector=EXISTS), "n1 n2 n3 n4", id="by an expression"),
        pytest.param(apart(labelSelector={"matchLabels": {"app": "web"}}), "", id="apart from others"),
    ],
)
def test_a_domain_is_all_nodes_with_the_same_label(spec: Any, nodes: str) -> None:
    assert kept_off(spec, replica(0), replica(1), replica(2)) == set(nodes.split())


def test_the_replica_itself_and_pods_that_have_ended_or_have_no_node_keep_nobody_off() -> None:
    assert kept_off(apart(), replica(0), replica(1, phase="Failed"), replica(2, node="")) == set()


@pytest.mark.parametrize(
    "spec",
    [
        *(apart(**{key: value}) for key, value in {"namespaces": ["a"], "namespaceSelector": {}, "matchLabelKeys": ["x"]}.items()),
        *(even(**{key: value}) for key, value in {"minDomains": 2, "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["x"]}.items()),
        {"topologySpreadConstraints": even()["topologySpreadConstraints"] * 21},
    ],
)
def test_what_is_not_looked_at_is_said(spec: Any) -> None:
    assert stateful_set(pod=spec).not_understood
