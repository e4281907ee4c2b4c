from sidecar.simulation.ledger import Ledger


def test_only_what_is_asked_in_vain_is_counted():
    now = [0.0]
    ledger = Ledger(lambda: now[0])
    ledger.asked("n0", "list pods", up=True)
    ledger.went_down("n0")
    ledger.went_down("n0")
    ledger.asked("n0", "list pods", up=False)
    ledger.started("n0")
    now[0] = 7.0
    ledger.came_up("n0")
    ledger.asked("n0", "list pods", up=True)
    (window,) = ledger.windows
    assert (window.node, window.begun, window.ended, window.starts, dict(window.asked)) == ("n0", 0.0, 7.0, 2, {"list pods": 1})


def test_at_rest_everything_is():
    ledger = Ledger(lambda: 0.0)
    ledger.asked("n0", "list pods", up=True)
    assert ledger.resting is None
    ledger.begin_rest()
    ledger.asked("n0", "list pods", up=True)
    assert ledger.resting == {("n0", "list pods"): 1}
