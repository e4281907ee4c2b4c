import pytest

from hack.sim.world.network import Killed, Life


def cross(life: Life, times: int) -> int:
    """How many crossings it survives."""
    for number in range(times):
        try:
            life.cross("somewhere")
        except Killed:
            return number
    return times


def test_it_dies_at_the_chosen_crossing_and_never_passes_another():
    told: list[str] = []
    life = Life(1, on_death=told.append)
    life.doom(3)
    assert cross(life, 10) == 2
    assert told == ["somewhere"]
    assert cross(life, 10) == 0


def test_a_pardoned_one_lives():
    life = Life(1)
    life.doom(1)
    life.pardon()
    assert cross(life, 10) == 10


def test_killed_at_any_time_it_is_told_once():
    told: list[str] = []
    life = Life(1, on_death=told.append)
    life.kill("kill -9")
    life.kill("again")
    assert told == ["kill -9"]
    with pytest.raises(Killed):
        life.check()


def test_one_that_ended_by_itself_is_not_a_death_but_passes_nothing_either():
    told: list[str] = []
    life = Life(1, on_death=told.append)
    life.end()
    assert not told
    with pytest.raises(Killed):
        life.cross("clean-up")
