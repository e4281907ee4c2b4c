"""Finds other nodes for volumes that may leave this node: first-fit-decreasing over the pools of the other nodes.

Volumes of one pod go to one node, and to none if another volume of the pod has to stay. What a pool gives to one volume is gone for every
class that draws on it. CPU and memory are not considered, so a place is where the data fits, not a promise of the scheduler. Each node is
judged once for each kind of pods and classes, and a tree over free space finds the node for a group: so the cost grows with nodes plus
volumes, not with their product.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from sidecar.drain.facts.reboot_note import spent_marks
from sidecar.drain.facts.snapshot import Surroundings
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.free_space import Figure, Figures, FreeSpace, FreeSpaceTree
from sidecar.drain.judgement.pod_fates import stays
from sidecar.drain.judgement.volumes import LocalItem
from sidecar.drain.vocabulary import Intent, Policy, VolumeClass
from sidecar.drain.wording import quoted
from sidecar.model import names, nodes
from sidecar.model.nodes import Node, Pod, Toleration
from sidecar.model.objects import Class
from sidecar.model.topology import Segment, Term, allows

_EXCLUDED_SHOWN: Final = 10

_PodDemand = tuple[tuple[Toleration, ...], tuple[tuple[str, str], ...], tuple[Term, ...] | None]
"""What a pod asks of its node: tolerations, node selector, required affinity."""
_GroupKind = tuple[frozenset[_PodDemand], frozenset[str]]
"""The demands of a group's pods and the classes of its volumes: groups of one kind have the same nodes to choose from."""


def places(held: Iterable[LocalItem], *, surroundings: Surroundings, classes: Mapping[str, Class]) -> tuple[Place, ...]:
    """One place for each group of volumes that may go."""
    planner = _Planner(surroundings, classes)
    groups = _groups(tuple(held))
    bound = [Place(group.names, "", 0, group.bound) for group in groups if group.bound]
    found = [(group, planner.place(group)) for group in groups if not group.bound]
    return tuple(sorted((*bound, *(planner.result(group, node) for group, node in found)), key=lambda place: place.volumes))


def may_go(held: LocalItem) -> bool:
    return held.class_ in (VolumeClass.IN_USE, VolumeClass.IDLE) and held.moves and not held.shared


def _keeps_pods(held: LocalItem) -> bool:
    """It stays here, and its data may not be lost."""
    return held.in_use and not held.moves and not (held.retire and held.retire.policy is Policy.IGNORE)


