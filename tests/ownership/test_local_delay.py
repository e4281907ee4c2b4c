"""How late things are is what was lately waited for, or is being waited for now."""

import pytest

from sidecar.ownership.local_delay import LocalDelay


def test_what_was_slow_is_forgotten_by_and_by() -> None:
    local_delay = LocalDelay()
    local_delay.late(8.0, 10.0)
    local_delay.late(1.0, 15.0)
    assert local_delay.now(15.0) == pytest.approx(4.0)
    assert local_delay.now(65.0) < 0.01


def test_one_namespace_whose_claims_wait_in_a_long_line_does_not_make_the_others_lag() -> None:
    local_delay = LocalDelay()
    local_delay.late(8.0, 10.0, "loud")
    assert (local_delay.now(10.0, "loud"), local_delay.now(10.0, "quiet")) == (8.0, 0.0)
    local_delay.late(1.0, 10.0, "quiet")
    assert (local_delay.now(10.0, "loud"), local_delay.now(10.0, "quiet")) == (8.0, 1.0)


def test_of_thousands_of_namespaces_the_latest_are_remembered() -> None:
    local_delay = LocalDelay()
    for number in range(2000):
        local_delay.late(5.0, 0.0, "first")
        local_delay.late(5.0, 0.0, f"ns{number}")
    late = sum(local_delay.now(0.0, f"ns{number}") > 0.0 for number in range(2000))
    assert (late, local_delay.now(0.0, "first")) == (999, 5.0)


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


def seen_late(seconds: float) -> LocalDelay:
    """Its watch has shown a thing of second 0 after so many seconds."""
    watched = ["100"]
    local_delay = LocalDelay(watched=lambda: watched[0])
    local_delay.told("105", 0.0)
    assert local_delay.now(seconds) == seconds
    watched[0] = "105"
    return local_delay


def test_how_late_the_watch_was_counts_until_it_can_have_been_measured_anew() -> None:
    local_delay = seen_late(30.0)
    assert local_delay.now(30.0) == pytest.approx(30.0)
    assert local_delay.now(60.0) == pytest.approx(15.0)


def test_while_the_watch_is_down_it_tells_nothing() -> None:
    watched = "100"
    local_delay = LocalDelay(watched=lambda: watched)
    local_delay.told("105", 0.0)
    watched = ""
    assert local_delay.now(50.0) == 0.0
    watched = "100"
    assert local_delay.now(60.0) == 0.0


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


def test_a_refused_write_that_this_node_puts_off_is_not_what_it_lags_by() -> None:
    """A claim whose bid was refused was put off because of that refusal, and nothing else could tell that the server was well again."""
    local_delay = LocalDelay()
    local_delay.began("a", 0.0)
    local_delay.refused("a", 12.0)
    local_delay.ended("a", 12.0)
    assert local_delay.now(20.0) == 20.0, "it is tried again within 15 s"
    assert local_delay.now(36.0) == pytest.approx(3.0), "it was 12 s at second 12"
    assert local_delay.now(240.0) < 0.01


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


def test_a_watch_that_has_caught_up_is_believed_at_once() -> None:
    local_delay = seen_late(30.0)
    local_delay.now(30.0)
    local_delay.told("104", 31.0)
    assert local_delay.now(31.5) == pytest.approx(0.5)
