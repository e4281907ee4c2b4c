"""Computes when a node bids: after upstream's random delay, or in the order of the known contenders.

Both say only how long to wait. What the node finds and does after the wait is decided in `rules`.
"""

import math
from dataclasses import dataclass
from typing import Final

# The first contenders, this many, have a step of their own. Those behind them share steps, and each step is shared by twice as many as
# the one before. If only a few of thousands of nodes have room, one of them still bids within seconds, at the price of some conflicts.
SINGLE_STEPS: Final = 8
# Turns are rounded up to a common beat, in seconds. In a burst every node waits for its turn at hundreds of claims, and other nodes take
# most of them meanwhile. With a beat the node wakes up for many claims at once, and at the moments in which it reads its busy watches.
_BEAT: Final = 0.08
_LONGEST_BEAT: Final = 0.32


@dataclass(frozen=True, slots=True)
class RandomDelay:
    """Attempt n waits for min(base·2ⁿ, max), less a random part of one base delay, and never for less than 0 seconds.

    If N nodes have space, the first of them bids after about base / (N + 1).
    """

    base: float
    maximum: float

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds before the bid of this attempt (0, 1, 2 …); `chance` is drawn from [0, 1)."""
        # A float cannot hold 2.0**attempt for an attempt above 1023; usual base delays reach the maximum long before.
        grown = self.maximum if attempt > 60 else min(self.base * 2.0**attempt, self.maximum)
        return max(grown - self.base * chance, 0.0)

    def due(self, now: float, delay: float) -> float:
        """The time at which a delay that begins now is over."""
        return now + delay


@dataclass(frozen=True, slots=True)
class Ranked:
    """The first contender bids at once. If nobody has taken the claim a step later, the second one bids, and so on.

    A step has to be longer than nearly every write takes to be seen, or the second contender bids against the first. It has to be short
    all the same, because each contender that is dead or full costs one step.
    """

    otherwise: RandomDelay
    """Used while the contenders are not known."""
    step: float = 0.4

    def delay(self, rank: int, chance: float) -> float:
        """Seconds before the bid of the contender that has `rank` others before it."""
        if rank < SINGLE_STEPS:
            return rank * self.step
        share = int(math.log2(rank - SINGLE_STEPS + 2)) - 1
        return (SINGLE_STEPS + share + chance) * self.step

    def patience(self, rank: int, lag: float, chance: float) -> float:
        """Seconds that a contender which lags behind gives those before it, on top of its delay.

        The first write and its news take a lag each. Then the second contender has its turn; those behind it share turns, each twice as
        many as the one before, so that few bid at once and the last one does not wait long.
        """
        return (rank.bit_length() + chance) * 2.0 * lag

    def due(self, now: float, delay: float) -> float:
        """The time at which a delay that begins now is over. The first contender does not even wait for a beat: nobody comes before it."""
        if delay <= 0.0:
            return now
        beat = _BEAT
        while beat < _LONGEST_BEAT and beat * 8 <= delay:
            beat *= 2
        return math.ceil((now + delay) / beat) * beat

    def after_all(self, contenders: int, chance: float) -> float:
        """Seconds after which each of this many contenders has had its turn."""
        return self.delay(max(contenders, SINGLE_STEPS), 0.0) + (1.0 + chance) * self.step


Placement = RandomDelay | Ranked
