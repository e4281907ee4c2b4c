"""That nothing is deleted for a volume that would not be made, or for which no node has room as its template asks for it."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.facts.snapshot import Surroundings
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.lock import LocksView, Name
from sidecar.drain.reprovision.locks import look
from sidecar.drain.reprovision.workload import Workload
from sidecar.model.topology import Requirement, Term
from tests.drain.reprovision.scenes import WORKLOAD, facts, found, replica, view, volume
from tests.harness.drain import samples
from tests.harness.drain.samples import CLASS, KEY

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


@pytest.mark.parametrize(
    ("wish", "more", "why"),
    [
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
    ],
)
def test_whether_a_volume_is_made_at_all(wish: Any, more: Any, why: str) -> None:
    found = shut(with_room(known(wishing(**wish), FOREIGN, **more)))
    assert (why in found) if why else found == ""


def test_a_node_with_room_is_no_place_if_another_volume_of_the_pod_is_not_reached_from_there() -> None:
    """n4 has the room, and n5 the other volume."""
    pod = replica(0, claims=("data-db-0", "logs"))
    term = (Term((Requirement(KEY, "In", ("n1", "n5")),)),)
    logs = found(claim=samples.claim("logs"), volume=volume("pv-1", "logs", driver="net.example.com", affinity=term))
    of = known(wishing(), FOREIGN)
    of = replace(of, pods=(pod, replica(1), replica(2)), claims={**of.claims, "logs": logs})
    both = with_room(of)
    assert shut(both) == ""
    around = both.snapshot.surroundings
    assert around is not None
    only = replace(around, capacities=tuple(each for each in around.capacities if each.node_topology == {KEY: "n4"}))
    assert "claim logs, of driver net.example.com, is not reached from there" in shut(
        replace(both, snapshot=replace(both.snapshot, surroundings=only))
    )
