"""Which nodes are evacuated at a time: as many leases as there may be nodes, and whose turn it is to take one.

A node that waits writes nothing but its own label and start, where the others see it. Those whose evacuation is in progress come
first (they had a slot and were away for too long), then the oldest, then by name. Two nodes that reckon differently meet at the
lease: one of them is told that it exists already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from types import MappingProxyType
from typing import Final

from sidecar.drain import instants, leases
from sidecar.drain.leases import RENEWED_EVERY, Lease
from sidecar.drain.signals import State
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

# How long the one whose turn it is may leave a slot free before the next in the order takes it.
_PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Contender:
    """A node whose evacuation waits or is in progress; smaller ones come first."""

    later: bool
    """It waits, and had no slot yet."""
    started_at: float
    name: str
    uid: str


def contenders(nodes: Iterable[Node], driver: str) -> tuple[Contender, ...]:
    """All that bear the marks of it, in their order. A start that cannot be read counts as later than any other."""
    label, start = names.of_driver(driver, names.EVACUATION_STATE), names.of_driver(driver, names.EVACUATION_STARTED_AT)
    found = []
    for node in nodes:
        state = node.labels.get(label)
        if state in (State.PENDING, State.IN_PROGRESS):
            at = instants.to_seconds(node.annotations.get(start, ""))
            found.append(Contender(state == State.PENDING, float("inf") if at is None else at, node.name, node.uid))
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class SlotsView:
    """All that the rule looks at."""

    now: float
    """Wall clock."""
    driver: str
    node: str
    node_uid: str
    namespace: str
    limit: int
    """How many nodes at a time; 0: any number."""
    wanted: bool
    """This node's evacuation waits or is in progress."""
    leases: tuple[Lease, ...]
    """Those of this driver; of any other name they are passed over."""
    contenders: tuple[Contender, ...]
    unchanged_since: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By name of a lease: since when this process has seen its resourceVersion. Where it is known, no clock of another node is trusted."""
    free_since: float | None = None
    """Since when this process has seen a slot free that it may not take yet; `WaitFor.free` says whether one is."""


@dataclass(frozen=True, slots=True)
class NoLimit:
    """Any number of nodes may be evacuated at a time."""

    why: str = "any number of nodes may be evacuated at a time"


@dataclass(frozen=True, slots=True)
class NotWanted:
    """This node needs none and has none."""

    why: str = "this node needs no slot"


@dataclass(frozen=True, slots=True)
class Take:
    """Create the lease, or replace the one that has run out, guarded by its resourceVersion. A conflict means that another node has it."""

    name: str
    body: Json
    replaces: bool
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """This node has one. Look again at that time, to renew it."""

    name: str
    until: float
    why: str


@dataclass(frozen=True, slots=True)
class Renew:
    """This node has one: replace the lease, guarded by its resourceVersion."""

    name: str
    body: Json
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Delete the lease, on condition that it still is this one."""

    lease: Lease
    why: str


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Others come first. Look again at that time, or when a lease or node changes."""

    position: int
    """1 for the next in turn."""
    holders: tuple[str, ...]
    """Nodes that have the slots."""
    ahead: tuple[str, ...]
    """Nodes that wait and come first."""
    free: bool
    """There is a free slot, left to one that comes first."""
    until: float
    why: str


Decision = NoLimit | NotWanted | Take | Hold | Renew | Release | WaitFor


def decide(view: SlotsView) -> Decision:
    """A node keeps the slot it has for as long as it needs one, whatever the limit is by now."""
    mine = tuple(sorted((lease for lease in _ours(view) if lease.holder == identity(view)), key=lambda lease: lease.name))
    if not view.wanted or view.limit == 0:
        idle = NotWanted() if not view.wanted else NoLimit()
        return Release(mine[0], idle.why) if mine else idle
    if len(mine) > 1:
        return Release(mine[1], f"this node has {mine[0].name} too")
    return _keep(view, mine[0]) if mine else _queue(view)


def identity(view: SlotsView) -> str:
    return leases.identity(view.node_uid, view.driver)


def selector(driver: str) -> str:
    """The label selector that finds the leases."""
    return f"{names.SLOT_FOR}={driver}"


def _ours(view: SlotsView) -> Iterable[Lease]:
    prefix, suffix = names.evacuation_slot(0, view.driver).split("0", 1)
    return (lease for lease in view.leases if lease.name.removeprefix(prefix).removesuffix(suffix).isdecimal())


def _keep(view: SlotsView, lease: Lease) -> Hold | Renew:
    if lease.is_fresh(view.now):
        return Hold(lease.name, lease.renewed + RENEWED_EVERY, f"this node has the slot {lease.name}")
    return Renew(lease.name, _body(view, lease.name, lease.resource_version), f"the slot {lease.name} is renewed")


def _queue(view: SlotsView) -> Take | WaitFor:
    held = {lease.name: lease for lease in _ours(view) if lease.holder and not _run_out(view, lease)}
    ahead = _ahead(view, {lease.holder for lease in held.values()})
    free = _free(view, held, most=len(ahead) + 1)
    if len(ahead) < len(free):
        return _take(view, free[len(ahead)], "it is this node's turn")
    position = len(ahead) - len(free) + 1
    since = view.now if view.free_since is None else view.free_since
    if free and view.now >= since + position * _PATIENCE:
        return _take(view, free[-1], f"none of {', '.join(ahead)} has taken the slot that is free")
    holders = tuple(sorted(lease.node or lease.holder for lease in held.values()))
    until = since + position * _PATIENCE if free else view.now + _PATIENCE
    return WaitFor(position, holders, ahead, bool(free), until, _why(position, holders, ahead))


def _free(view: SlotsView, held: Mapping[str, Lease], *, most: int) -> list[str]:
    """The first of them: a limit may be larger than any list of names."""
    slots = (names.evacuation_slot(index, view.driver) for index in count())
    return list(islice((name for name in slots if name not in held), min(most, max(0, view.limit - len(held)))))


def _ahead(view: SlotsView, holders: set[str]) -> tuple[str, ...]:
    """Those in the order before this node, as far as they wait. A node that is not in it yet comes last."""
    waiting = [item for item in sorted(view.contenders) if leases.identity(item.uid, view.driver) not in holders]
    mine = next((place for place, item in enumerate(waiting) if item.uid == view.node_uid), len(waiting))
    return tuple(item.name for item in waiting[:mine])


def _why(position: int, holders: tuple[str, ...], ahead: tuple[str, ...]) -> str:
    being = f"being evacuated: {', '.join(holders) or 'none'}"
    return f"place {position} in the queue; {being}" + (f"; before this node: {', '.join(ahead)}" if ahead else "")


def _run_out(view: SlotsView, lease: Lease) -> bool:
    seen = view.unchanged_since.get(lease.name, 0.0)
    return view.now >= max(lease.renewed, seen) + lease.duration


def _take(view: SlotsView, name: str, why: str) -> Take:
    stored = next((lease for lease in view.leases if lease.name == name), None)
    return Take(name, _body(view, name, stored.resource_version if stored else ""), stored is not None, why)


def _body(view: SlotsView, name: str, resource_version: str) -> Json:
    return leases.body(
        name,
        namespace=view.namespace,
        labels={names.SLOT_FOR: view.driver},
        node=view.node,
        node_uid=view.node_uid,
        holder=identity(view),
        now=view.now,
        resource_version=resource_version,
    )
