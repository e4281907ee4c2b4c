"""Where a replica could be made anew, and what people are told of it."""

from dataclasses import replace
from typing import Any

from sidecar.drain.facts.snapshot import Surroundings
from sidecar.drain.judgement.assess import assess
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.lock import Lock, LocksView, Name, Refusal
from sidecar.drain.reprovision.locks import look
from sidecar.drain.reprovision.outlook import Looked, from_outside
from sidecar.drain.reprovision.spread import Others, Spread, shut_out
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from sidecar.model.nodes import Pod
from tests.harness.drain import samples
from tests.harness.drain.replica import ELSEWHERE, LABELS, TAINTED, WORKLOAD, claim, facts, replica, view, volume
from tests.harness.drain.samples import CLASS

SNAPSHOT = samples.snapshot(node=TAINTED, volumes=(volume(),), claims=(claim(),), pods=(replica(0),))
TOLD = "where the sidecar makes replicas anew (--allow-reprovision): "


def test_from_outside_only_what_shows_there_is_said() -> None:
    said = list(from_outside(SNAPSHOT, (ELSEWHERE,)))
    assert said[0] == "apps/db-0: no lock that shows from here is shut"
    assert said[1].startswith("locks that only the node's sidecar sees: ")
    assert str(Name.REPLICAS) in said[1] and str(Name.PLACE) not in said[1]


def test_a_lock_that_is_shut_is_named_with_its_reason() -> None:
    said = list(from_outside(replace(SNAPSHOT, contents=(samples.content(),)), ()))
    assert Hindrance.SNAPSHOT_ON_NODE in said[0] and Hindrance.NO_NODE_FITS in said[0]
    other = replace(SNAPSHOT, pods=(replica(0, owner=samples.owner("Deployment", "web")),))
    assert next(iter(from_outside(other, ()))) == f"apps/db-0: {Hindrance.OWNER_NOT_SUPPORTED}: Deployment controls it"


def test_an_assessment_tells_the_outlook_only_during_an_evacuation() -> None:
    driver = samples.DRIVER
    marked = replace(TAINTED, labels={**TAINTED.labels, names.of_driver(driver, names.EVACUATION_STATE): "InProgress"})
    under_way = replace(SNAPSHOT, node=marked)
    started = {
        names.of_driver(driver, names.EVACUATION_STARTED_AT): samples.stamp(60),
        names.of_driver(driver, names.MARKED_NODE): marked.uid,
    }
    under_way = replace(under_way, node=replace(marked, annotations=started))
    assert any(note.startswith(TOLD) for note in assess(under_way).notes)
    assert not any(note.startswith(TOLD) for note in assess(replace(under_way, reprovisions=True)).notes)
    assert not any(note.startswith(TOLD) for note in assess(SNAPSHOT).notes)


def test_the_sidecar_says_each_lock() -> None:
    looked = Looked("apps/db-0", "why", (Lock(Name.PLACE, None), Lock(Name.REPLICAS, Refusal(Hindrance.SINGLE_REPLICA, "one"))))
    assert list(looked.in_words()) == [
        "made anew next: apps/db-0: why",
        "locks of apps/db-0 that are open: place elsewhere",
        "lock of apps/db-0: other replicas: shut, SingleReplica: one. What to do: save the data, or give the workload more replicas",
    ]


def test_a_pod_that_is_held_before_any_lock_is_told_too() -> None:
    (told,) = Looked("apps/db-0", "Job controls it", (), Hindrance.OWNER_NOT_SUPPORTED).in_words()
    assert told.startswith("not made anew now: apps/db-0: OwnerNotSupported: Job controls it. What to do: ")


# --- Which nodes the other replicas leave to one that is made anew, and that the lock is shut where they leave none with room ---


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


# --- That nothing is deleted for a volume that would not be made, or for which no node has room as its template asks for it ---


LARGE = samples.class_("large")
FOREIGN = samples.class_("net", provisioner="net.example.com")


