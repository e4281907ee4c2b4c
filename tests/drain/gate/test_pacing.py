"""How long a neighbour waits between two looks."""

from sidecar.drain.gate.pacing import after_failures, pause, usual
from sidecar.drain.leases import RENEWED_EVERY


def test_the_more_gates_there_are_the_less_often_they_are_listed() -> None:
    for gates, seconds in [(0, 60), (100, 60), (300, 180), (10_000, RENEWED_EVERY)]:
        assert usual(gates) == seconds


def test_a_pause_ends_when_something_is_due_and_is_never_very_short() -> None:
    for due, seconds in [
        ([], 70.0),  # nothing
        ([2_000.0], 70.0),  # later than usual
        ([1_030.0, 2_000.0], 30.0),  # sooner
        ([1_001.0], 5.0),  # very soon
        ([900.0], 5.0),  # overdue
    ]:
        assert pause(60.0, spread=70.0, due=due, now=1_000.0) == seconds


def test_where_very_many_leases_run_out_together_they_are_not_listed_every_few_seconds() -> None:
    assert pause(usual(1_000), spread=300.0, due=[1_000.0], now=1_000.0) == 25.0


def test_after_a_failure_the_next_look_comes_soon_and_after_many_as_usual() -> None:
    assert [after_failures(usual(0), number) for number in (1, 2, 3, 4, 5, 6, 10_000)] == [5, 10, 20, 40, 60, 60, 60]
