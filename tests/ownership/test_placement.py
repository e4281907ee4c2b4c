"""Upstream's delay: base·2ⁿ up to the cap, less a random part of one base delay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.ownership.placement import RandomDelay

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
