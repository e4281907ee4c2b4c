"""Which volumes lie on one node and nowhere else, as labels of nodes tell, or who made them."""

from collections.abc import Iterable, Sequence

from sidecar.drain.blockers import some
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment, Term


class Pinned:
    """One node among others. Volumes of one place are many and say the same, so each affinity is judged once.

    People change the labels of nodes: where labels say that no node reaches a volume, or several do, it lies where it was made.
    """

    def __init__(self, node: Node | None, others: Iterable[Node]) -> None:
        self._node = node
        self._others = tuple(others)
        self._known: dict[tuple[Term, ...], tuple[bool, bool]] = {}

    def holds(self, volume: Volume) -> bool:
        here, elsewhere = self._reached(volume)
        return here if here != elsewhere else self._was_made_here(volume)

    def may_hold(self, volume: Volume) -> bool:
        """Nothing speaks for another node."""
        here, elsewhere = self._reached(volume)
        return here == elsewhere and not _maker(volume)

    def is_doubtful(self, volume: Volume) -> bool:
        """No node reaches it, nobody says who made it, and all that speaks against this node is that labels are missing."""
        return self._reached(volume) == (False, False) and not _maker(volume) and self.may_reach(volume)

    def may_reach(self, volume: Volume) -> bool:
        """Nothing that this node's labels say speaks against it."""
        node = self._node
        return node is not None and any(term.may_match(node.name, node.labels) for term in volume.affinity or ())

    def names_only(self, volume: Volume, places: Iterable[Segment]) -> bool:
        """It asks for this node and no other, whatever labels the others have: each of these places is one node's alone."""
        node, places = self._node, tuple(places)
        return node is not None and all(term.names_only(node.name, places) for term in volume.affinity or ())

    def _reached(self, volume: Volume) -> tuple[bool, bool]:
        """From this node, and from any other; of a volume without affinity nothing is known."""
        if volume.affinity is None or self._node is None:
            return False, False
        if volume.affinity not in self._known:
            others = any(_reaches(volume.affinity, other) for other in self._others)
            self._known[volume.affinity] = _reaches(volume.affinity, self._node), others
        return self._known[volume.affinity]

    def _was_made_here(self, volume: Volume) -> bool:
        return self._node is not None and _maker(volume) == self._node.name


def _maker(volume: Volume) -> str:
    """The node whose sidecar made it, as that wrote into it who it was: `<time>-<random>-<driver>-<node>`. Empty: nobody says."""
    head, driver, node = volume.identity.partition(f"-{volume.driver}-")
    return node if driver and head.count("-") == 1 else ""


def _reaches(affinity: tuple[Term, ...], node: Node) -> bool:
    return any(term.matches(node.name, node.labels) for term in affinity)


def place_unknown(volumes: Sequence[str]) -> str:
    """What is to be said of doubtful ones."""
    return f"whether these volumes lie here is not known, for the node lacks labels that they ask for: {some(volumes)}"
