"""The deadline of an evacuation while the wall clock jumps."""

from dataclasses import dataclass

from sidecar.drain.evacuation.rules import remaining
from sidecar.drain.evacuation.steady_clock import AT_LEAST, SteadyClock

ALLOWED, START = 600.0, 1_767_225_600.0


@dataclass
class Clocks:
    """What a process sees: how long it has lived, and what the wall clock of its node says."""

    lived: float = 0.0
    wall: float = START

    def __post_init__(self) -> None:
        self.steady = SteadyClock()

    def passes(self, seconds: float, *, jump: float = 0.0) -> None:
        self.lived += seconds
        self.wall += seconds + jump

    def left(self, started_at: float = START, *, overridden: bool = False) -> float:
        steady = self.steady.now(started_at, allowed=ALLOWED, overridden=overridden, wall=self.wall, clock=self.lived)
        return remaining(started_at, allowed=ALLOWED, clocks=(self.wall, steady))


def test_without_a_jump_it_is_the_wall_clock() -> None:
    clocks = Clocks()
    for left in (600.0, 300.0, 0.0, -300.0):
        assert clocks.left() == left
        clocks.passes(300.0)


def test_a_leap_ahead_ends_nothing_early() -> None:
    for jump in [60.0, 3600.0, 1e9]:
        clocks = Clocks()
        clocks.left()
        clocks.passes(10.0, jump=jump)
        assert clocks.left() == 590.0
        clocks.passes(590.0)
        assert clocks.left() == 0.0, "nor late"


def test_a_clock_that_is_set_back_shortens_nothing() -> None:
    for jump in [-60.0, -3600.0]:
        clocks = Clocks()
        clocks.left()
        clocks.passes(10.0, jump=jump)
        assert clocks.left() >= 590.0
        clocks.passes(10.0, jump=-jump)
        assert clocks.left() == 580.0


def test_one_that_is_over_when_the_process_first_sees_it_may_be_so_by_a_leap_so_there_is_a_minute_left() -> None:
    clocks = Clocks()
    clocks.passes(0.0, jump=1e9)
    assert clocks.left() == AT_LEAST
    clocks.passes(AT_LEAST)
    assert clocks.left() == 0.0
    assert Clocks(wall=START + 590.0).left() == AT_LEAST


def test_but_not_where_an_earlier_process_has_ended_it_already() -> None:
    clocks = Clocks()
    clocks.passes(0.0, jump=1e9)
    assert clocks.left(overridden=True) < 0


def test_each_evacuation_has_its_own_beginning() -> None:
    clocks = Clocks()
    clocks.left()
    clocks.passes(600.0)
    assert clocks.left() == 0.0
    assert clocks.left(START + 600.0) == 600.0
