"""Where volumes could go that may leave this node: first-fit-decreasing over the pools of the other nodes.

Volumes of one pod go to one node, and nowhere if another volume of the pod has to stay. What a pool gives to one volume is gone for every
class that draws on it. Memory and processors are not looked at, so a place is where the data fits, not a promise of the scheduler. A node
is judged once for each kind of pods and classes, and found for a group by a tree over what is free, so that the whole stays linear in what
it is given.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from sidecar.drain.assessment import Place
from sidecar.drain.policy import quoted
from sidecar.drain.room import Figure, Figures, Room, Tree
from sidecar.drain.snapshot import Surroundings
from sidecar.drain.volumes import Held, stays
from sidecar.drain.words import NOT_YET, Intent, Policy, VolumeClass
from sidecar.model import names, nodes
from sidecar.model.nodes import Node, Pod, Toleration
from sidecar.model.objects import Class
from sidecar.model.topology import Segment, Term, allows

_EXCLUDED_SHOWN: Final = 10

_Wish = tuple[tuple[Toleration, ...], tuple[tuple[str, str], ...], tuple[Term, ...] | None]
"""What a pod asks of its node: tolerations, node selector, required affinity."""
_Kind = tuple[frozenset[_Wish], frozenset[str]]
"""The wishes of a group's pods and the classes of its volumes: groups of one kind have the same nodes to choose from."""


def places(held: Iterable[Held], *, surroundings: Surroundings, classes: Mapping[str, Class]) -> tuple[Place, ...]:
    """One for each group of volumes that may go."""
    market = _Market(surroundings, classes)
    groups = _groups(tuple(held))
    bound = [Place(group.names, "", 0, group.bound) for group in groups if group.bound]
    found = [(group, market.place(group)) for group in groups if not group.bound]
    return tuple(sorted((*bound, *(market.result(group, node) for group, node in found)), key=lambda place: place.volumes))


def may_go(held: Held) -> bool:
    return held.class_ in (VolumeClass.IN_USE, VolumeClass.IDLE) and held.fixed_policy in NOT_YET


def _keeps_pods(held: Held) -> bool:
    """It stays here, and nobody has said that it may vanish."""
    return held.pinned and held.fixed_policy not in (*NOT_YET, Policy.IGNORE)


