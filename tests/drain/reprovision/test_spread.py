"""Which nodes the other replicas leave to one that is made anew, and that the lock is shut where they leave none with room."""

from dataclasses import replace
from typing import Any

import pytest

from hack.sim.cluster.storage.selectors import label_test
from sidecar.drain.facts.snapshot import Surroundings
from sidecar.drain.reprovision.lock import LocksView, Name
from sidecar.drain.reprovision.locks import look
from sidecar.drain.reprovision.spread import Others, Spread, as_query, shut_out
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from sidecar.model.nodes import Pod
from tests.drain.reprovision.scenes import LABELS, TAINTED, WORKLOAD, facts, replica, view
from tests.harness.drain import samples

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
OURS = {"matchLabels": {"app": "db"}}


def apart(key: str = HOST, selector: Any = OURS, *, rule: str = "requiredDuringSchedulingIgnoredDuringExecution", **more: Any) -> Any:
    return {"affinity": {"podAntiAffinity": {rule: [{"topologyKey": key, "labelSelector": selector} | more]}}}


def even(key: str = HOST, **more: Any) -> Any:
    return {
        "topologySpreadConstraints": [
            {"topologyKey": key, "labelSelector": OURS, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} | more
        ]
    }


def spread_of(spec: Any) -> Spread:
    return Spread.of({"metadata": {"labels": LABELS}, "spec": spec})


def of_four(spec: Any, *, nodes: int = 4) -> LocksView:
    """db on n1 to n3, of which n1 is emptied, in a cluster of so many nodes; all others have room."""
    others = [f"n{number}" for number in range(2, nodes + 1)]
    around = Surroundings(tuple(samples.node(name) for name in others), tuple(samples.record(name) for name in others))
    return view(facts(workload=replace(WORKLOAD, spread=spread_of(spec))), snapshot={"surroundings": around})


def shut(of: LocksView) -> tuple[Hindrance, str] | None:
    (place,) = [lock for lock in look(of) if lock.name == Name.PLACE]
    return (place.refusal.hindrance, place.refusal.why) if place.refusal else None


@pytest.mark.parametrize("spec", [apart(), even()], ids=["anti-affinity", "topology spread"])
def test_drain_F2_three_that_may_not_share_a_node_need_a_fourth(spec: Any) -> None:
    assert shut(of_four(spec)) is None
    refusal = shut(of_four(spec, nodes=3))
    assert refusal is not None
    hindrance, why = refusal
    assert hindrance is Hindrance.NO_NODE_FITS
    assert "n2: " in why and "n3: " in why


def test_the_node_that_is_left_must_have_room_and_take_pods() -> None:
    roomy = of_four(apart())
    around = roomy.snapshot.surroundings
    assert around is not None
    full = replace(around, capacities=tuple(samples.record(name, 1 if name == "n4" else 100) for name in ("n2", "n3", "n4")))
    cordoned = replace(around, nodes=(*around.nodes[:2], samples.node("n4", unschedulable=True)))
    for tight in (full, cordoned):
        refusal = shut(replace(roomy, snapshot=replace(roomy.snapshot, surroundings=tight)))
        assert refusal is not None
        assert refusal[0] is Hindrance.NO_NODE_FITS


@pytest.mark.parametrize(
    "spec",
    [
        {},
        apart(rule="preferredDuringSchedulingIgnoredDuringExecution"),
        apart(selector=None),
        apart(selector={"matchLabels": {"app": "web"}}),
        apart("example.com/rack"),
        even(whenUnsatisfiable="ScheduleAnyway"),
        even(maxSkew=2),
        even(labelSelector=None),
        even(labelSelector={}),
        even(nodeTaintsPolicy="Honor"),
    ],
    ids=[
        *("nothing", "preferred", "no selector", "others", "no such label", "anyway", "a skew of two", "nothing selected"),
        *("everything selected, which is not counted", "heeds taints"),
    ],
)
def test_what_keeps_nobody_waiting(spec: Any) -> None:
    assert shut(of_four(spec, nodes=3)) is None


def of_zones(spec: Any, *pods: Pod) -> set[str]:
    nodes = [
        samples.node(f"n{number}", labels={HOST: f"n{number}", ZONE: zone}) for number, zone in ((2, "a"), (3, "b"), (4, "b"), (5, "c"))
    ]
    tainted = replace(TAINTED, labels={HOST: "n1", ZONE: "a"})
    return set(shut_out(spread_of(spec), WORKLOAD.replica("db-0"), others=Others(pods), nodes=(*nodes, tainted)))


def test_a_domain_is_all_nodes_with_the_same_label() -> None:
    others = replica(1), replica(2)  # on n2 in zone a, and on n3 in zone b
    assert of_zones(apart(ZONE), *others) == {"n1", "n2", "n3", "n4"}
    assert of_zones(even(ZONE), *others) == {"n1", "n2", "n3", "n4"}
    assert of_zones(even(ZONE, maxSkew=2), *others) == set()
    assert of_zones(even(ZONE, minDomains=4, maxSkew=1), *others, replica(3, node="n5")) == {"n1", "n2", "n3", "n4", "n5"}


def test_pods_that_have_ended_or_wait_for_a_node_are_in_nobodys_way() -> None:
    assert of_zones(apart(), replica(1, phase="Failed"), replica(2, node="")) == set()
    assert of_zones(even(), replica(1, phase="Failed"), replica(2, node="")) == set()


def test_a_label_that_a_node_lacks_is_no_domain() -> None:
    assert of_zones(apart("example.com/rack"), replica(1)) == set()
    assert of_zones(even("example.com/rack"), replica(1)) == {"n1", "n2", "n3", "n4", "n5"}


