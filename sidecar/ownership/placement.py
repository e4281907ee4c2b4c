"""The order in which contenders bid: upstream's random delay, exponential per claim, with jitter over one base delay."""

from dataclasses import dataclass


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
