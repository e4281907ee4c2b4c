"""Remembers when a pod of this node last began to name a claim, however short it ran: the next look may find no trace of it.

What pods did while nobody watched is added when it is known (`absence_io`).
"""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final

from sidecar.model.nodes import Pod

# Claims that are kept before those of no volume of this node are dropped.
_MANY: Final = 1000


@dataclass(frozen=True, slots=True)
class Missed:
    """What happened in a time that nobody watched."""

    ended: float
    """When somebody watched again, by the clock of this process."""
    begun: frozenset[str] = frozenset()
    """Claims (`namespace/name`) that a pod of this node began to name."""
    lost: bool = False
    """Nobody can tell any more."""


class BegunUses:
    """One per process."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}
        self.lost_at = float("-inf")
        """What pods had begun before that is not known."""

    def began(self, pod: Pod) -> None:
        self._at |= dict.fromkeys(pod.claim_names, self._clock())

    def missed(self, what: Missed) -> None:
        """When in that time is not known, so it counts as now: an acknowledgement that was found meanwhile may be older."""
        self._at |= dict.fromkeys(what.begun, self._clock())
        self.lost_at = what.ended if what.lost else self.lost_at

    def last(self, claim: str) -> float:
        return self._at.get(claim, float("-inf"))

    def keep(self, claims: Set[str]) -> None:
        """The claims of this node's volumes; the others matter to nobody, but for a moment until their volume is known."""
        if len(self._at) > _MANY:
            self._at = {claim: at for claim, at in self._at.items() if claim in claims or self._clock() - at < 600.0}