def test_only_nodes_that_the_pod_may_be_on_are_compared() -> None:
    """n1 is empty as long as it counts, and so keeps the others out."""
    template = replace(WORKLOAD.replica("db-0"), node_selector={ZONE: "b"})
    nodes = [samples.node(f"n{number}", labels={HOST: f"n{number}", ZONE: zone}) for number, zone in ((1, "a"), (3, "b"), (4, "b"))]
    pods = (replica(2), replica(3, node="n4"))
    assert set(shut_out(spread_of(even()), template, others=Others(pods), nodes=nodes)) == set()
    assert set(shut_out(spread_of(even(nodeAffinityPolicy="Ignore")), template, others=Others(pods), nodes=nodes)) == {"n3", "n4"}


def test_what_a_template_says_is_read_with_distrust() -> None:
    assert (
        Spread.of({}) == Spread.of({"spec": None}) == Spread.of({"spec": {"affinity": None, "topologySpreadConstraints": None}}) == Spread()
    )
    (read,) = Spread.of({"spec": {"topologySpreadConstraints": [{}]}}).even
    assert (read.key, read.skew, read.domains, read.selector) == ("", 1, 1, None)


# --- what depends on the labels of the replica, and on namespaces ----------------------------------------------------------

POD = names.POD_NAME


def test_pods_that_have_to_be_like_the_replica_in_a_label_are_those_with_its_value() -> None:
    """Each replica has a name of its own, so nobody is in the way of one that keeps away from its like in that."""
    named = replica(1, labels=LABELS | {POD: "db-1"}), replica(2, labels=LABELS | {POD: "db-2"})
    old = replica(1, labels=LABELS | {names.POD_REVISION: "db-0"})
    alike = {"matchLabelKeys": [POD]}
    assert of_zones(even(**alike), *named) == of_zones(apart(**alike), *named) == set()
    assert of_zones(apart(matchLabelKeys=[names.POD_REVISION]), old, replica(2)) == {"n3"}
    assert of_zones(even(matchLabelKeys=[names.POD_REVISION]), old, replica(2)) == {"n3"}
    assert of_zones(apart(mismatchLabelKeys=[names.POD_REVISION]), old, replica(2)) == {"n2"}
    assert of_zones(apart(matchLabelKeys=["no-such-label"]), *named) == {"n2", "n3"}


def test_a_node_without_the_label_of_one_constraint_counts_for_none() -> None:
    """Otherwise it stands for a domain without such pods, or makes enough domains."""
    nodes = [samples.node("n2", labels={HOST: "n2", ZONE: "a"}), samples.node("n3", labels={HOST: "n3"})]
    both = {"topologySpreadConstraints": [*even(HOST)["topologySpreadConstraints"], *even(ZONE)["topologySpreadConstraints"]]}
    found = shut_out(spread_of(both), WORKLOAD.replica("db-0"), others=Others((replica(1),)), nodes=nodes)
    assert set(found) == {"n3"}


HOME, AWAY = {"team": "x"}, samples.pod("db-9", namespace="elsewhere", node="n5", labels={"app": "db"})


@pytest.mark.parametrize(
    ("term", "out"),
    [
        ({}, {"n2"}),
        ({"namespaces": ["elsewhere"]}, {"n5"}),
        ({"namespaces": [samples.NAMESPACE, "elsewhere"]}, {"n2", "n5"}),
        ({"namespaceSelector": {}}, {"n2", "n5"}),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {"n2"}),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, {"n5"}),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": [samples.NAMESPACE]}, {"n2", "n5"}),
    ],
)
def test_anti_affinity_concerns_the_namespaces_that_it_names(term: Any, out: set[str]) -> None:
    spread = spread_of(apart(**term))
    (of,) = spread.apart
    beyond = {of: (AWAY,)} if of.reaches_out and of.concerns("elsewhere", {"team": "y"}) else {}
    nodes = [samples.node(name, labels={HOST: name}) for name in ("n2", "n3", "n5")]
    others = Others((replica(1),), HOME, beyond)
    assert set(shut_out(spread, WORKLOAD.replica("db-0"), others=others, nodes=nodes)) == out


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "app", "operator": "In", "values": ["db", "web"]},
        {"key": "app", "operator": "In", "values": [""]},
        {"key": "app", "operator": "In", "values": ["", "db"]},
        {"key": "app", "operator": "NotIn", "values": ["db"]},
        {"key": "app", "operator": "NotIn", "values": ["", "web"]},
        {"key": "app", "operator": "Exists"},
        {"key": "app", "operator": "DoesNotExist"},
        {"key": "app", "operator": "In", "values": [f"a-long-value-{number}" for number in range(300)] + ["db"]},
    ],
    ids=lambda expression: f"{expression['operator']}-{'-'.join(expression.get('values', ()))}"[:20],
)
def test_what_the_api_server_is_asked_for_leaves_out_nothing_that_is_selected(expression: Any) -> None:
    """The expressions stand beside another one, whose words are kept."""
    (term,) = spread_of(apart(selector={"matchLabels": {"team": "x"}, "matchExpressions": [expression]})).apart
    assert term.selector is not None
    query = as_query(term.selector)
    assert "team in (x)" in query and len(query) < 4096
    kept = [app for app in ("db", "web", "", "other", None) if label_test(query)({"metadata": {"labels": labelled(app)}})]
    assert {app for app in ("db", "web", "", "other", None) if term.may_select(labelled(app))} <= set(kept)


def labelled(app: str | None) -> dict[str, str]:
    return {"team": "x"} | ({} if app is None else {"app": app})
