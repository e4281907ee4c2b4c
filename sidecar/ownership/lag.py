"""How late things are: the longest of what a node has lately waited for. It takes the others to be as late as itself.

Where a step is shorter than a write takes to be done and seen, the second in line bids against the first, and each such bid makes
everything later still. On a machine or an API server that has more to do than it can, that is a storm.
"""

from typing import Final

# What was slow so long ago counts half.
_HALF_LIFE: Final = 5.0
# What was later than this had other reasons than load.
_MOST: Final = 10.0


class Lag:
    """Times are handed in. What is under way counts with the time it has taken so far."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._worst = 0.0
        self._seen = 0.0

    def began(self, key: str, now: float) -> None:
        self._begun[key] = now

    def ended(self, key: str, now: float) -> None:
        begun = self._begun.pop(key, None)
        if begun is not None:
            self.late(now - begun, now)

    def late(self, seconds: float, now: float) -> None:
        """Something came so many seconds after it was due."""
        self._worst, self._seen = max(self._decayed(now), min(seconds, _MOST)), now

    def now(self, now: float) -> float:
        """Seconds."""
        oldest = next(iter(self._begun.values()), now)  # the first that began is the one that takes longest
        return max(self._decayed(now), now - oldest)

    def _decayed(self, now: float) -> float:
        return float(self._worst * 0.5 ** (max(now - self._seen, 0.0) / _HALF_LIFE))
