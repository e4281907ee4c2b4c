"""What one process remembers of the lease of a neighbour's gate, and of its judgements of that neighbour. Nothing of it is stored."""

from dataclasses import dataclass
from typing import Final

# How often another node is judged: at first, and at least, however often the judgement stays the same.
JUDGED_SOON: Final = 300.0
_JUDGED_AT_LEAST: Final = 1800.0


@dataclass(slots=True)
class Seen:
    """One lease, as this process has seen it."""

    version: str
    since: float
    their_time: tuple[float, float] | None = None
    """When the node's own sidecar renewed it last, by that node's clock, and when this process saw that, by its own; None: it did not."""
    judged_at: float | None = None
    judged_every: float = JUDGED_SOON
    proven_since: float | None = None
    """When this process first judged that the gate may be opened, and no judgement has denied it since."""
    draining: bool = False

    def judged_less_often(self) -> float:
        return min(max(2.0 * self.judged_every, JUDGED_SOON), _JUDGED_AT_LEAST)

    @property
    def confirmed_at(self) -> float | None:
        """When the next judgement may confirm what the last one has proven; None: it has proven nothing."""
        return None if self.judged_at is None or self.proven_since is None else self.judged_at + self.judged_every

    def forget_judgements(self) -> None:
        self.judged_at = self.proven_since = None
        self.judged_every = JUDGED_SOON
