"""Decides how soon a gate is built again that somebody takes away again and again.

The first time it is built at once: a drainer must not pass because a tool pruned the gate, or a person erred. Whoever takes it away each
time, such as a controller that does not know it or a webhook that changes it, would else have every node write for ever, as fast as it
looks.
"""

import math
from dataclasses import dataclass
from typing import Final

from sidecar.engine.backoff import Backoff

_BACKOFF: Final = Backoff(2.0, 60.0)
# A gate that has stood for so long is none that is taken away each time.
_STEADY: Final = 600.0


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """How often a gate was built in a row, each time soon after the time before. By a clock that does not jump."""

    times: int = 0
    built_at: float = -math.inf

    def built(self, now: float) -> "Rebuilding":
        return Rebuilding(self.times + 1 if now - self.built_at < _STEADY else 1, now)

    @property
    def due(self) -> float:
        """When it may be built or torn down again at the earliest."""
        return self.built_at + _BACKOFF.delay(self.times - 2) if self.times >= 2 else -math.inf

    @property
    def why(self) -> str:
        again = f"it was built {self.times} times, and is built again a little later"
        return f"somebody takes the gate away or changes it again and again: {again}"
