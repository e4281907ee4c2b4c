"""What one process remembers of its own evictions, and for how long."""

from dataclasses import replace

import pytest

from sidecar.drain.emptying.decisions import Ask, Evict, Hold
from sidecar.drain.emptying.pauses import Pauses
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.answers import EVICTED, Answer, Result
from sidecar.eviction.rules import May
from tests.harness.drain import samples

POD = samples.pod("db-0")
EVICT = Evict(May("apps", "db-0", POD.uid), "apps/uid-db", 3, frozenset({POD.uid}), (), "why")


def noted(answer: Answer) -> Pauses:
    pauses = Pauses()
    pauses.note(EVICT, answer, now=100.0)
    return pauses


@pytest.mark.parametrize("result", [Result.EVICTED, Result.GONE, Result.REPLACED])
def test_who_was_evicted_is_leaving_until_the_watch_no_longer_has_it(result: Result) -> None:
    pauses = noted(EVICTED if result is Result.EVICTED else Answer(result))
    pauses.see([POD], now=1e6)
    assert pauses.leaving == {POD.uid}
    pauses.see([], now=101.0)
    assert pauses.leaving == frozenset()


def test_what_an_earlier_process_asked_for_is_in_doubt_for_as_long_as_it_may_arrive_and_not_in_the_next_evacuation() -> None:
    pauses = Pauses(restarted=True)
    assert pauses.in_doubt(50.0)
    pauses.see([POD], now=50.0)
    assert pauses.in_doubt(139.0)
    assert pauses.next_end(130.0) == 10.0
    assert not pauses.in_doubt(140.0)
    assert not Pauses().in_doubt(0.0)
    assert not pauses.for_another().in_doubt(60.0)


def test_what_was_not_answered_before_an_undo_is_remembered_after_it() -> None:
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0)).for_another()
    pauses.see([POD], now=150.0)
    assert pauses.unanswered == {EVICT.workload: POD.uid}
    pauses.see([POD], now=191.0)
    assert pauses.unanswered == {}


def test_who_may_have_been_evicted_is_leaving_for_a_while_and_nobody_else_is_tried() -> None:
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0))
    pauses.see([POD], now=119.0)
    assert (pauses.leaving, pauses.for_all(119.0)) == ({POD.uid}, 1.0)
    pauses.see([POD], now=120.0)
    assert (pauses.leaving, pauses.for_all(120.0)) == (frozenset(), 0.0)


def test_an_eviction_that_was_not_answered_may_be_carried_out_for_as_long_as_its_pod_is_there() -> None:
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0))
    pauses.see([POD], now=189.0)
    assert pauses.unanswered == {"apps/uid-db": POD.uid}
    assert pauses.next_end(189.0) == 1.0
    pauses.see([POD], now=190.0)
    assert pauses.unanswered == {}
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0))
    pauses.see([], now=101.0)
    assert pauses.unanswered == {}


@pytest.mark.parametrize("result", [Result.BUDGET, Result.TWO_BUDGETS, Result.NAMESPACE_ENDS, Result.CHANGED])
def test_what_is_said_of_one_pod_holds_up_no_other(result: Result) -> None:
    pauses = noted(Answer(result, "because", 5.0))
    assert (pauses.paused(104.0), pauses.for_all(104.0), pauses.leaving) == ({POD.uid: "because"}, 0.0, frozenset())
    assert pauses.paused(105.0) == {}


@pytest.mark.parametrize("result", [Result.FORBIDDEN, Result.SERVER_BUSY])
def test_what_is_said_of_us_holds_up_all(result: Result) -> None:
    assert noted(Answer(result, "because", 20.0)).for_all(100.0) == 20.0


def test_a_workload_is_expected_to_have_as_many_pods_as_before_for_a_while() -> None:
    for answer in (EVICTED, Answer(Result.FAILED, "no answer", 20.0)):
        assert noted(answer).expected(699.0) == {"apps/uid-db": 3}
        assert noted(answer).expected(701.0) == {}
    assert noted(Answer(Result.BUDGET, "because", 5.0)).expected(101.0) == {}


def test_the_next_look_is_when_the_first_of_it_ends() -> None:
    assert noted(EVICTED).next_end(100.0) == 600.0
    assert noted(Answer(Result.BUDGET, "because", 5.0)).next_end(101.0) == 4.0
    assert Pauses().next_end(0.0) is None


def test_who_was_here_at_the_first_eviction_of_a_workload_is_remembered() -> None:
    pauses = noted(EVICTED)
    pauses.note(Evict(May("apps", "db-1", "later"), "apps/uid-db", 3, frozenset({"later"}), (), "why"), EVICTED, now=200.0)
    assert pauses.before == {"apps/uid-db": {POD.uid}}
    assert noted(Answer(Result.BUDGET, "because", 5.0)).before == {}


def waiting_for(pod: str) -> Hold:
    return Hold(Hindrance.POD_LEAVING, pod, "it was asked to end")


