"""Which nodes the other replicas leave to one that is made anew, and that the lock is shut where they leave none with room."""

from dataclasses import replace
from typing import Any

from sidecar.drain.facts.snapshot import Surroundings
from sidecar.drain.reprovision.lock import LocksView, Name
from sidecar.drain.reprovision.locks import look
from sidecar.drain.reprovision.spread import Others, Spread, shut_out
from sidecar.drain.vocabulary import Hindrance
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


def test_drain_F2_three_that_may_not_share_a_node_need_a_fourth() -> None:
    for spec in [
        apart(),  # anti-affinity
        even(),  # topology spread
    ]:
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


def test_what_keeps_nobody_waiting() -> None:
    for spec in [
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
    ]:
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


def test_what_a_template_says_is_read_with_distrust() -> None:
    assert (
        Spread.of({}) == Spread.of({"spec": None}) == Spread.of({"spec": {"affinity": None, "topologySpreadConstraints": None}}) == Spread()
    )
    (read,) = Spread.of({"spec": {"topologySpreadConstraints": [{}]}}).even
    assert (read.key, read.skew, read.domains, read.selector) == ("", 1, 1, None)


HOME, AWAY = {"team": "x"}, samples.pod("db-9", namespace="elsewhere", node="n5", labels={"app": "db"})


def test_anti_affinity_concerns_the_namespaces_that_it_names() -> None:
    for term, out in [
        ({}, {"n2"}),
        ({"namespaces": ["elsewhere"]}, {"n5"}),
        ({"namespaces": [samples.NAMESPACE, "elsewhere"]}, {"n2", "n5"}),
        ({"namespaceSelector": {}}, {"n2", "n5"}),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {"n2"}),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, {"n5"}),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}, "namespaces": [samples.NAMESPACE]}, {"n2", "n5"}),
    ]:
        spread = spread_of(apart(**term))
        (of,) = spread.apart
        beyond = {of: (AWAY,)} if of.reaches_out and of.concerns("elsewhere", {"team": "y"}) else {}
        nodes = [samples.node(name, labels={HOST: name}) for name in ("n2", "n3", "n5")]
        others = Others((replica(1),), HOME, beyond)
        assert set(shut_out(spread, WORKLOAD.replica("db-0"), others=others, nodes=nodes)) == out
