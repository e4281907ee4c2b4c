"""How late things are is what was lately waited for, or is being waited for now."""

import pytest

from sidecar.ownership.lag import Lag


def test_nothing_was_late_yet() -> None:
    assert Lag().now(5.0) == 0.0


def test_what_is_under_way_counts_with_the_time_it_has_taken() -> None:
    lag = Lag()
    lag.began("a", 1.0)
    lag.began("b", 4.0)
    assert lag.now(5.0) == 4.0
    lag.ended("a", 5.0)
    assert lag.now(5.0) == 4.0
    lag.ended("b", 6.0)
    assert lag.now(6.0) == pytest.approx(4.0 * 0.5 ** (1 / 5))


def test_what_was_slow_is_forgotten_by_and_by() -> None:
    lag = Lag()
    lag.late(8.0, 10.0)
    lag.late(1.0, 15.0)
    assert lag.now(15.0) == pytest.approx(4.0)
    assert lag.now(65.0) < 0.01


def test_what_was_never_begun_has_no_end() -> None:
    lag = Lag()
    lag.ended("a", 5.0)
    assert lag.now(5.0) == 0.0


def test_what_was_very_late_had_other_reasons() -> None:
    lag = Lag()
    lag.late(3600.0, 0.0)
    assert lag.now(0.0) == 10.0
