from hack.sim.world.request_log import RequestLog


def test_only_what_is_asked_in_vain_is_counted():
    now = [0.0]
    request_log = RequestLog(lambda: now[0])
    request_log.asked("n0", "list pods", up=True)
    request_log.went_down("n0")
    request_log.went_down("n0")
    request_log.asked("n0", "list pods", up=False)
    request_log.started("n0")
    now[0] = 7.0
    request_log.came_up("n0")
    request_log.asked("n0", "list pods", up=True)
    (window,) = request_log.windows
    assert (window.node, window.begun, window.ended, window.starts, dict(window.asked)) == ("n0", 0.0, 7.0, 2, {"list pods": 1})


def test_at_rest_everything_is():
    request_log = RequestLog(lambda: 0.0)
    request_log.asked("n0", "list pods", up=True)
    assert request_log.resting is None
    request_log.begin_rest()
    request_log.asked("n0", "list pods", up=True)
    assert request_log.resting == {("n0", "list pods"): 1}
