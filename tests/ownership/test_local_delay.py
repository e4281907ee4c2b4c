"""How late things are is what was lately waited for, or is being waited for now."""

import pytest

from sidecar.ownership.local_delay import LocalDelay


def test_nothing_was_late_yet() -> None:
    assert LocalDelay().now(5.0) == 0.0


def test_what_is_under_way_counts_with_the_time_it_has_taken() -> None:
    local_delay = LocalDelay()
    local_delay.began("a", 1.0)
    local_delay.began("b", 4.0)
    assert local_delay.now(5.0) == 4.0
    local_delay.ended("a", 5.0)
    assert local_delay.now(5.0) == 4.0
    local_delay.ended("b", 6.0)
    assert local_delay.now(6.0) == pytest.approx(4.0 * 0.5 ** (1 / 5))


def test_what_was_slow_is_forgotten_by_and_by() -> None:
    local_delay = LocalDelay()
    local_delay.late(8.0, 10.0)
    local_delay.late(1.0, 15.0)
    assert local_delay.now(15.0) == pytest.approx(4.0)
    assert local_delay.now(65.0) < 0.01


def test_what_was_never_begun_has_no_end() -> None:
    local_delay = LocalDelay()
    local_delay.ended("a", 5.0)
    assert local_delay.now(5.0) == 0.0


def test_what_was_very_late_had_other_reasons() -> None:
    local_delay = LocalDelay()
    local_delay.late(3600.0, 0.0)
    assert local_delay.now(0.0) == 10.0


def test_while_the_watch_has_not_shown_what_a_request_has_it_is_late() -> None:
    watched = "100"
    local_delay = LocalDelay(watched=lambda: watched)
    local_delay.told("105", 10.0)
    assert local_delay.now(10.0) == 0.0
    assert local_delay.now(13.0) == 3.0
    watched = "105"
    assert local_delay.now(18.0) == pytest.approx(3.0 * 0.5)


def test_what_the_watch_has_shown_already_is_not_late() -> None:
    for watched in ("105", "2000", "", "opaque"):
        local_delay = LocalDelay(watched=lambda watched=watched: watched)
        local_delay.told("105", 10.0)
        assert local_delay.now(13.0) == 0.0
    local_delay.told("opaque", 13.0)
    assert local_delay.now(14.0) == 0.0


def test_the_watch_is_late_since_the_first_thing_it_has_not_shown() -> None:
    watched = "100"
    local_delay = LocalDelay(watched=lambda: watched)
    local_delay.told("105", 10.0)
    local_delay.told("109", 12.0)
    assert local_delay.now(12.5) == 2.5
    watched = "106"
    local_delay.now(13.0)
    local_delay.told("109", 13.0)
    assert local_delay.now(18.0) == 5.0
