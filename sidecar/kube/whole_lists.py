"""How often a node lists all objects of a kind that it watches by label. What it costs the API server grows with nodes times objects, and
objects grow with nodes: so the more nodes there are, the less often each of them asks."""

from dataclasses import dataclass
from typing import Final

_EVERY: Final = 1800.0
_NODES: Final = 100
"""Up to so many ask as often."""
_LONGEST: Final = 12 * 3600.0


@dataclass(frozen=True, slots=True)
class WholeList:
    """When the next one is due. How many nodes there are may become known later, so that is asked anew each time."""

    since: float
    share: float
    """Of what lies between two."""

    def due(self, nodes: int | None) -> float:
        return self.since + self.share * whole_lists_apart(nodes)


def whole_lists_apart(nodes: int | None) -> float:
    """Seconds between two lists. None: how many nodes there are is not known."""
    return min(_EVERY * max(1.0, (nodes or 0) / _NODES), _LONGEST)
