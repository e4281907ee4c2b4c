"""When a node bids: upstream's random delay, or by rank among the known contenders.

Both say how long to wait before the n-th look at an open claim; neither knows what the look will find.
"""

import math
from dataclasses import dataclass
from typing import Final

# So many contenders have a step of their own. Those behind them share steps, each twice as many as the one before: where only
# a few of thousands have room, somebody bids within seconds, and the price is a conflict now and then.
SINGLE_STEPS: Final = 8
# In a burst every node waits for its turn at hundreds of claims, most of which somebody else takes meanwhile. It wakes up for many of
# them at once, and at the same moments as its busy watches are read.
_BEAT: Final = 0.08
_LONGEST_BEAT: Final = 0.32


@dataclass(frozen=True, slots=True)
class RandomDelay:
    """Attempt n waits min(base·2ⁿ, max), less a random part of one base delay; never less than nothing.

    With N nodes that have space the first one bids after about base / (N + 1).
    """

    base: float
    maximum: float

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds before the bid of this attempt (0, 1, 2 …); `chance` is drawn from [0, 1)."""
        grown = self.maximum if attempt > 60 else min(self.base * 2.0**attempt, self.maximum)
        return max(grown - self.base * chance, 0.0)

    def due(self, now: float, delay: float) -> float:
        """When a delay that begins now is over."""
        return now + delay


@dataclass(frozen=True, slots=True)
class Ranked:
    """The first contender bids at once, the next one a step later if nobody has, and so on.

    A step has to be longer than nearly every write takes to be seen, or the second bids against the first; and short, because
    each contender that is dead or full costs one.
    """

    otherwise: RandomDelay
    """While the contenders are not known."""
    step: float = 0.4

    def delay(self, rank: int, chance: float) -> float:
        """Seconds before the bid of the contender with so many others before it."""
        if rank < SINGLE_STEPS:
            return rank * self.step
        share = int(math.log2(rank - SINGLE_STEPS + 2)) - 1
        return (SINGLE_STEPS + share + chance) * self.step

    def due(self, now: float, delay: float) -> float:
        """When a delay that begins now is over. The first waits for nothing, not even for a beat."""
        if delay <= 0.0:
            return now
        beat = _BEAT
        while beat < _LONGEST_BEAT and beat * 8 <= delay:
            beat *= 2
        return math.ceil((now + delay) / beat) * beat

    def after_all(self, contenders: int, chance: float) -> float:
        """Seconds after which each of so many has had its turn."""
        return self.delay(max(contenders, SINGLE_STEPS), 0.0) + (1.0 + chance) * self.step


Placement = RandomDelay | Ranked
