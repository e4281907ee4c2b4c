"""Reads and writes the note in a claim that names the nodes which have had it and gave it back: those come last.

Each node has one try in a round. When all have had theirs, the next round begins after a pause, which grows from round to round. The note
is in the claim itself, so every node knows it, also one that has just started, and no node has to remember it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.model import names
from sidecar.model.objects import Notes

LONGEST: Final = 8192
"""Characters of the note. In a cluster whose names do not fit, those that tried first are forgotten first."""
_FIRST_PAUSE: Final = 20.0
_LONGEST_PAUSE: Final = 300.0
# So many tries of a round follow each other at once; each further one comes so many seconds after the one before.
_AT_ONCE: Final = 8
_SPACING: Final = 2.0


@dataclass(frozen=True, slots=True)
class Tries:
    """The nodes that have had the claim in this round, in the order in which they gave it back."""

    round: int = 1
    nodes: tuple[str, ...] = ()

    @staticmethod
    def of(notes: Notes | Mapping[str, str]) -> "Tries":
        """Whoever owns the claim may have changed the note; what cannot be read is none."""
        first, *nodes = (dict(notes).get(names.TRIED_BY) or "").split() or ("1",)
        if not (first.isascii() and first.isdigit() and len(first) < 5):
            return NONE
        return Tries(max(int(first), 1), tuple(dict.fromkeys(nodes)))

    def and_(self, node: str) -> "Tries":
        """With this node's try, which begins a new round if it is its second one."""
        if node in self.nodes:
            return Tries(min(self.round + 1, 9999), (node,))
        nodes = (*self.nodes, node)
        while len(nodes) > 1 and len(Tries(self.round, nodes).text) > LONGEST:
            nodes = nodes[1:]
        return Tries(self.round, nodes)

    @property
    def text(self) -> str:
        return " ".join((str(self.round), *self.nodes))

    @property
    def pause(self) -> float:
        """Seconds between the end of this round and the next one."""
        return min(_FIRST_PAUSE * 2.0 ** min(self.round - 1, 8), _LONGEST_PAUSE)

    @property
    def spacing(self) -> float:
        """Seconds before the next try of this round."""
        return 0.0 if len(self.nodes) < _AT_ONCE else _SPACING


NONE: Final = Tries()
