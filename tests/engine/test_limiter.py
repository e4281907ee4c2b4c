import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.engine.limiter import TokenBucket


def test_a_burst_is_free_and_then_each_waits_its_turn():
    bucket = TokenBucket(qps=2.0, burst=3)
    assert [bucket.reserve(100.0) for _ in range(6)] == [0.0, 0.0, 0.0, 0.5, 1.0, 1.5]


def test_tokens_come_back_with_time_up_to_the_burst():
    bucket = TokenBucket(qps=2.0, burst=3)
    for _ in range(3):
        bucket.reserve(0.0)
    assert bucket.reserve(0.5) == 0.0
    assert bucket.reserve(0.5) == 0.5
    assert [bucket.reserve(1_000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_allow_takes_only_what_is_there():
    bucket = TokenBucket(qps=1.0, burst=2)
    assert [bucket.allow(0.0) for _ in range(3)] == [True, True, False]
    assert [bucket.allow(0.5), bucket.allow(1.0), bucket.allow(1.0)] == [False, True, False]


def test_a_clock_that_steps_back_earns_nothing():
    bucket = TokenBucket(qps=1.0, burst=1)
    bucket.reserve(100.0)
    assert bucket.reserve(50.0) == 1.0
    assert bucket.reserve(100.0) == 2.0


def test_without_a_limit_nobody_waits():
    for qps in [-1.0, math.inf]:
        bucket = TokenBucket(qps=qps, burst=0)
        assert {bucket.reserve(0.0) for _ in range(1_000)} == {0.0}
        assert bucket.allow(0.0)


def test_a_limit_that_lets_nothing_through_is_refused():
    for qps, burst in [(0.0, 1), (1.0, 0), (math.nan, 1)]:
        with pytest.raises(ValueError, match="never let anything through"):
            TokenBucket(qps=qps, burst=burst)


@given(
    qps=st.floats(0.1, 1_000.0),
    burst=st.integers(1, 20),
    pauses=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 10.0)), max_size=60),
)
def test_no_window_grants_more_than_burst_and_rate(qps, burst, pauses):
    bucket, now, grants = TokenBucket(qps=qps, burst=burst), 0.0, []
    for pause in pauses:
        now += pause
        grants.append(now + bucket.reserve(now))
    for first in range(len(grants)):
        for last in range(first, len(grants)):
            window = grants[last] - grants[first]
            assert window >= 0.0 or math.isclose(grants[last], grants[first])  # first come, first served
            assert last - first + 1 <= burst + qps * window + 1e-6