@dataclass(frozen=True, slots=True)
class _Group:
    """Volumes that go to one node or to none, the largest first, and their pods."""

    volumes: tuple[LocalItem, ...]
    kind: _GroupKind
    bound: tuple[tuple[str, str], ...]
    """(volume, why): the volumes that keep one of its pods here, and with it the group; no more than are shown."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(item.name for item in self.volumes))

    @property
    def demand(self) -> tuple[tuple[str, int], ...]:
        return tuple((item.storage_class, item.bytes) for item in self.volumes)

    @property
    def needs(self) -> FreeSpace:
        return FreeSpace(self.volumes[0].bytes, sum(item.bytes for item in self.volumes))


def _groups(held: Sequence[LocalItem]) -> list[_Group]:
    """In the order in which they are placed. Pods that share a volume go together."""
    volumes = [item for item in held if may_go(item)]
    parent = {item.name: item.name for item in volumes}
    first: dict[str, str] = {}
    for item in volumes:
        for pod in item.use.everybody:
            parent[_root(parent, item.name)] = _root(parent, first.setdefault(pod.full_name, item.name))
    together: dict[str, list[LocalItem]] = defaultdict(list)
    for item in volumes:
        together[_root(parent, item.name)].append(item)
    bound: dict[str, dict[str, str]] = defaultdict(dict)
    for item in filter(_keeps_pods, held):
        # A pod that no drain evicts moves nowhere, so it keeps no volume from moving.
        for pod in (pod for pod in item.use.everybody if pod.full_name in first and not stays(pod)):
            why = f"its policy {_policies(item)} keeps it here, and pod {pod.full_name} with it"
            bound[_root(parent, first[pod.full_name])].setdefault(item.name, why)
    groups = [_group(members, bound.get(root, {})) for root, members in together.items()]
    return sorted(groups, key=lambda group: (-group.needs.total, group.names))


def _root(parent: dict[str, str], name: str) -> str:
    while parent[name] != name:
        parent[name] = parent[parent[name]]
        name = parent[name]
    return name


def _policies(held: LocalItem) -> str:
    by_intent = {intent: resolved.policy for intent in Intent if (resolved := held.policy(intent))}
    return held.fixed_policy or " and ".join(f"{policy} ({intent})" for intent, policy in by_intent.items())


def _group(members: Iterable[LocalItem], bound: Mapping[str, str]) -> _Group:
    volumes = tuple(sorted(members, key=lambda item: (-item.bytes, item.storage_class, item.name)))
    pod_demands = frozenset(_pod_demand(pod) for item in volumes for pod in item.use.everybody)
    classes = frozenset(item.storage_class for item in volumes)
    return _Group(volumes, (pod_demands, classes), tuple(islice(bound.items(), _EXCLUDED_SHOWN)))


def _pod_demand(pod: Pod) -> _PodDemand:
    return pod.tolerations, tuple(sorted(pod.node_selector.items())), pod.affinity


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

    def try_on(self, group: _Group, figures: Figures) -> "_Attempt | None":
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


@dataclass(slots=True)
class _Destinations:
    """The nodes that come into question for groups of one kind."""

    members: Sequence[_Destination]
    excluded: Sequence[tuple[str, str]]
    tree: FreeSpaceTree
    maxima: tuple[float, float]
    """The smallest and the largest of the published limits on a volume; infinity if there is no limit."""
    start: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict)
    """By demand: where the last such group was placed. Destinations before it were too small and have not grown since."""
    by_space: Sequence[int] = ()
    """Indexes of destinations by what is left in the end, the most first."""
    results: dict[tuple[tuple[str, int], ...], tuple[int, tuple[tuple[str, str], ...]]] = field(default_factory=dict)


class _Planner:
    """Places groups one after the other: they all draw on the same pools."""

    def __init__(self, surroundings: Surroundings, classes: Mapping[str, Class]) -> None:
        self._figures = Figures(surroundings.capacities)
        self._classes = classes
        self._destinations: dict[_GroupKind, _Destinations] = {}
        ordered = sorted(surroundings.nodes, key=lambda node: node.name)
        self._others = [_OtherNode(node, Segment.of(node.labels), self._figures.of(node), _unfit(node)) for node in ordered]

    def place(self, group: _Group) -> str:
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

    def result(self, group: _Group, node: str) -> Place:
        """Called when all groups are placed: what a group lacks is measured against what is left then."""
        if node:
            return Place(group.names, node, 0, ())
        destinations = self._destinations_of(group.kind)
        if group.demand not in destinations.results:
            destinations.results[group.demand] = self._shortfall(destinations, group), _excluded(destinations, group, self._figures)
        return Place(group.names, "", *destinations.results[group.demand])

    def _shortfall(self, destinations: _Destinations, group: _Group) -> int:
        if group.needs.largest > destinations.maxima[1]:
            return 0
        if not destinations.by_space:
            for index, destination in enumerate(destinations.members):
                destinations.tree[index] = destination.free_space(self._figures)
            destinations.by_space = sorted(range(len(destinations.members)), key=lambda index: (-destinations.tree[index].total, index))
        least: int | None = None
        for index in destinations.by_space:
            if least is not None and least <= group.needs.total - destinations.tree[index].total:
                break
            attempt = destinations.members[index].try_on(group, self._figures)
            if attempt:
                # It was not placed, so something is missing, even if it now seems to fit: which pool a volume would take is a guess.
                missing = max(attempt.missing, 1)
                least = missing if least is None else min(least, missing)
        return least or 0

    def _destinations_of(self, kind: _GroupKind) -> _Destinations:
        if kind not in self._destinations:
            self._destinations[kind] = self._survey(*kind)
        return self._destinations[kind]

    def _survey(self, pod_demands: Set[_PodDemand], classes: Set[str]) -> _Destinations:
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


def _unsuitable(node: Node, pod_demands: Set[_PodDemand]) -> str:
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


def _excluded(destinations: _Destinations, group: _Group, figures: Figures) -> tuple[tuple[str, str], ...]:
    """The first nodes by name, with those whose limit on a volume is too small."""
    found = list(destinations.excluded[:_EXCLUDED_SHOWN])
    if group.needs.largest > destinations.maxima[0]:
        limited = (destination.node for destination in destinations.members if destination.try_on(group, figures) is None)
        found += [(node, "the volume is larger than the maximumVolumeSize published there") for node in islice(limited, _EXCLUDED_SHOWN)]
    return tuple(sorted(found)[:_EXCLUDED_SHOWN])
