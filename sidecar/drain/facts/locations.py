"""Decides which volumes are on one node and on no other: by the labels of nodes, else by who made the volume."""

from collections.abc import Iterable, Sequence

from sidecar.drain.wording import first_few
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment, Term


class VolumeLocator:
    """One node among others. Many volumes have the same affinity, so each affinity is judged once.

    People change the labels of nodes: where labels say that no node reaches a volume, or several do, it is where it was made.
    """

    def __init__(self, node: Node | None, others: Iterable[Node]) -> None:
        self._node = node
        self._others = tuple(others)
        self._known: dict[tuple[Term, ...], tuple[bool, bool]] = {}

    def holds(self, volume: Volume) -> bool:
        here, elsewhere = self._reached(volume)
        return here if here != elsewhere else self._node is not None and _maker(volume) == self._node.name

    def may_hold(self, volume: Volume) -> bool:
        """Nothing says that it is on another node."""
        here, elsewhere = self._reached(volume)
        return here == elsewhere and not _maker(volume)

    def is_doubtful(self, volume: Volume) -> bool:
        """No node reaches it, it does not say who made it, and only missing labels speak against this node."""
        return self._reached(volume) == (False, False) and not _maker(volume) and self.may_reach(volume)

    def may_reach(self, volume: Volume) -> bool:
        """No label of this node contradicts its affinity; labels may be missing."""
        node = self._node
        return node is not None and any(term.may_match(node.name, node.labels) for term in volume.affinity or ())

    def names_only(self, volume: Volume, places: Iterable[Segment]) -> bool:
        """It asks for this node and no other, whatever labels the others have. Each of `places` is a label that one node alone has."""
        node, places = self._node, tuple(places)
        return node is not None and all(term.names_only(node.name, places) for term in volume.affinity or ())

    def _reached(self, volume: Volume) -> tuple[bool, bool]:
        """Whether this node reaches it, and whether any other does. Of a volume without affinity neither is known."""
        if volume.affinity is None or self._node is None:
            return False, False
        if volume.affinity not in self._known:
            others = any(_reaches(volume.affinity, other) for other in self._others)
            self._known[volume.affinity] = _reaches(volume.affinity, self._node), others
        return self._known[volume.affinity]


def _maker(volume: Volume) -> str:
    """The node whose sidecar made it, from the identity that it wrote: `<time>-<random>-<driver>-<node>`. Empty: not known."""
    head, driver, node = volume.identity.partition(f"-{volume.driver}-")
    return node if driver and head.count("-") == 1 else ""


def _reaches(affinity: tuple[Term, ...], node: Node) -> bool:
    return any(term.matches(node.name, node.labels) for term in affinity)


def doubt_about(volumes: Sequence[str]) -> str:
    """The sentence about volumes that are doubtful."""
    return f"whether these volumes are on this node is not known, because the node lacks labels that they ask for: {first_few(volumes)}"