def wishing(**spec: Any) -> Workload:
    """A set whose template asks for this now; the claim that is there was made of `CLASS`, with 10 GiB."""
    base = {"storageClassName": CLASS, "resources": {"requests": {"storage": "10Gi"}}}
    template = {"metadata": {"name": "data"}, "spec": {key: said for key, said in (base | spec).items() if said is not None}}
    made = Workload.of({"metadata": {"name": "db", "uid": "uid-db"}, "spec": {"replicas": 3, "volumeClaimTemplates": [template]}})
    return replace(WORKLOAD, templates=made.templates, wishes=made.wishes)


def with_room(of: Facts, *, gib: float = 100, nodes: Any = None, classes: Any = (CLASS, "large")) -> LocksView:
    """Two other nodes, each with so much room in each of the classes."""
    others = nodes or (samples.node("n4"), samples.node("n5"))
    records = tuple(samples.record(node.name, gib, of=name) for node in others for name in classes)
    return view(of, snapshot={"surroundings": Surroundings(others, records), "classes": (samples.class_(), LARGE)})


def why_shut(of: LocksView) -> str:
    (place,) = [lock for lock in look(of) if lock.name == Name.PLACE]
    return place.refusal.why if place.refusal else ""


def known(workload: Workload, *classes: Any, **changes: Any) -> Facts:
    return facts(workload=workload, classes={each.name: each for each in (samples.class_(), *classes)}, **changes)


def test_a_larger_volume_than_there_was_needs_its_room() -> None:
    """As after a set was made again with a larger template, so that its replicas grow when they are made anew."""
    larger = known(wishing(resources={"requests": {"storage": "200Gi"}}))
    assert "bytes are missing" in why_shut(with_room(larger))
    assert why_shut(with_room(larger, gib=300)) == ""
    assert why_shut(with_room(known(wishing(resources={"requests": {"storage": "1Gi"}})))) == ""


def test_the_class_of_the_template_counts_and_not_that_of_the_volume() -> None:
    other = known(wishing(storageClassName="large"), LARGE)
    assert why_shut(with_room(other)) == ""
    assert "no CSIStorageCapacity is published there for StorageClass 'large'" in why_shut(with_room(other, classes=(CLASS,)))


def test_whether_a_volume_is_made_at_all() -> None:
    for wish, more, why in [
        (
            {"storageClassName": "gone"},
            {},
            "StorageClass gone, which the template of claim data-db-0 in StatefulSet db",
        ),
        ({"storageClassName": None}, {}, "names no StorageClass, and none is the default"),
        ({"selector": {"matchLabels": {"a": "b"}}}, {}, "asks for a volume that is there"),
        ({"volumeName": "pv-9"}, {}, "asks for a volume that is there"),
        ({"storageClassName": None}, {"default_class": CLASS}, ""),
        ({"storageClassName": "net"}, {}, ""),
    ]:
        found = why_shut(with_room(known(wishing(**wish), FOREIGN, **more)))
        assert (why in found) if why else found == ""


# --- Where the controller of a StatefulSet is about to take a replica away itself ---


OLD = LABELS | {names.POD_REVISION: "db-0"}
ORDERED = replace(WORKLOAD, ordered=True, one_by_one=True)


def waits(**changes: Any) -> Pod:
    return replica(0, node="", ready=False, **changes)


def refusal(name: Name, *pods: Pod, workload: Workload) -> Refusal | None:
    return next(lock.refusal for lock in look(view(facts(*pods, workload=workload))) if lock.name == name)


def test_where_the_rollout_may_take_another_one_away_its_end_is_waited_for() -> None:
    for pod, workload in [
        (replica(0, labels=OLD), ORDERED),  # it runs
        (waits(labels=OLD, deleting_since="2026-01-01T00:00:00Z"), ORDERED),  # it is being replaced
        (waits(labels=OLD), replace(ORDERED, one_by_one=False)),  # several may be away at once, or nobody replaces them
        (waits(labels=OLD), replace(ORDERED, observed=False)),  # the controller has not seen the last change
        (waits(labels=OLD), replace(ORDERED, revision="")),  # nobody says which revision is wanted
    ]:
        found = refusal(Name.NOT_ROLLING, pod, replica(1), replica(2), workload=workload)
        assert found is not None and found.hindrance is Hindrance.WORKLOAD_ROLLING
