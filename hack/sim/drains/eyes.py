"""What each sidecar could have seen: the spans in which it ran and reached the API server.

No program knows what it could not see. A verdict may be behind by what a watch, the pace between two looks and a request take, and not by
more; of what happened while a sidecar was dead or cut off, it knows nothing until it has looked again.
"""

from dataclasses import dataclass, field
from typing import Final

LAG: Final = 15.0
"""Seconds between a change and the verdict that heeds it: a node in normal life is looked at every 5 s and 2 s after a change at the
earliest; watch, questions and the write itself take a few more in ordinary weather. Later watches and requests of a plan come on top."""
STAND: Final = 90.0
"""Seconds after which a verdict that was overtaken must be withdrawn: what is not watched is looked at every minute."""

OUTLIVED: Final = 2400.0
"""Seconds after which a neighbour must have withdrawn what a dead sidecar said: a quarter of an hour for which that holds, as long again
until the neighbour looks after the node, and its patience."""


@dataclass(slots=True)
class Eyes:
    """Of one node's sidecar."""

    since: float | None = None
    life: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Those that are over."""

    def sample(self, now: float, *, life: int, sees: bool) -> None:
        if self.since is not None and (not sees or life != self.life):
            self.spans.append((self.since, now))
            self.since = None
        if sees and self.since is None:
            self.since, self.life = now, life

    def had_a_chance(self, begun: float, now: float, *, seconds: float) -> bool:
        """It saw, for so long without a break, what was the case from `begun` on."""
        spans = [*self.spans, *([(self.since, now)] if self.since is not None else [])]
        return any(min(end, now) - max(start, begun) >= seconds for start, end in spans)

    def sees_for(self, now: float, *, seconds: float) -> bool:
        return self.since is not None and now - self.since >= seconds
