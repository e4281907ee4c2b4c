"""Spaces out the deletions of volumes that nobody can use. It has no clock: the time is a parameter."""

from dataclasses import dataclass, field
from typing import Final

from sidecar.engine.limiter import TokenBucket

AT_ONCE: Final = 10
WINDOW: Final = 5.0
PAUSE: Final = 300.0
"""Seconds."""


@dataclass(slots=True, eq=False, repr=False)
class UndoPace:
    """Before each such deletion all PersistentVolumes of the cluster are listed, perhaps thousands, and a driver that makes one volume
    that nobody can use makes the next one like it. A few are deleted at once. Of more, all that wait have their turn in the same few
    seconds, in which one list answers for many, and then nobody has for minutes."""

    _at_once: TokenBucket = field(default_factory=lambda: TokenBucket(1.0 / PAUSE, AT_ONCE))
    _open_until: float = 0.0
    _opens: float = 0.0

    def wait_until(self, now: float) -> float:
        """When a deletion may be tried; 0.0: now."""
        if now < self._open_until or self._at_once.allow(now):
            return 0.0
        if now < self._opens:
            return self._opens
        self._open_until = now + WINDOW
        self._opens = self._open_until + PAUSE
        return 0.0
