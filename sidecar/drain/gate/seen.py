"""What one process remembers of the lease of a neighbour's gate, and of its judgements of that neighbour. Nothing of it is stored."""

from dataclasses import dataclass
from typing import Final

from sidecar.drain.publish.validity import VALID_FOR

# How often another node is judged: at first, and at least, however often the judgement stays the same.
JUDGED_SOON: Final = 300.0
_JUDGED_AT_LEAST: Final = 1800.0


@dataclass(slots=True, eq=False, repr=False)
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
    let_go: bool = False
    """This process has opened the gate."""
    unmarked_since: float | None = None
    """The gate is open, and what is to be said on its Node has been refused since then; None: it has not."""

    def judged_less_often(self) -> float:
        return min(max(2.0 * self.judged_every, JUDGED_SOON), _JUDGED_AT_LEAST)

    @property
    def confirmed_at(self) -> float | None:
        """When the next judgement may confirm what the last one has proven; None: it has proven nothing."""
        return None if self.judged_at is None or self.proven_since is None else self.judged_at + self.judged_every

    def gives_up(self, now: float) -> bool:
        """To say it: where that was refused for as long as any verdict counts, no sidecar may say it."""
        if self.unmarked_since is None:
            self.unmarked_since = now
        return now - self.unmarked_since >= VALID_FOR

    def forget_judgements(self) -> None:
        self.judged_at = self.proven_since = None
        self.judged_every = JUDGED_SOON

    def came_back(self) -> None:
        """The node's own sidecar."""
        self.forget_judgements()
        self.let_go, self.unmarked_since = False, None
