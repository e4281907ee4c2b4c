"""How long an evacuation has taken, by a clock that does not jump: the wall clock as it was when this process first saw the start."""

from dataclasses import dataclass
from typing import Final

# In seconds. When a deadline is over at the first look, the clock may have leapt while no process counted.
AT_LEAST: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Seen:
    started_at: float
    wall: float
    clock: float


class SteadyClock:
    """One per process."""

    def __init__(self) -> None:
        self._seen: _Seen | None = None

    def now(self, started_at: float | None, *, allowed: float, overridden: bool, wall: float, clock: float) -> float:
        """`wall` and `clock` are now, of which only the first can jump. `overridden`: it has been ended, and stays so without more ado."""
        if started_at is None:
            self._seen = None
            return wall
        if self._seen is None or self._seen.started_at != started_at:
            latest = wall if overridden or allowed <= 0 else min(wall, started_at + max(0.0, allowed - AT_LEAST))
            self._seen = _Seen(started_at, latest, clock)
        return self._seen.wall + clock - self._seen.clock
