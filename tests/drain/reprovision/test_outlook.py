"""What people are told of a replica that may be made anew, by whoever has only lists."""

from dataclasses import replace

from sidecar.drain.judgement.assess import assess
from sidecar.drain.reprovision.kept import KeptPods
from sidecar.drain.reprovision.lock import Lock, Name, Refusal
from sidecar.drain.reprovision.outlook import Looked, from_outside
from sidecar.drain.reprovision.patience import Conflicts, FairTurns, Leavers, Turns
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
        "lock of apps/db-0: other replicas: shut, SingleReplica: one. What to do: save the data, or give the workload more replicas",
    ]


def test_a_pod_that_is_held_before_any_lock_is_told_too() -> None:
    (told,) = Looked("apps/db-0", "Job controls it", (), Hindrance.OWNER_NOT_SUPPORTED).in_words()
    assert told.startswith("not made anew now: apps/db-0: OwnerNotSupported: Job controls it. What to do: ")


# --- What keeps one replica, one pod or one namespace from holding up all others for ever ---


def test_whoever_was_looked_at_comes_last_also_if_the_look_came_to_nothing() -> None:
    turns = Turns()
    assert [next(turns.of("abc", 1)) for _ in range(4)] == ["a", "b", "c", "a"]
    assert list(turns.of("abc", 9)) == ["b", "c", "a"]
    assert list(turns.of("", 3)) == []
    turns.restart()
    assert next(turns.of("abc", 2)) == "a"


def test_namespaces_have_their_turns_and_in_each_its_items_have_theirs() -> None:
    turns = FairTurns()
    items = ["a1", "a2", "a3", "b1"]

    def of(most: int, among: list[str] = items) -> list[str]:
        return list(turns.of(among, most, namespace=lambda item: item[0]))

    assert [of(1) for _ in range(5)] == [["a1"], ["b1"], ["a2"], ["b1"], ["a3"]]
    assert sorted(of(9)) == items, "each of them once"
    turns.restart()
    assert of(3) == ["a1", "b1", "a2"]
    assert of(3, []) == []


def test_pods_are_slow_if_one_or_another_of_their_namespace_has_been_leaving_all_the_time() -> None:
    leavers = Leavers()
    leavers.see(["a/one", "b/one"], now=0.0)
    leavers.see(["a/one", "a/two"], now=100.0)
    leavers.see(["a/two", "b/one"], now=300.0)
    assert leavers.slow(now=300.0, patience=300.0) == {"a/two"}
    assert leavers.slow(now=299.0, patience=300.0) == set()
    assert leavers.slow(now=600.0, patience=300.0) == {"a/two", "b/one"}


def test_after_a_few_conflicts_in_a_row_nothing_is_tried_at_once() -> None:
    conflicts = Conflicts()
    assert [conflicts.one_more() for _ in range(5)] == [True, True, True, False, False]
    conflicts.none()
    assert conflicts.one_more()


# --- For how long a pod that may not go lets others go first ---


DENIED = Refusal(Hindrance.PAUSED, "a webhook denied it")


def kept(times: int) -> KeptPods:
    pods = KeptPods()
    for _ in range(times):
        pods.note("uid-0", DENIED, now=100.0)
    return pods


def test_one_refusal_may_pass_and_after_two_others_are_tried_first_for_a_while() -> None:
    assert kept(1).why("uid-0", now=100.0) is None
    assert kept(2).why("uid-0", now=219.0) == DENIED
    assert kept(2).why("uid-1", now=219.0) is None


def test_after_that_while_it_is_counted_anew() -> None:
    pods = kept(2)
    assert pods.why("uid-0", now=220.0) is None
    pods.note("uid-0", DENIED, now=221.0)
    assert pods.why("uid-0", now=222.0) is None


def test_a_pod_that_is_gone_is_forgotten() -> None:
    pods = kept(2)
    pods.see({"uid-1"})
    assert pods.why("uid-0", now=100.0) is None
