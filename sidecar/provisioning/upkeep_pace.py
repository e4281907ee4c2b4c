"""Spaces out the writes by which our finalizer is put on a PersistentVolume and taken off. It has no clock: the time is a parameter."""

from typing import Final

from sidecar.engine.backoff import Backoff

TOLD_AT: Final = 3
"""So many writes in a row are no accident."""


class UpkeepPace:
    """One write is enough, and a second one after somebody has thought better of a reclaim policy, unless it is undone again and again, by
    a controller that reverts what it does not know. Then each next one comes after a pause, and the pauses grow until nothing was written
    for as long as the longest of them."""

    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        self._written: dict[str, tuple[int, float]] = {}
        """By the volume's uid: how often in a row, and when the next one may come. The latest is last."""

    def turn(self, uid: str) -> float:
        """When the next write may come; 0.0: now."""
        return self._written.get(uid, (0, 0.0))[1]

    def wrote(self, uid: str, now: float) -> int:
        """Returns how often in a row."""
        count, turn = self._written.pop(uid, (0, now))
        count = 0 if now > turn + self._retry.cap else count
        self._written[uid] = count + 1, now + (self._retry.delay(count - 1) if count else 0.0)
        while (oldest := next(iter(self._written))) != uid and now > self._written[oldest][1] + self._retry.cap:
            del self._written[oldest]
        return count + 1
