"""Where the volumes of a listed cluster are, for all of its nodes: the rules are those of `locations`, and each affinity is judged once."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set

from sidecar.drain.facts.locations import VolumeLocator, maker_of, stays
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Term


class IndexedLocator(VolumeLocator):
    """The same rules, where it is known already which nodes reach a volume."""

    def __init__(self, node: Node, nodes: "VolumeMap", *, reached_by: Callable[[Volume], Sequence[str]], staying: Set[str]) -> None:
        super().__init__(node, nodes.others(node.name))
        self._living = nodes.living  # one for all locators: they are as many as its names
        self._name = node.name
        self._reached_by = reached_by
        self._staying = staying

    def _reach(self, volume: Volume) -> tuple[bool, bool, tuple[str, ...]]:
        reached = self._reached_by(volume)
        here = self._name in reached
        others = len(reached) > here
        return here, others, tuple(sorted(name for name in reached if name in self._staying and name != self._name)) if others else ()


class VolumeMap:
    """What one node alone has is found by its name, so that many nodes cost little more than one."""

    def __init__(self, nodes: Iterable[Node], volumes: Iterable[Volume]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self.living = set(self._nodes)
        self._staying = frozenset(node.name for node in self._nodes.values() if stays(node))
        self._by_affinity: dict[tuple[Term, ...] | None, tuple[str, ...]] = {None: ()}
        self._reached: dict[str, tuple[str, ...]] = {}
        self._locators: dict[str, IndexedLocator] = {}
        self._doubted: dict[str, tuple[Volume, ...]] = {}
        self._doubts: frozenset[str] | None = None
        self._alone: dict[str, list[Volume]] = defaultdict(list)
        self._several: list[Volume] = []
        """Several nodes reach them."""
        self._nobodys: list[Volume] = []
        """No node reaches them, or all do, and they do not say who made them."""
        self._of_the_gone: list[Volume] = []
        """No node reaches them, and a node made them that is gone."""
        for volume in volumes:
            self._sort(volume)

    def _sort(self, volume: Volume) -> None:
        reached, maker = self.reached_by(volume), maker_of(volume)
        if len(reached) > 1:
            self._several.append(volume)
        elif reached or maker:
            self._alone[reached[0] if reached else maker].append(volume)
        else:
            self._nobodys.append(volume)
        if maker and not reached and maker not in self._nodes:
            self._of_the_gone.append(volume)

    def reached_by(self, volume: Volume) -> tuple[str, ...]:
        """The nodes that its affinity allows; none for one without affinity."""
        if volume.name not in self._reached:
            self._reached[volume.name] = self._allowed(volume.affinity)
        return self._reached[volume.name]

    def locator(self, name: str) -> VolumeLocator:
        """Of a node that is in the lists."""
        if name not in self._locators:
            self._locators[name] = IndexedLocator(self._nodes[name], self, reached_by=self.reached_by, staying=self._staying)
        return self._locators[name]

    def others(self, name: str) -> tuple[Node, ...]:
        return tuple(node for node in self._nodes.values() if node.name != name)

    def held(self, name: str) -> tuple[Volume, ...]:
        """By labels, or by who made them."""
        locator = self.locator(name)
        return tuple(volume for volume in (*self._alone.get(name, ()), *self._several) if locator.holds(volume))

    def doubtful(self, name: str) -> tuple[Volume, ...]:
        if name not in self._doubted:
            locator = self.locator(name)
            self._doubted[name] = tuple(volume for volume in (*self._nobodys, *self._of_the_gone) if locator.is_doubtful(volume))
        return self._doubted[name]

    def unlocated(self, name: str) -> Iterable[Volume]:
        """On which node they are is not known at all. Orphans are not among them."""
        locator, doubted = self.locator(name), {volume.name for volume in self.doubtful(name)}
        yield from (volume for volume in self._several if locator.may_hold(volume))
        yield from (volume for volume in self._nobodys if volume.name not in doubted and not locator.is_orphan(volume))

    def orphans(self, name: str) -> Iterable[Volume]:
        """As far as they may be told from what that node has; those that say who made them are not among them."""
        locator = self.locator(name)
        return (volume for volume in self._nobodys if locator.is_orphan(volume))

    def is_orphan(self, volume: Volume) -> bool:
        """No living node reaches it, none made it, and none is in doubt about it."""
        unreached = volume.affinity is not None and not self.reached_by(volume)
        return unreached and maker_of(volume) not in self._nodes and volume.name not in self._in_doubt()

    def _in_doubt(self) -> Set[str]:
        """Anywhere."""
        if self._doubts is None:
            self._doubts = frozenset(volume.name for name in self._nodes for volume in self.doubtful(name))
        return self._doubts

    def _allowed(self, affinity: tuple[Term, ...] | None) -> tuple[str, ...]:
        if affinity not in self._by_affinity:
            terms = affinity or ()
            nodes = self._nodes.values()
            self._by_affinity[affinity] = tuple(node.name for node in nodes if any(term.matches(node.name, node.labels) for term in terms))
        return self._by_affinity[affinity]
