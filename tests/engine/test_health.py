import pytest

from sidecar.engine.health import OK, Degraded, Health, Stopped, Unknown


def test_only_ok_is_ready():
    for state, reasons in [
        (Unknown(), ["driver: Unknown: nothing reported yet"]),
        (OK(), []),
        (Degraded("socket lost"), ["driver: Degraded: socket lost"]),
        (Stopped("gave up"), ["driver: Stopped: gave up"]),
    ]:
        health = Health()
        health.scope("driver", gates_ready=True).report(state)
        assert health.ready() == (not reasons, reasons)


def test_a_scope_that_gates_nothing_stops_nothing():
    health = Health()
    health.scope("events").report(Stopped("gave up"))
    assert health.ready()[0]
    assert health.live(0.0, stale_after=1.0)[0]


def test_only_a_stopped_part_asks_for_a_restart():
    for state, alive in [(Unknown(), True), (OK(), True), (Degraded("x"), True), (Stopped("x"), False)]:
        health = Health()
        health.scope("loop", gates_live=True).report(state)
        assert health.live(0.0, stale_after=1.0) == (alive, [] if alive else ["loop: Stopped: x"])
        assert health.ready()[0]  # the two gates are separate


def test_a_heart_that_stops_beating_is_not_alive():
    health = Health()
    assert health.live(1_000.0, stale_after=10.0)[0], "nobody has promised a beat yet"
    health.heartbeat(1_000.0)
    assert health.live(1_010.0, stale_after=10.0) == (True, [])
    assert health.live(1_012.5, stale_after=10.0) == (False, ["heartbeat: the last one was 12.5 s ago, the limit is 10 s"])
    health.heartbeat(1_012.5)
    assert health.live(1_012.5, stale_after=10.0)[0]


def test_a_group_is_as_well_as_its_worst_part():
    health = Health()
    group = health.scope("csi", gates_ready=True)
    link, driver = group.scope("link"), group.scope("driver")
    assert group.state == Unknown()
    link.report(OK())
    assert group.state == Unknown()
    driver.report(OK())
    assert health.ready() == (True, [])
    link.report(Degraded("socket lost"))
    driver.report(Stopped("wrong name"))
    assert health.ready() == (False, ["csi: Stopped: wrong name"])


def test_a_second_scope_of_the_same_name_is_refused():
    health = Health()
    health.scope("csi").scope("link")
    with pytest.raises(ValueError, match="csi exists already"):
        health.scope("csi")
