"""Where a volume's data is: on this node, on another one, or not known. One answer for each volume, from its node affinity and its maker.

A sidecar is for drivers whose volumes are on one node each. That several nodes match an affinity, and nobody says which of them made the
volume, is odd for such a driver, so it is not known where the data is: nobody may say that nothing would be lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sidecar.drain.words import first_few
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment, Term


class Where(Enum):
    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    where: Where
    why: str = ""  # of what is not known: why, for people


HERE, ELSEWHERE = Place(Where.HERE), Place(Where.ELSEWHERE)


def maker_of(volume: Volume) -> str:
    """The node whose sidecar made it, from the identity that it wrote: `<time>-<random>-<driver>-<node>`. Empty: not known."""
    head, driver, node = volume.identity.partition(f"-{volume.driver}-")
    return node if driver and head.count("-") == 1 else ""


class Locator:
    """One node among others. Many volumes have the same affinity, so each affinity is matched once."""

    def __init__(self, node: Node, others: Iterable[Node], *, segment: Segment | None = None) -> None:
        """`segment`: the labels that the driver reports for the node, which people may have taken off it."""
        self._name = node.name
        self._labels: Mapping[str, str] = {**node.labels, **(segment.labels() if segment else {})}
        self._others = tuple(others)
        self._known: dict[tuple[Term, ...], tuple[bool, bool, tuple[str, ...]]] = {}

    def needs_others(self, volume: Volume, *, listed: bool = False) -> bool:
        """Whether it depends on the other nodes where its data is: nothing that this node alone knows contradicts that it is here."""
        nothing_against = any(term.may_match(self._name, self._labels) for term in volume.affinity or ())
        return maker_of(volume) != self._name and (nothing_against or listed or volume.affinity is None)

    def place(self, volume: Volume, *, listed: bool = False) -> Place:
        """`listed`: the driver of this node lists its handle."""
        maker, (here, may_be_here, others) = maker_of(volume), self._matches(volume)
        if maker == self._name:
            return HERE
        living = {node.name for node in self._others}
        if volume.affinity is None:
            if maker:
                return Place(Where.UNKNOWN, f"node {maker} made it, and is gone") if listed and maker not in living else ELSEWHERE
            return Place(Where.UNKNOWN, "it has no node affinity and does not say which node made it")
        if here:
            if not others:
                return HERE
            if maker in living:
                return ELSEWHERE
            return Place(Where.UNKNOWN, f"its node affinity matches {first_few((self._name, *others))}, and none of them made it")
        if others or maker in living:
            return ELSEWHERE
        if listed:
            return Place(
                Where.UNKNOWN, "the driver lists it here, and no node has the labels that it asks for: this node may have had them"
            )
        if may_be_here and not maker:
            return Place(Where.UNKNOWN, "no node has the labels that it asks for, and this one lacks some of them")
        return ELSEWHERE

    def _matches(self, volume: Volume) -> tuple[bool, bool, tuple[str, ...]]:
        """Whether this node matches, whether it could if it had more labels, and which others match."""
        affinity = volume.affinity or ()
        if affinity not in self._known:
            here = any(term.matches(self._name, self._labels) for term in affinity)
            may_be = any(term.may_match(self._name, self._labels) and self._says_something(term) for term in affinity)
            others = sorted(node.name for node in self._others if any(term.matches(node.name, node.labels) for term in affinity))
            self._known[affinity] = here, may_be, tuple(others)
        return self._known[affinity]

    def _says_something(self, term: Term) -> bool:
        """Of this node, by a label that it has, or by one that it may have lost: others have it. A label that no node has says nothing."""
        keys = {item.key for item in term.requirements}
        return any(key in self._labels for key in keys) or keys <= {key for other in self._others for key in other.labels}
