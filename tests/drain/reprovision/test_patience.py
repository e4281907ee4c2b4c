"""What keeps one replica, one pod or one namespace from holding up all others for ever."""

from sidecar.drain.reprovision.kept import KeptPods
from sidecar.drain.reprovision.lock import Refusal
from sidecar.drain.reprovision.patience import Conflicts, FairTurns, Leavers, Turns
from sidecar.drain.vocabulary import Hindrance


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
