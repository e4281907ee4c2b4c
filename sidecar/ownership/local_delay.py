"""Measures how far this node lags behind: the longest time that it lately waited for a write, for its turn, or for its watch of claims.

A node cannot measure the other nodes, so it assumes that they lag as much as itself. If a step of the race is shorter than the time in
which a write is done and seen, the second node bids against the first. Each such bid slows everything down further; on an overloaded
machine or API server this ends in a storm of conflicts. And while its watch is late, each claim seems to be open long after somebody has
taken it: then a node that asks about one learns for all of them.
"""

from collections.abc import Callable
from typing import Final

# Seconds after which a measurement counts half: a load that has passed must not delay bids for long.
_HALF_LIFE: Final = 5.0
# In seconds. A longer wait had other reasons than load, so no measurement counts for more than this.
_MOST: Final = 10.0


class LocalDelay:
    """The lag of this node. What is under way counts with the time it has taken so far: a write that hangs is seen before it ends."""

    def __init__(self, *, watched: Callable[[], str] = lambda: "") -> None:
        """`watched`: the resourceVersion to which the watch of claims has come."""
        self._watched = watched
        self._told: tuple[int, float] | None = None
        """What a request has shown, and when: a resourceVersion that the watch had yet to come to."""
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
        """Records that something happened this many seconds after it was due."""
        self._worst, self._seen = max(self._decayed(now), min(seconds, _MOST)), now

    def told(self, version: str, now: float) -> None:
        """Records that a request has shown what others have written; the watch may have yet to show it."""
        if self._told is None and version.isdecimal():
            self._told = int(version), now

    def now(self, now: float) -> float:
        """Seconds by which this node lags behind."""
        if self._told is not None:
            self._look_at_watch(*self._told, now)
        oldest = next(iter(self._begun.values()), now)  # a dict keeps the order of insertion: the first has been under way for longest
        return max(self._decayed(now), now - oldest)

    def _look_at_watch(self, version: int, since: float, now: float) -> None:
        """While the watch has not come to what was told, it is late for as long as that has been known."""
        watched = self._watched()
        if watched.isdecimal() and int(watched) < version:
            self.late(now - since, now)
        else:
            self._told = None  # when it came there is not known, so only what was seen counts

    def _decayed(self, now: float) -> float:
        return float(self._worst * 0.5 ** (max(now - self._seen, 0.0) / _HALF_LIFE))
