"""Which sidecars the referee holds to account: those that had the time to see."""

from hack.sim.drains.eyes import Eyes


def eyes(*samples: tuple[float, int, bool]) -> Eyes:
    found = Eyes()
    for now, life, sees in samples:
        found.sample(now, life=life, sees=sees)
    return found


def test_who_saw_it_long_enough_had_a_chance():
    found = eyes((0.0, 1, True), (40.0, 1, False))
    assert found.had_a_chance(10.0, 100.0, seconds=30.0)
    assert not found.had_a_chance(11.0, 100.0, seconds=30.0)


def test_a_new_life_begins_anew():
    found = eyes((0.0, 1, True), (20.0, 2, True))
    assert not found.sees_for(40.0, seconds=30.0)
    assert found.sees_for(50.0, seconds=30.0)
    assert not found.had_a_chance(0.0, 40.0, seconds=30.0)


def test_what_goes_on_counts():
    assert eyes((0.0, 1, True)).had_a_chance(0.0, 30.0, seconds=30.0)