def test_nobody_waits_for_ever_until_the_pods_of_another_namespace_have_left() -> None:
    """Be it one that takes a day to end, or one after the other."""
    pauses = Pauses()
    for second in range(0, 300, 10):
        pauses.decided(waiting_for(f"slow/pod-{second}"), now=float(second), patience=300.0)
    assert pauses.slow == frozenset()
    pauses.decided(waiting_for("slow/pod"), now=300.0, patience=300.0)
    assert pauses.slow == {"slow"}
    pauses.decided(EVICT, now=301.0, patience=300.0)
    assert pauses.slow == {"slow"}, "for the rest of the evacuation"


def test_the_time_is_counted_anew_once_nobody_was_waited_for() -> None:
    pauses = Pauses()
    for second, decision in ((0.0, waiting_for("a/x")), (200.0, EVICT), (201.0, waiting_for("a/y")), (400.0, waiting_for("a/y"))):
        pauses.decided(decision, now=second, patience=300.0)
    assert pauses.slow == frozenset()


@pytest.mark.parametrize("result", [Result.FORBIDDEN, Result.FAILED])
def test_who_was_refused_for_an_unknown_reason_is_counted_until_it_is_gone(result: Result) -> None:
    pauses = noted(Answer(result, "because", 20.0))
    assert pauses.failures == {POD.uid: 1}
    pauses.note(EVICT, Answer(result, "because", 20.0), now=130.0)
    assert pauses.failures == {POD.uid: 2}
    pauses.see([], now=131.0)
    assert pauses.failures == {}


def test_workloads_that_had_to_wait_are_passed_until_all_were_asked_about() -> None:
    pauses = Pauses()
    pauses.decided(Ask("b", "b/pod", "why", frozenset({"a/uid-a"})), now=0.0, patience=300.0)
    pauses.decided(Ask("c", "c/pod", "why", frozenset({"b/uid-b"})), now=1.0, patience=300.0)
    assert pauses.passed == {"a/uid-a", "b/uid-b"}
    pauses.decided(Hold(Hindrance.REPLICA_NOT_READY, "c/pod", "why"), now=2.0, patience=300.0)
    assert pauses.passed == frozenset()


def test_once_all_were_asked_about_in_vain_the_next_round_begins() -> None:
    pauses = Pauses()
    pauses.decided(Ask("c", "c/pod", "why", frozenset({"a/uid-a", "b/uid-b"})), now=0.0, patience=300.0)
    pauses.decided(Ask("b", "b/pod", "why", frozenset({"c/uid-c"}), again=True), now=1.0, patience=300.0)
    assert pauses.passed == {"c/uid-c"}


def test_who_comes_after_the_first_look_is_late_and_later_with_each_such_pod_that_was_evicted() -> None:
    pauses = Pauses()
    pauses.see([samples.pod("a")], now=0.0)
    pauses.see([samples.pod("a"), samples.pod("b")], now=1.0)
    assert pauses.late == {samples.pod("b").uid: 1}
    pauses.note(replace(EVICT, pod=May("apps", "b", samples.pod("b").uid)), EVICTED, now=1.0)
    pauses.see([samples.pod("a"), samples.pod("c"), samples.pod("c", namespace="other")], now=2.0)
    assert pauses.late == {samples.pod("c").uid: 2, samples.pod("c", namespace="other").uid: 1}


def test_workloads_that_lost_a_pod_are_not_remembered_without_end() -> None:
    pauses = Pauses()
    for number in range(3000):
        pauses.note(replace(EVICT, workload=f"apps/uid-{number}", waits=number % 2 == 0), EVICTED, now=float(number))
    assert "apps/uid-2999" in pauses.before and "apps/uid-2998" in pauses.waiting_evicted
    assert max(len(pauses.before), len(pauses.waiting_evicted), len(pauses._expected)) <= 1000


def test_replicas_are_looked_for_soon_after_an_eviction_and_then_less_often() -> None:
    pauses = noted(EVICTED)
    waits = [pauses.until_replica(100.0 + after) for after in (0.0, 2.0, 20.0, 60.0, 1e6)]
    assert waits == [1.0, 1.0, 5.0, 15.0, 20.0]
    assert Pauses().until_replica(0.0) == 20.0


def test_of_pods_that_waited_it_is_counted_how_many_of_a_workload_may_have_been_evicted() -> None:
    pauses, waiting = Pauses(), replace(EVICT, waits=True, here=frozenset())
    for answer in (EVICTED, Answer(Result.FAILED, "no answer", 20.0), Answer(Result.CHANGED, "it has a node", 1.0)):
        pauses.note(waiting, answer, now=100.0)
    assert pauses.waiting_evicted == {"apps/uid-db": 2}
    assert pauses.before == {}, "it was not on this node, so that whoever comes here has not come back"
    assert noted(EVICTED).waiting_evicted == {}
