"""What one process remembers of its own evictions, and for how long."""

import pytest

from sidecar.drain.emptying.pauses import Pauses
from sidecar.drain.emptying.rules import Evict
from sidecar.eviction.answers import EVICTED, Answer, Result
from sidecar.eviction.rules import May
from tests.harness.drain import samples

POD = samples.pod("db-0")
EVICT = Evict(May("apps", "db-0", POD.uid), "uid-db", 3, frozenset({POD.uid}), (), "why")


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


def test_who_may_have_been_evicted_is_leaving_for_a_while_and_nobody_else_is_tried() -> None:
    pauses = noted(Answer(Result.FAILED, "no answer", 20.0))
    pauses.see([POD], now=119.0)
    assert (pauses.leaving, pauses.for_all(119.0)) == ({POD.uid}, 1.0)
    pauses.see([POD], now=120.0)
    assert (pauses.leaving, pauses.for_all(120.0)) == (frozenset(), 0.0)


@pytest.mark.parametrize("result", [Result.BUDGET, Result.TWO_BUDGETS, Result.NAMESPACE_ENDS])
def test_what_is_said_of_one_pod_holds_up_no_other(result: Result) -> None:
    pauses = noted(Answer(result, "because", 5.0))
    assert (pauses.paused(104.0), pauses.for_all(104.0), pauses.leaving) == ({POD.uid: "because"}, 0.0, frozenset())
    assert pauses.paused(105.0) == {}


@pytest.mark.parametrize("result", [Result.FORBIDDEN, Result.SERVER_BUSY])
def test_what_is_said_of_us_holds_up_all(result: Result) -> None:
    assert noted(Answer(result, "because", 20.0)).for_all(100.0) == 20.0


def test_a_workload_is_expected_to_have_as_many_pods_as_before_for_a_while() -> None:
    for answer in (EVICTED, Answer(Result.FAILED, "no answer", 20.0)):
        assert noted(answer).expected(699.0) == {"uid-db": 3}
        assert noted(answer).expected(701.0) == {}
    assert noted(Answer(Result.BUDGET, "because", 5.0)).expected(101.0) == {}


def test_the_next_look_is_when_the_first_of_it_ends() -> None:
    assert noted(EVICTED).next_end(100.0) == 600.0
    assert noted(Answer(Result.BUDGET, "because", 5.0)).next_end(101.0) == 4.0
    assert Pauses().next_end(0.0) is None


def test_who_was_here_at_the_first_eviction_of_a_workload_is_remembered() -> None:
    pauses = noted(EVICTED)
    pauses.note(Evict(May("apps", "db-1", "later"), "uid-db", 3, frozenset({"later"}), (), "why"), EVICTED, now=200.0)
    assert pauses.before == {"uid-db": {POD.uid}}
    assert noted(Answer(Result.BUDGET, "because", 5.0)).before == {}
