"""That nothing is deleted for a volume that would not be made, or for which no node has room as its template asks for it."""

from dataclasses import replace
from typing import Any

from sidecar.drain.facts.snapshot import Surroundings
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.lock import LocksView, Name, Refusal
from sidecar.drain.reprovision.locks import look
from sidecar.drain.reprovision.workload import Workload
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from sidecar.model.nodes import Pod
from tests.drain.reprovision.scenes import LABELS, WORKLOAD, facts, replica, view
from tests.harness.drain import samples
from tests.harness.drain.samples import CLASS

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


def shut(of: LocksView) -> str:
    (place,) = [lock for lock in look(of) if lock.name == Name.PLACE]
    return place.refusal.why if place.refusal else ""


def known(workload: Workload, *classes: Any, **changes: Any) -> Facts:
    return facts(workload=workload, classes={each.name: each for each in (samples.class_(), *classes)}, **changes)


def test_a_template_that_asks_for_what_is_there_opens_the_lock() -> None:
    assert shut(with_room(known(wishing()))) == ""


def test_a_larger_volume_than_there_was_needs_its_room() -> None:
    """As after a set was made again with a larger template, so that its replicas grow when they are made anew."""
    larger = known(wishing(resources={"requests": {"storage": "200Gi"}}))
    assert "bytes are missing" in shut(with_room(larger))
    assert shut(with_room(larger, gib=300)) == ""
    assert shut(with_room(known(wishing(resources={"requests": {"storage": "1Gi"}})))) == ""


def test_the_class_of_the_template_counts_and_not_that_of_the_volume() -> None:
    other = known(wishing(storageClassName="large"), LARGE)
    assert shut(with_room(other)) == ""
    assert "no CSIStorageCapacity is published there for StorageClass 'large'" in shut(with_room(other, classes=(CLASS,)))


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
        found = shut(with_room(known(wishing(**wish), FOREIGN, **more)))
        assert (why in found) if why else found == ""


# --- Where the controller of a StatefulSet waits for the replica that is to be made anew: what is not waited for then, and what is told ---


OLD = LABELS | {names.POD_REVISION: "db-0"}
ORDERED = replace(WORKLOAD, ordered=True, one_by_one=True)
PARALLEL = replace(ORDERED, ordered=False)


def waits(**changes: Any) -> Pod:
    return replica(0, node="", ready=False, **changes)


def refusal(name: Name, *pods: Pod, workload: Workload) -> Refusal | None:
    return next(lock.refusal for lock in look(view(facts(*pods, workload=workload))) if lock.name == name)


def test_that_of_any_other_set_comes_from_its_last_pod_down() -> None:
    for pods, is_open in [
        ((waits(), replica(1), replica(2)), True),  # it is the last one
        ((waits(labels=OLD), replica(1), replica(2)), False),  # it is replaced itself
        ((waits(), replica(1), replica(2, labels=OLD)), False),  # a later one is replaced first
    ]:
        assert (refusal(Name.NOT_ROLLING, *pods, workload=PARALLEL) is None) is is_open


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


def test_how_a_set_is_rolled_out() -> None:
    for spec, ordered, one_by_one in [
        ({}, True, True),
        (
            {"podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
            True,
            True,
        ),
        ({"podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}, False, True),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}, True, False),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}}, True, False),
        ({"updateStrategy": {"type": "OnDelete"}}, True, False),
    ]:
        found = Workload.of({"metadata": {"name": "db", "uid": "uid-db"}, "spec": spec})
        assert (found.ordered, found.one_by_one) == (ordered, one_by_one)


# --- replicas that wait for one another -------------------------------------------------------------------------------------


def test_a_later_replica_that_is_made_only_after_this_one_is_told_and_not_simply_waited_for() -> None:
    """Its data may be the only other copy, so this one's is kept all the same."""
    found = refusal(Name.REPLICAS, waits(), replica(1), workload=ORDERED)
    assert found is not None and found.hindrance is Hindrance.EACH_WAITS
    assert "db-2 does not exist, and is made only once db-0 is ready" in found.why
