"""How late things are is what was lately waited for, or is being waited for now."""

import pytest

from sidecar.ownership.local_delay import LocalDelay


def test_while_the_watch_has_not_shown_what_a_request_has_it_is_late() -> None:
    watched = "100"
    local_delay = LocalDelay(watched=lambda: watched)
    local_delay.told("105", 10.0)
    assert local_delay.now(10.0) == 0.0
    assert local_delay.now(13.0) == 3.0
    watched = "105"
    assert local_delay.now(18.0) == pytest.approx(3.0 * 0.5)


def test_a_write_that_is_refused_is_under_way_until_the_api_server_takes_it() -> None:
    """An API server that is overloaded says no at once, and that is no sign of health."""
    local_delay = LocalDelay()
    local_delay.began("a", 0.0)
    local_delay.refused("a", 0.1)
    local_delay.ended("a", 0.1)
    assert local_delay.now(8.0) == 8.0
    local_delay.began("a", 8.0)
    local_delay.ended("a", 12.0)
    assert local_delay.now(12.0) == 12.0
    assert local_delay.now(24.0) == pytest.approx(6.0)


def test_a_write_that_is_not_tried_again_does_not_count_for_ever() -> None:
    for dropped in [True, False]:
        local_delay = LocalDelay()
        local_delay.began("a", 0.0)
        local_delay.refused("a", 0.1)
        local_delay.began("b", 1.0)
        if dropped:
            local_delay.dropped("a")
            assert local_delay.now(2.0) == 1.0
        local_delay.dropped("b")
        assert local_delay.now(200.0) == 199.0, "one that is under way is not dropped"
        local_delay.ended("b", 200.0)
        assert local_delay.now(1000.0) < 0.01


def test_a_cluster_that_was_restored_from_a_backup_never_comes_to_what_was_told_before() -> None:
    watched = "100"
    local_delay = LocalDelay(watched=lambda: watched)
    local_delay.told("105", 0.0)
    watched = "40"
    for hours in range(1, 5):
        assert local_delay.now(hours * 3600.0) < 0.01
    local_delay.told("45", 20_000.0)
    assert local_delay.now(20_003.0) == 3.0, "it is measured again"
