"""Decides which volumes are on a node: by what its pods mount and its driver lists, by the labels of nodes, and by who made the volume."""

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from types import MappingProxyType
from typing import Final

from sidecar.drain.wording import first_few
from sidecar.model import names, nodes
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment, Term

Listed = Mapping[str, bool]
"""By handle: what the driver of this node lists. True: it says that the volume is on this node and on no other."""

_NOTHING_LISTED: Final[Listed] = MappingProxyType({})
_NO_PLACE: Final = Segment()


class VolumeLocator:
    """One node among others. Many volumes have the same affinity, so each affinity is judged once.

    People change the labels of nodes: where labels say that no node reaches a volume, or several do, it is where it was made. One that
    several nodes reach is here, too, if no other node that reaches it stays: this is the last one then.
    """

    def __init__(
        self,
        node: Node | None,
        others: Iterable[Node],
        *,
        mounted: Set[str] = frozenset(),
        listed: Listed = _NOTHING_LISTED,
        place: Segment = _NO_PLACE,
    ) -> None:
        """`mounted`: PersistentVolumes that pods of this node mount. `listed`: what its driver has. `place`: where that says it is."""
        self._node = node
        self._others = tuple(others)
        self._living = {other.name for other in self._others} | ({node.name} if node else set())
        self._mounted, self._listed, self._place = mounted, listed, place
        self._known: dict[tuple[Term, ...], tuple[bool, bool, tuple[str, ...]]] = {}
        self._elsewhere: frozenset[str] | None = None
        """The labels that other nodes have; None: not looked at yet."""

    # --- is it here -----------------------------------------------------------------------------------------------------

    def holds(self, volume: Volume) -> bool:
        return volume.name in self._mounted or self._has(volume) or self.holds_by_label(volume)

    def holds_by_label(self, volume: Volume) -> bool:
        """By labels and by who made it alone, as every node can tell from outside."""
        here, elsewhere = self._reached(volume)
        if here == elsewhere and self._is_made_here(volume):
            return True
        return here and not self.others_that_stay(volume)

    def is_renamed(self, volume: Volume) -> bool:
        """The driver has it here, and its PersistentVolume names a node of another name."""
        names_another = volume.affinity is not None and not self._reached(volume)[0]
        return names_another and self._has(volume) and not self._is_made_here(volume)

    def others_that_stay(self, volume: Volume) -> tuple[str, ...]:
        """Other nodes that reach it as this one does, and that nobody empties: what this node loses is still there.

        That two nodes have one label proves no copy: of what was made here, or what the driver has here alone, none is known elsewhere.
        Nor is one of what pods mount here although the labels name other nodes.
        """
        here, _, staying = self._reach(volume)
        alone = self._is_made_here(volume) or self._listed.get(volume.handle) is True
        return staying if here and not alone else ()

    def is_shared(self, volume: Volume) -> bool:
        """This node reaches it, and another one does."""
        here, elsewhere = self._reached(volume)
        return here and elsewhere

    def from_outside(self, node: Node) -> "VolumeLocator":
        """As other nodes see this one: `node` has the labels that are stored."""
        return VolumeLocator(node, self._others)

    def is_hidden(self, volume: Volume, outside: "VolumeLocator") -> bool:
        """Of one that is here: no other node can tell, and it is on no other that stays."""
        return not outside.holds_by_label(volume) and not self.others_that_stay(volume)

    # --- what is not known ----------------------------------------------------------------------------------------------

    def may_hold(self, volume: Volume) -> bool:
        """Nothing says that it is on another node."""
        here, elsewhere = self._reached(volume)
        return here == elsewhere and not maker_of(volume) and not self.holds(volume)

    def is_unplaced(self, volume: Volume) -> bool:
        """It says no node at all, or one among others although its driver has each volume on one; and nothing else tells where it is."""
        says_no_node = volume.affinity is None or (self.is_shared(volume) and self._is_alone)
        return says_no_node and not maker_of(volume) and not self.holds(volume)

    def is_doubtful(self, volume: Volume) -> bool:
        """No node reaches it, none that lives made it, and only labels that this node lacks speak against this one.

        A label that no node has says nothing about any of them: such a volume is an orphan, and not in doubt anywhere. Nor is one that
        a node made which is gone. Unless it names this node besides, by what no other node has: then the label was lost, or the node has
        a new name, and the volume is still there.
        """
        maker = maker_of(volume)
        placed = self._reached(volume) != (False, False) or maker in self._living or self.holds(volume)
        return not placed and any(self._may_be_meant(term, made=bool(maker)) for term in volume.affinity or ())

    def is_orphan(self, volume: Volume) -> bool:
        """No living node reaches it, and none made it. Nothing is known of a volume that has no affinity and no maker."""
        unreached = volume.affinity is not None and self._reached(volume) == (False, False)
        return unreached and maker_of(volume) not in self._living and not self.holds(volume) and not self.is_doubtful(volume)

    def is_placed_elsewhere(self, volume: Volume) -> bool:
        """Another living node has it: one that alone reaches it, or that made it."""
        here, elsewhere = self._reached(volume)
        made_elsewhere = maker_of(volume) in self._living and not self._is_made_here(volume)
        return not self.holds(volume) and (made_elsewhere or (elsewhere and not here) or bool(self.others_that_stay(volume)))

    def may_reach(self, volume: Volume) -> bool:
        """No label of this node contradicts its affinity; labels may be missing."""
        node = self._node
        return node is not None and any(term.may_match(node.name, node.labels) for term in volume.affinity or ())

    def names_only(self, volume: Volume, places: Iterable[Segment]) -> bool:
        """It asks for this node and no other, whatever labels the others have. Each of `places` is a label that one node alone has."""
        node, places = self._node, tuple(places)
        return node is not None and all(term.names_only(node.name, places) for term in volume.affinity or ())

    @cached_property
    def _is_alone(self) -> bool:
        """No other node is where the driver says that this one is, as all nodes of a zone are."""
        place = self._place.labels()
        return bool(place) and not any(place.items() <= dict(other.labels).items() for other in self._others)

    # --- one by one -----------------------------------------------------------------------------------------------------

    def _has(self, volume: Volume) -> bool:
        """The driver lists it here. A driver may list what other nodes have as well: unless it says that the volume is here alone, the
        list counts for a volume that no living node reaches and none but this one made."""
        alone = self._listed.get(volume.handle)
        if alone is None or alone:
            return bool(alone)
        unreached = volume.affinity is not None and self._reached(volume) == (False, False)
        return unreached and (self._is_made_here(volume) or maker_of(volume) not in self._living)

    def _is_made_here(self, volume: Volume) -> bool:
        return self._node is not None and maker_of(volume) == self._node.name

    def _may_be_meant(self, term: Term, *, made: bool) -> bool:
        node = self._node
        if node is None or not term.may_match(node.name, node.labels):
            return False
        lacking = {item.key for item in term.requirements if item.key not in node.labels}
        return bool(lacking) and ((not made and lacking <= self._labels_of_others()) or self._names_me(term, node))

    def _names_me(self, term: Term, node: Node) -> bool:
        """By name, or by the value of a label that no other node has."""
        asked = [item for item in term.requirements if item.operator == "In" and item.key in node.labels]
        return bool(term.fields) or any(all(other.labels.get(item.key) not in item.values for other in self._others) for item in asked)

    def _labels_of_others(self) -> frozenset[str]:
        if self._elsewhere is None:
            self._elsewhere = frozenset(key for other in self._others for key in other.labels)
        return self._elsewhere

    def _reached(self, volume: Volume) -> tuple[bool, bool]:
        """Whether this node reaches it, and whether any other does. Of a volume without affinity neither is known."""
        here, elsewhere, _ = self._reach(volume)
        return here, elsewhere

    def _reach(self, volume: Volume) -> tuple[bool, bool, tuple[str, ...]]:
        """And which others that reach it stay."""
        affinity = volume.affinity
        if affinity is None or self._node is None:
            return False, False, ()
        if affinity not in self._known:
            others = [other for other in self._others if _reaches(affinity, other)]
            staying = tuple(sorted(other.name for other in others if stays(other)))
            self._known[affinity] = _reaches(affinity, self._node), bool(others), staying
        return self._known[affinity]


def stays(node: Node) -> bool:
    """The node works, and nobody is about to take it away or to empty it."""
    leaving = any(taint.key in (names.EVACUATE_TAINT, *names.RETIRING_TAINTS) for taint in node.taints)
    announced = node.annotations.get(names.DRAIN_INTENT, "").strip()
    return node.ready == nodes.TRUE and not (node.deleting or node.cordoned or leaving or announced)


def maker_of(volume: Volume) -> str:
    """The node whose sidecar made it, from the identity that it wrote: `<time>-<random>-<driver>-<node>`. Empty: not known."""
    head, driver, node = volume.identity.partition(f"-{volume.driver}-")
    return node if driver and head.count("-") == 1 else ""


def _reaches(affinity: tuple[Term, ...], node: Node) -> bool:
    return any(term.matches(node.name, node.labels) for term in affinity)


def doubt_about(volumes: Sequence[str]) -> str:
    """The sentence about volumes that are doubtful."""
    return f"whether these volumes are on this node is not known, because the node lacks labels that they ask for: {first_few(volumes)}"
