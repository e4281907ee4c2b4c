"""How long a neighbour waits between two looks."""

import pytest

from sidecar.drain.gate.pacing import after_failures, pause, usual
from sidecar.drain.leases import RENEWED_EVERY


@pytest.mark.parametrize(("gates", "seconds"), [(0, 60), (100, 60), (300, 180), (10_000, RENEWED_EVERY)])
def test_the_more_gates_there_are_the_less_often_they_are_listed(gates: int, seconds: float) -> None:
    assert usual(gates) == seconds


@pytest.mark.parametrize(
    ("due", "seconds"),
    [([], 70.0), ([2_000.0], 70.0), ([1_030.0, 2_000.0], 30.0), ([1_001.0], 5.0), ([900.0], 5.0)],
    ids=["nothing", "later than usual", "sooner", "very soon", "overdue"],
)
def test_a_pause_ends_when_something_is_due_and_is_never_very_short(due: list[float], seconds: float) -> None:
    assert pause(60.0, spread=70.0, due=due, now=1_000.0) == seconds


def test_where_very_many_leases_run_out_together_they_are_not_listed_every_few_seconds() -> None:
    assert pause(usual(1_000), spread=300.0, due=[1_000.0], now=1_000.0) == 25.0


def test_after_a_failure_the_next_look_comes_soon_and_after_many_as_usual() -> None:
    assert [after_failures(usual(0), number) for number in (1, 2, 3, 4, 5, 6, 10_000)] == [5, 10, 20, 40, 60, 60, 60]
