"""Decides which nodes are evacuated at the same time: there are as many slots as there may be such nodes, and each slot is a lease.

A node that waits writes nothing but its own label and start, where the others see it. Those whose evacuation is in progress come
first (they had a slot and were away for too long), then the oldest, then by name. Two nodes that find the same slot free meet at its
lease: the API server tells one of them that it exists already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from types import MappingProxyType
from typing import Final

from sidecar.drain import leases
from sidecar.drain.facts.own_notes import State
from sidecar.drain.leases import Lease, LeaseView, NotWanted, Terms
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node

# How long a node may leave a slot free that is its own by the order, before the next one takes it: its sidecar may be away.
_PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Contender:
    """A node whose evacuation waits or is in progress. Contenders are sorted by these fields in this order."""

    later: bool
    """It waits and has had no slot yet."""
    started_at: float
    name: str
    uid: str


def contenders(nodes: Iterable[Node], driver: str) -> tuple[Contender, ...]:
    """The nodes that are marked as waiting or in progress, in their order. A start that cannot be read counts as the latest."""
    label, start = names.of_driver(driver, names.EVACUATION_STATE), names.of_driver(driver, names.EVACUATION_STARTED_AT)
    found = []
    for node in nodes:
        state = node.labels.get(label)
        if state in (State.PENDING, State.IN_PROGRESS):
            at = timestamps.to_seconds(node.annotations.get(start, ""))
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
    """How many nodes at the same time; 0: any number."""
    wanted: bool
    """This node's evacuation waits or is in progress."""
    leases: tuple[Lease, ...]
    """All that are labelled for this driver; those whose names are not slots' are passed over."""
    contenders: tuple[Contender, ...]
    unchanged_for: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By name of a lease: for how many seconds this process has seen this resourceVersion of it. The date in it says nothing: another
    node's clock wrote it, and this node's clock may be set while it waits."""
    free_for: float = 0.0
    """For how many seconds this process has seen a slot free that it may not take yet (`WaitFor.free`)."""


@dataclass(frozen=True, slots=True)
class NoLimit:
    """Any number of nodes may be evacuated at the same time, so nobody needs a slot."""

    why: str = "any number of nodes may be evacuated at the same time"


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Others come first. Look again at that time, or when a lease or node changes."""

    position: int
    """1 for the node that is next."""
    holders: tuple[str, ...]
    """Nodes that have the slots."""
    ahead: tuple[str, ...]
    """Nodes that wait and come first."""
    free: bool
    """There is a free slot, left to one that comes first."""
    until: float
    why: str


Decision = NoLimit | WaitFor | leases.Decision


def decide(view: SlotsView) -> Decision:
    """A node keeps the slot it has for as long as it needs one, whatever the limit is by now."""
    me = leases.identity(view.node_uid, view.driver)
    mine = tuple(sorted((lease for lease in _ours(view) if lease.holder == me), key=lambda lease: lease.name))
    if len(mine) > 1 and view.wanted and view.limit > 0:
        return leases.release(mine[1], f"this node has {mine[0].name} too")
    if mine:
        return _lease(view, mine[0].name, wanted=view.wanted and view.limit > 0)
    if not view.wanted:
        return NotWanted()
    return _queue(view) if view.limit > 0 else NoLimit()


def selector(driver: str) -> str:
    """The label selector that finds the leases."""
    return f"{names.SLOT_FOR}={driver}"


def _ours(view: SlotsView) -> Iterable[Lease]:
    prefix, suffix = names.evacuation_slot(0, view.driver).split("0", 1)
    return (lease for lease in view.leases if lease.name.removeprefix(prefix).removesuffix(suffix).isdecimal())


def _queue(view: SlotsView) -> Decision:
    held = {lease.name: lease for lease in _ours(view) if lease.holder and not _run_out(view, lease)}
    ahead = _ahead(view, {lease.holder for lease in held.values()})
    free = _free(view, held, most=len(ahead) + 1)
    if len(ahead) < len(free):
        return _lease(view, free[len(ahead)], takeable="it is this node's turn")
    position = len(ahead) - len(free) + 1
    if free and view.free_for >= position * _PATIENCE:
        return _lease(view, free[-1], takeable=f"none of {', '.join(ahead)} has taken the slot that is free")
    holders = tuple(sorted(lease.node or lease.holder for lease in held.values()))
    until = view.now + (position * _PATIENCE - view.free_for if free else _PATIENCE)
    return WaitFor(position, holders, ahead, bool(free), until, _why(position, holders, ahead))


def _free(view: SlotsView, held: Mapping[str, Lease], *, most: int) -> list[str]:
    """The first of them: a limit may be larger than any list of names."""
    slots = (names.evacuation_slot(index, view.driver) for index in count())
    return list(islice((name for name in slots if name not in held), min(most, max(0, view.limit - len(held)))))


def _ahead(view: SlotsView, holders: set[str]) -> tuple[str, ...]:
    """The nodes that wait and come before this one. If this one is not among the contenders yet, it comes last."""
    waiting = [item for item in sorted(view.contenders) if leases.identity(item.uid, view.driver) not in holders]
    mine = next((place for place, item in enumerate(waiting) if item.uid == view.node_uid), len(waiting))
    return tuple(item.name for item in waiting[:mine])


def _why(position: int, holders: tuple[str, ...], ahead: tuple[str, ...]) -> str:
    being = f"being evacuated: {', '.join(holders) or 'none'}"
    return f"place {position} in the queue; {being}" + (f"; before this node: {', '.join(ahead)}" if ahead else "")


def _run_out(view: SlotsView, lease: Lease) -> bool:
    return view.unchanged_for.get(lease.name, 0.0) >= lease.term


def _lease(view: SlotsView, name: str, *, wanted: bool = True, takeable: str = "") -> leases.Decision:
    """What is to be done with the lease of a slot that this node has, or may have."""
    labels, holder = {names.SLOT_FOR: view.driver}, leases.identity(view.node_uid, view.driver)
    terms = Terms(name, view.namespace, labels, view.node, view.node_uid, holder)
    stored = next((lease for lease in view.leases if lease.name == name), None)
    return leases.decide(LeaseView(view.now, terms, wanted=wanted, stored=stored, takeable=takeable))
