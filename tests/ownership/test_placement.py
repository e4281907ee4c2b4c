"""Upstream's delay: base·2ⁿ up to the cap, less a random part of one base delay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.ownership.placement import SINGLE_STEPS, RandomDelay, Ranked

UPSTREAM = RandomDelay(20.0, 60.0)


@pytest.mark.parametrize(
    ("attempt", "low", "high"), [(0, 0.0, 20.0), (1, 20.0, 40.0), (2, 40.0, 60.0), (9, 40.0, 60.0), (5000, 40.0, 60.0)]
)
@given(chance=st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_range_per_attempt(attempt: int, low: float, high: float, chance: float) -> None:
    assert low <= UPSTREAM.delay(attempt, chance) <= high


def test_a_jitter_larger_than_the_capped_delay_gives_zero() -> None:
    assert RandomDelay(20.0, 5.0).delay(0, 0.9) == 0.0
    assert RandomDelay(20.0, 5.0).delay(0, 0.1) == pytest.approx(3.0)


def test_no_base_delay_means_no_delay() -> None:
    assert RandomDelay(0.0, 60.0).delay(7, 0.5) == 0.0


RANKED = Ranked(UPSTREAM, step=0.4)


def test_the_first_bids_at_once_and_each_of_the_next_a_step_later() -> None:
    assert [RANKED.delay(rank, 0.9) for rank in range(4)] == pytest.approx([0.0, 0.4, 0.8, 1.2])


@given(chance=st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_those_behind_share_steps_so_that_nobody_of_thousands_waits_for_long(chance: float) -> None:
    steps = [int(RANKED.delay(rank, chance) / RANKED.step - chance + 0.5) for rank in range(SINGLE_STEPS, 5000)]
    assert steps == sorted(steps)
    assert [steps.count(SINGLE_STEPS + share) for share in range(4)] == [2, 4, 8, 16]
    assert RANKED.delay(5000, chance) < 10.0


def test_after_all_is_after_each() -> None:
    for contenders in [0, 1, 3, 30, 5000]:
        last = max((RANKED.delay(rank, 0.999) for rank in range(contenders)), default=0.0)
        assert RANKED.after_all(contenders, 0.0) > last - RANKED.step * 0.001
