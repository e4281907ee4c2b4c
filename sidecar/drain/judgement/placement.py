"""Finds other nodes for volumes that may leave this node: first-fit-decreasing over the pools of the other nodes.

Volumes of one pod go to one node, and to none if another volume of the pod has to stay. What a pool gives to one volume is gone for every
class that draws on it. CPU and memory are not considered, so a place is where the data fits, not a promise of the scheduler. Each node is
judged once for each kind of pods and classes, and a tree over free space finds the node for a group: so the cost grows with nodes plus
volumes, not with their product.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice

from sidecar.drain.facts.reboot_note import spent_marks
from sidecar.drain.facts.snapshot import Surroundings
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.free_space import Figure, Figures, FreeSpace, FreeSpaceTree
from sidecar.drain.judgement.groups import EXCLUDED_SHOWN, Group, GroupKind, PodDemand, groups_of, joined
from sidecar.drain.judgement.volumes import LocalItem
from sidecar.drain.vocabulary import Intent
from sidecar.drain.wording import quoted
from sidecar.model import names, nodes
from sidecar.model.nodes import Node
from sidecar.model.objects import Class
from sidecar.model.topology import Segment, allows


def places(held: Iterable[LocalItem], *, surroundings: Surroundings, classes: Mapping[str, Class]) -> tuple[Place, ...]:
    """One place for each group of volumes that may go."""
    planner = _Planner(surroundings, classes)
    groups = groups_of(tuple(held))
    bound = [Place(group.names, "", 0, group.bound) for group in groups if group.bound]
    found = [(group, planner.place(group)) for group in groups if not group.bound]
    planner.count_missing([group for group, node in found if not node])
    return tuple(sorted((*bound, *(planner.result(group, node) for group, node in found)), key=lambda place: place.volumes))


@dataclass(frozen=True, slots=True)
class _OtherNode:
    node: Node
    segment: Segment
    figures: Mapping[str, tuple[Figure, ...]]
    unfit: str
    """Why nothing may be placed there; empty: something may."""


@dataclass(frozen=True, slots=True)
class _Destination:
    """Pools that one node reaches, or several nodes alike; the first node by name stands for them."""

    node: str
    figures: Mapping[str, tuple[Figure, ...]]

    def free_space(self, figures: Figures) -> FreeSpace:
        pools: dict[int, int] = {}
        largest: float = 0
        for figure in (figure for several in self.figures.values() for figure in several):
            left = figures.left(figure)
            pools[figure.pool] = max(pools.get(figure.pool, 0), left)
            largest = max(largest, min(left, figure.limit))
        return FreeSpace(largest, sum(pools.values()))

    def try_on(self, group: Group, figures: Figures) -> "_Attempt | None":
        """None if one of the volumes is larger than the published limit."""
        taken: dict[int, int] = {}
        missing = 0
        for volume in group.volumes:
            options = [item for item in self.figures[volume.storage_class] if volume.bytes <= item.limit]
            if not options:
                return None
            figure = max(options, key=lambda item: figures.left(item) - taken.get(item.pool, 0))
            space = max(figures.left(figure) - taken.get(figure.pool, 0), 0)
            missing += max(volume.bytes - space, 0)
            taken[figure.pool] = taken.get(figure.pool, 0) + min(volume.bytes, space)
        return _Attempt(missing, taken)


@dataclass(frozen=True, slots=True)
class _Attempt:
    missing: int
    taken: Mapping[int, int]


@dataclass(slots=True, eq=False, repr=False)
class _Destinations:
    """The nodes that come into question for groups of one kind."""

    members: Sequence[_Destination]
    excluded: Sequence[tuple[str, str]]
    tree: FreeSpaceTree
    maxima: tuple[float, float]
    """The smallest and the largest of the published limits on a volume; infinity if there is no limit."""
    start: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict)
    """By demand: where the last such group was placed. Destinations before it were too small and have not grown since."""
    missing: int = 0
    """Bytes that would have to be added for all groups that fit nowhere; 0 if that is not to be said of all of them together."""
    results: dict[tuple[tuple[str, int], ...], tuple[int, tuple[tuple[str, str], ...]]] = field(default_factory=dict)

    def may_hold(self, group: Group) -> bool:
        return group.needs.largest <= self.maxima[1]


class _Planner:
    """Places groups one after the other: they all draw on the same pools."""

    def __init__(self, surroundings: Surroundings, classes: Mapping[str, Class]) -> None:
        self._figures = Figures(surroundings.capacities)
        self._classes = classes
        self._destinations: dict[GroupKind, _Destinations] = {}
        ordered = sorted(surroundings.nodes, key=lambda node: node.name)
        self._others = [_OtherNode(node, Segment.of(node.labels), self._figures.of(node), _unfit(node)) for node in ordered]

    def place(self, group: Group) -> str:
        """The node it goes to; empty if none has enough free space."""
        destinations = self._destinations_of(group.kind)
        index = destinations.tree.first(group.needs, destinations.start.get(group.demand, 0))
        while index is not None:
            attempt = destinations.members[index].try_on(group, self._figures)
            fits = attempt is not None and not attempt.missing
            self._figures.give(attempt.taken if attempt and fits else {})
            # Groups of other kinds may have taken from it since the tree was built.
            destinations.tree[index] = destinations.members[index].free_space(self._figures)
            if fits:
                destinations.start[group.demand] = index
                return destinations.members[index].node
            index = destinations.tree.first(group.needs, index + 1)
        destinations.start[group.demand] = len(destinations.members)
        return ""

    def result(self, group: Group, node: str) -> Place:
        """Called when all groups are placed: what a group lacks is measured against what is left then."""
        if node:
            return Place(group.names, node, 0, ())
        destinations = self._destinations_of(group.kind)
        if group.demand not in destinations.results:
            destinations.results[group.demand] = self._missing_for(destinations, group), _excluded(destinations, group, self._figures)
        return Place(group.names, "", *destinations.results[group.demand])

    def count_missing(self, unplaced: Iterable[Group]) -> None:
        """Called when all that fits is placed. What is missing is what would have to be added for all that fits nowhere, kind by kind."""
        by_kind: dict[GroupKind, list[Group]] = defaultdict(list)
        for group in unplaced:
            if self._destinations_of(group.kind).may_hold(group):
                by_kind[group.kind].append(group)
        for kind, groups in by_kind.items():
            destinations = self._destinations_of(kind)
            closest = self._closest(destinations, joined(groups, kind))
            if closest:
                destinations.missing = closest.missing
                # What is left there is spoken for, so that another kind does not count on it.
                self._figures.give(closest.taken)

    def _missing_for(self, destinations: _Destinations, group: Group) -> int:
        if not destinations.may_hold(group):
            return 0
        alone = None if destinations.missing else self._closest(destinations, group)
        return alone.missing if alone else destinations.missing

    def _closest(self, destinations: _Destinations, group: Group) -> _Attempt | None:
        """On the node where the least is missing; None if the group is too large for what is published as limits."""
        best: _Attempt | None = None
        for index in self._by_space(destinations):
            if best is not None and best.missing <= group.needs.total - destinations.tree[index].total:
                break
            attempt = destinations.members[index].try_on(group, self._figures)
            if attempt:
                # It was not placed, so something is missing, even if it now seems to fit: which pool a volume would take is a guess.
                attempt = replace(attempt, missing=max(attempt.missing, 1))
                best = attempt if best is None or attempt.missing < best.missing else best
        return best

    def _by_space(self, destinations: _Destinations) -> Sequence[int]:
        """Indexes of destinations by what is left now, the most first."""
        for index, destination in enumerate(destinations.members):
            destinations.tree[index] = destination.free_space(self._figures)
        return sorted(range(len(destinations.members)), key=lambda index: (-destinations.tree[index].total, index))

    def _destinations_of(self, kind: GroupKind) -> _Destinations:
        if kind not in self._destinations:
            self._destinations[kind] = self._survey(*kind)
        return self._destinations[kind]

    def _survey(self, pod_demands: Set[PodDemand], classes: Set[str]) -> _Destinations:
        members: dict[tuple[int, ...], _Destination] = {}
        excluded = []
        for other in self._others:
            why = other.unfit or _unsuitable(other.node, pod_demands) or _unserved(other, classes, self._classes)
            if why:
                excluded.append((other.node.name, why))
                continue
            figures = {class_: other.figures[class_] for class_ in sorted(classes)}
            reached = tuple(sorted(figure.number for several in figures.values() for figure in several))
            members.setdefault(reached, _Destination(other.node.name, figures))
        found = list(members.values())
        maxima = {item.limit for destination in found for several in destination.figures.values() for item in several} or {math.inf}
        return _Destinations(
            found, excluded, FreeSpaceTree([destination.free_space(self._figures) for destination in found]), (min(maxima), max(maxima))
        )


def _unfit(node: Node) -> str:
    if node.deleting:
        return "it is being deleted"
    if node.ready != nodes.TRUE:
        return f"it is not ready (Ready={node.ready})"
    leaving = sorted(str(taint) for taint in node.taints if taint.key in (names.EVACUATE_TAINT, *names.RETIRING_TAINTS))
    if leaving:
        return f"it is itself being drained (taint {leaving[0]})"
    noted = node.annotations.get(names.DRAIN_INTENT, "").strip()
    if noted and not (noted == Intent.REBOOT and any(spent_marks(node))):
        return f"it is itself being drained (annotation {names.DRAIN_INTENT}={quoted(noted)})"
    return "it is cordoned" if node.cordoned else ""


def _unsuitable(node: Node, pod_demands: Set[PodDemand]) -> str:
    for taint in sorted(node.taints, key=str):
        keeps_out = taint.effect in (names.NO_SCHEDULE, names.NO_EXECUTE)
        tolerated = pod_demands and all(any(toleration.covers(taint) for toleration in tolerations) for tolerations, _, _ in pod_demands)
        if keeps_out and not tolerated:
            return f"its taint {taint} is not tolerated"
    if any(node.labels.get(key) != value for _, selector, _ in pod_demands for key, value in selector):
        return "the pod's node selector does not match it"
    if any(affinity is not None and not any(term.matches(node.name, node.labels) for term in affinity) for _, _, affinity in pod_demands):
        return "the pod's node affinity does not match it"
    return ""


def _unserved(other: _OtherNode, wanted: Set[str], classes: Mapping[str, Class]) -> str:
    for name in sorted(wanted):
        class_ = classes.get(name)
        if class_ is None:
            return f"StorageClass {name!r} does not exist"
        if class_.allowed and not allows(class_.allowed, other.segment):
            return f"allowedTopologies of StorageClass {name!r} do not include it"
        if name not in other.figures:
            return f"no CSIStorageCapacity is published there for StorageClass {name!r}"
    return ""


def _excluded(destinations: _Destinations, group: Group, figures: Figures) -> tuple[tuple[str, str], ...]:
    """The first nodes by name, with those whose limit on a volume is too small."""
    found = list(destinations.excluded[:EXCLUDED_SHOWN])
    if group.needs.largest > destinations.maxima[0]:
        limited = (destination.node for destination in destinations.members if destination.try_on(group, figures) is None)
        found += [(node, "the volume is larger than the maximumVolumeSize published there") for node in islice(limited, EXCLUDED_SHOWN)]
    return tuple(sorted(found)[:EXCLUDED_SHOWN])
