import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.engine.backoff import Attempts, Backoff, jittered, on_a_beat


def test_delays_double_up_to_the_cap():
    backoff = Backoff(start=1.0, cap=300.0)
    assert [backoff.delay(attempt) for attempt in range(11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_huge_attempts_end_at_the_cap():
    for attempt in [1_000, 1_024, 10**9, 10**400]:
        for start in [1e-9, 1.0, 1e300]:
            assert Backoff(start=start, cap=300.0).delay(attempt) == 300.0


def test_what_would_not_back_off_is_refused():
    for start, cap in [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.nan)]:
        with pytest.raises(ValueError, match="would not back off"):
            Backoff(start=start, cap=cap)
    with pytest.raises(ValueError, match="negative"):
        Backoff(start=1.0, cap=2.0).delay(-1)


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6), st.integers(0, 5_000))
def test_delays_never_shrink_and_never_pass_the_cap(start, cap, attempt):
    backoff = Backoff(start=start, cap=cap)
    assert 0 < backoff.delay(attempt) <= backoff.delay(attempt + 1) <= cap


def test_jitter_stretches_by_at_most_its_spread():
    assert jittered(10.0, lambda: 0.0, spread=0.5) == 10.0
    assert jittered(10.0, lambda: 0.5, spread=0.5) == 12.5
    assert jittered(10.0, lambda: 0.999999, spread=0.5) < 15.0


def test_attempts_count_failures_in_a_row():
    attempts = Attempts[str]()
    assert [attempts.next("a"), attempts.next("a"), attempts.next("b")] == [0, 1, 0]
    assert (attempts.count("a"), attempts.count("b"), attempts.count("never failed")) == (2, 1, 0)


def test_a_forgotten_key_starts_again_but_stays_in_the_total():
    attempts = Attempts[str]()
    attempts.next("a")
    attempts.forget("a")
    attempts.forget("never failed")
    assert (attempts.count("a"), len(attempts)) == (0, 0)
    assert attempts.next("a") == 0
    assert (attempts.total, len(attempts)) == (2, 1)


@given(st.floats(0.0, 1e7), st.floats(0.001, 1e5))
def test_on_a_beat_nothing_comes_later_and_nothing_much_sooner(now: float, delay: float):
    at = on_a_beat(now, now + delay)
    assert now + 0.75 * delay - 1e-6 <= at <= now + delay


def test_those_with_such_a_delay_have_few_moments_together():
    moments = {on_a_beat(now, now + 300.0) for now in range(10_000, 10_300)}
    assert len(moments) <= 6
