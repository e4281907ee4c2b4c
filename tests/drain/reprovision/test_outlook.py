"""What people are told of a replica that may be made anew, by whoever has only lists."""

from dataclasses import replace

from sidecar.drain.judgement.assess import assess
from sidecar.drain.reprovision.lock import Lock, Name, Refusal
from sidecar.drain.reprovision.outlook import Looked, from_outside
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from tests.drain.reprovision.scenes import ELSEWHERE, TAINTED, claim, replica, volume
from tests.harness.drain import samples

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


def test_an_assessment_says_it_while_the_node_is_evacuated_and_where_the_sidecar_does_not_say_it_itself() -> None:
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
        "lock of apps/db-0: other replicas: shut, SingleReplica: one",
    ]


def test_a_pod_that_is_held_before_any_lock_is_told_too() -> None:
    (told,) = Looked("apps/db-0", "Job controls it", (), Hindrance.OWNER_NOT_SUPPORTED).in_words()
    assert told == "not made anew now: apps/db-0: OwnerNotSupported: Job controls it"