@dataclass(frozen=True, slots=True)
class _Group:
    """Volumes that go to one node or to none, the largest first, and their pods."""

    volumes: tuple[Held, ...]
    kind: _Kind
    bound: tuple[tuple[str, str], ...]
    """The volumes that keep one of its pods here, and so all of it, with the reason; not more than are shown."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(item.name for item in self.volumes))

    @property
    def demand(self) -> tuple[tuple[str, int], ...]:
        return tuple((item.storage_class, item.bytes) for item in self.volumes)

    @property
    def room(self) -> Room:
        return Room(self.volumes[0].bytes, sum(item.bytes for item in self.volumes))


def _groups(held: Sequence[Held]) -> list[_Group]:
    """In the order in which they are placed. Two pods that share a volume go together."""
    volumes = [item for item in held if may_go(item)]
    parent = {item.name: item.name for item in volumes}
    first: dict[str, str] = {}
    for item in volumes:
        for pod in item.pods:
            parent[_root(parent, item.name)] = _root(parent, first.setdefault(pod.full_name, item.name))
    together: dict[str, list[Held]] = defaultdict(list)
    for item in volumes:
        together[_root(parent, item.name)].append(item)
    bound: dict[str, dict[str, str]] = defaultdict(dict)
    for item in filter(_keeps_pods, held):
        # Who is not evicted goes nowhere, and so keeps nothing from going.
        for pod in (pod for pod in item.pods if pod.full_name in first and not stays(pod)):
            why = f"it stays by its policy {_policies(item)}, and pod {pod.full_name} with it"
            bound[_root(parent, first[pod.full_name])].setdefault(item.name, why)
    groups = [_group(members, bound.get(root, {})) for root, members in together.items()]
    return sorted(groups, key=lambda group: (-group.room.total, group.names))


def _root(parent: dict[str, str], name: str) -> str:
    while parent[name] != name:
        parent[name] = parent[parent[name]]
        name = parent[name]
    return name


def _policies(held: Held) -> str:
    by_intent = {intent: resolved.policy for intent in Intent if (resolved := held.policy(intent))}
    return held.fixed_policy or " and ".join(f"{policy} ({intent})" for intent, policy in by_intent.items())


def _group(members: Iterable[Held], bound: Mapping[str, str]) -> _Group:
    volumes = tuple(sorted(members, key=lambda item: (-item.bytes, item.storage_class, item.name)))
    wishes = frozenset(_wish(pod) for item in volumes for pod in item.pods)
    classes = frozenset(item.storage_class for item in volumes)
    return _Group(volumes, (wishes, classes), tuple(islice(bound.items(), _EXCLUDED_SHOWN)))


def _wish(pod: Pod) -> _Wish:
    return pod.tolerations, tuple(sorted(pod.node_selector.items())), pod.affinity


@dataclass(frozen=True, slots=True)
class _Candidate:
    node: Node
    segment: Segment
    figures: Mapping[str, tuple[Figure, ...]]
    unfit: str
    """Why nothing may go there, whatever it is."""


@dataclass(frozen=True, slots=True)
class _Site:
    """What can be reached from one node or from several; the first by name stands for them."""

    node: str
    figures: Mapping[str, tuple[Figure, ...]]

    def room(self, figures: Figures) -> Room:
        pools: dict[int, int] = {}
        largest: float = 0
        for figure in (figure for several in self.figures.values() for figure in several):
            left = figures.left(figure)
            pools[figure.pool] = max(pools.get(figure.pool, 0), left)
            largest = max(largest, min(left, figure.limit))
        return Room(largest, sum(pools.values()))

    def try_on(self, group: _Group, figures: Figures) -> "_Attempt | None":
        """None where one of the volumes is larger than any may be."""
        taken: dict[int, int] = {}
        missing = 0
        for volume in group.volumes:
            options = [item for item in self.figures[volume.storage_class] if volume.bytes <= item.limit]
            if not options:
                return None
            figure = max(options, key=lambda item: figures.left(item) - taken.get(item.pool, 0))
            room = max(figures.left(figure) - taken.get(figure.pool, 0), 0)
            missing += max(volume.bytes - room, 0)
            taken[figure.pool] = taken.get(figure.pool, 0) + min(volume.bytes, room)
        return _Attempt(missing, taken)


@dataclass(frozen=True, slots=True)
class _Attempt:
    missing: int
    taken: Mapping[int, int]


@dataclass(slots=True)
class _Ground:
    """The nodes that come into question for one kind of groups."""

    sites: Sequence[_Site]
    excluded: Sequence[tuple[str, str]]
    tree: Tree
    maxima: tuple[float, float]
    """The smallest and the largest volume that may be the largest somewhere; infinity where nothing limits it."""
    start: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict)
    """By demand: where the last such group was placed. What was too small for it has not grown since."""
    by_room: Sequence[int] = ()
    """Sites by what is left in the end, the most first."""
    told: dict[tuple[tuple[str, int], ...], tuple[int, tuple[tuple[str, str], ...]]] = field(default_factory=dict)


class _Market:
    """All groups compete for the same pools."""

    def __init__(self, surroundings: Surroundings, classes: Mapping[str, Class]) -> None:
        self._figures = Figures(surroundings.capacities)
        self._classes = classes
        self._grounds: dict[_Kind, _Ground] = {}
        ordered = sorted(surroundings.nodes, key=lambda node: node.name)
        self._candidates = [_Candidate(node, Segment.of(node.labels), self._figures.of(node), _unfit(node)) for node in ordered]

    def place(self, group: _Group) -> str:
        """The node it goes to; empty if none has room."""
        ground = self._ground(group.kind)
        index = ground.tree.first(group.room, ground.start.get(group.demand, 0))
        while index is not None:
            attempt = ground.sites[index].try_on(group, self._figures)
            fits = attempt is not None and not attempt.missing
            self._figures.give(attempt.taken if attempt and fits else {})
            # Other kinds may have taken from it since it was last looked at.
            ground.tree[index] = ground.sites[index].room(self._figures)
            if fits:
                ground.start[group.demand] = index
                return ground.sites[index].node
            index = ground.tree.first(group.room, index + 1)
        ground.start[group.demand] = len(ground.sites)
        return ""

    def result(self, group: _Group, node: str) -> Place:
        """When all is placed: what is missing then, and on the node where it is least."""
        if node:
            return Place(group.names, node, 0, ())
        ground = self._ground(group.kind)
        if group.demand not in ground.told:
            ground.told[group.demand] = self._shortfall(ground, group), _excluded(ground, group, self._figures)
        return Place(group.names, "", *ground.told[group.demand])

    def _shortfall(self, ground: _Ground, group: _Group) -> int:
        if group.room.largest > ground.maxima[1]:
            return 0
        if not ground.by_room:
            for index, site in enumerate(ground.sites):
                ground.tree[index] = site.room(self._figures)
            ground.by_room = sorted(range(len(ground.sites)), key=lambda index: (-ground.tree[index].total, index))
        least: int | None = None
        for index in ground.by_room:
            if least is not None and least <= group.room.total - ground.tree[index].total:
                break
            attempt = ground.sites[index].try_on(group, self._figures)
            if attempt:
                # It was not placed, so something is missing even where it now looks otherwise: which pool a volume takes is a guess.
                missing = max(attempt.missing, 1)
                least = missing if least is None else min(least, missing)
        return least or 0

    def _ground(self, kind: _Kind) -> _Ground:
        if kind not in self._grounds:
            self._grounds[kind] = self._survey(*kind)
        return self._grounds[kind]

    def _survey(self, wishes: Set[_Wish], classes: Set[str]) -> _Ground:
        sites: dict[tuple[int, ...], _Site] = {}
        excluded = []
        for candidate in self._candidates:
            why = candidate.unfit or _unsuitable(candidate.node, wishes) or _unserved(candidate, classes, self._classes)
            if why:
                excluded.append((candidate.node.name, why))
                continue
            figures = {class_: candidate.figures[class_] for class_ in sorted(classes)}
            reached = tuple(sorted(figure.number for several in figures.values() for figure in several))
            sites.setdefault(reached, _Site(candidate.node.name, figures))
        found = list(sites.values())
        maxima = {item.limit for site in found for several in site.figures.values() for item in several} or {math.inf}
        return _Ground(found, excluded, Tree([site.room(self._figures) for site in found]), (min(maxima), max(maxima)))


def _unfit(node: Node) -> str:
    if node.deleting:
        return "it is being deleted"
    if node.ready != nodes.TRUE:
        return f"it is not ready (Ready={node.ready})"
    leaving = sorted(str(taint) for taint in node.taints if taint.key in (names.EVACUATE_TAINT, *names.RETIRING_TAINTS))
    if leaving:
        return f"it is being emptied itself (taint {leaving[0]})"
    noted = node.annotations.get(names.DRAIN_INTENT, "").strip()
    if noted:
        return f"it is being emptied itself (annotation {names.DRAIN_INTENT}={quoted(noted)})"
    return "it is cordoned" if node.cordoned else ""


def _unsuitable(node: Node, wishes: Set[_Wish]) -> str:
    for taint in sorted(node.taints, key=str):
        keeps_out = taint.effect in (nodes.NO_SCHEDULE, nodes.NO_EXECUTE)
        tolerated = wishes and all(any(toleration.covers(taint) for toleration in tolerations) for tolerations, _, _ in wishes)
        if keeps_out and not tolerated:
            return f"its taint {taint} is not tolerated"
    if any(node.labels.get(key) != value for _, selector, _ in wishes for key, value in selector):
        return "the pod's node selector leaves it out"
    if any(affinity is not None and not any(term.matches(node.name, node.labels) for term in affinity) for _, _, affinity in wishes):
        return "the pod's node affinity leaves it out"
    return ""


def _unserved(candidate: _Candidate, wanted: Set[str], classes: Mapping[str, Class]) -> str:
    for name in sorted(wanted):
        class_ = classes.get(name)
        if class_ is None:
            return f"StorageClass {name!r} does not exist"
        if class_.allowed and not allows(class_.allowed, candidate.segment):
            return f"allowedTopologies of StorageClass {name!r} leave it out"
        if name not in candidate.figures:
            return f"no capacity is published there for StorageClass {name!r}"
    return ""


def _excluded(ground: _Ground, group: _Group, figures: Figures) -> tuple[tuple[str, str], ...]:
    """The first ones by name, those included that limit the size of a volume too much."""
    found = list(ground.excluded[:_EXCLUDED_SHOWN])
    if group.room.largest > ground.maxima[0]:
        limited = (site.node for site in ground.sites if site.try_on(group, figures) is None)
        found += [(node, "the volume is larger than the maximumVolumeSize published there") for node in islice(limited, _EXCLUDED_SHOWN)]
    return tuple(sorted(found)[:_EXCLUDED_SHOWN])
