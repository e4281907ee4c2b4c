"""Spaces out writes that somebody else undoes again and again. It has no clock: the time is a parameter."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from sidecar.engine.backoff import Backoff

K = TypeVar("K", bound=Hashable)

TOLD_AT: Final = 3
"""So many writes in a row are no accident."""


class UndoneWrites(Generic[K]):
    """One write is enough, and a second one after somebody has thought better of something, unless it is undone for ever, by a controller
    that reverts or deletes what it does not know. Then each next one comes after a pause, and the pauses grow until nothing was written
    for as long as the longest of them."""

    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        self._written: dict[K, tuple[int, float]] = {}
        """How often in a row, and when the next one may come. The latest is last."""

    def turn(self, key: K) -> float:
        """When the next write may come; 0.0: now."""
        return self._written.get(key, (0, 0.0))[1]

    def count(self, key: K, now: float) -> int:
        """How often in a row."""
        count, turn = self._written.get(key, (0, now))
        return 0 if now > turn + self._retry.cap else count

    def wrote(self, key: K, now: float) -> int:
        """Returns how often in a row."""
        count = self.count(key, now)
        self._written.pop(key, None)
        self._written[key] = count + 1, now + (self._retry.delay(count - 1) if count else 0.0)
        while (oldest := next(iter(self._written))) != key and self.count(oldest, now) == 0:
            del self._written[oldest]
        return count + 1
