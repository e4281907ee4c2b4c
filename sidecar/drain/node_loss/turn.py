"""Decides which sidecar looks after gone nodes, and how often each looks: one has the Lease, the others look at it now and then.

From the moment in which a node is deleted until its loss is told, in the worst case, as long as requests are answered:

    60 s    until the one with the Lease lists the nodes again; a volume list and a few requests come on top
    440 s   where that one's own node is the one that was deleted: its Lease is deleted with it, and is taken by whoever looks next
    1,400 s where that one has died and its node stays: until its Lease has run out, which the others see by their own clocks

All looks together, with a thousand nodes: 2.5 requests a second of those that have not the Lease, and 0.02 of the one that has it.
"""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from sidecar.drain.leases import DURATION, Lease, LeaseView, Terms, identity
from sidecar.model import names

HOLDER_EVERY: Final = 60.0
SOON: Final = 10.0
"""While things are cleared away: each look takes one step with each of them."""
OTHERS_EVERY: Final = 400.0
SPREAD: Final = 0.1
"""Of a pause; by the name of the node, so that it is no throw of the dice."""
VOLUMES_EVERY: Final = 600.0
PATIENCE: Final = 60.0
"""Beyond the Lease's time: the API server answers late now and then."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The Lease of another one, as this process has seen it."""

    version: str
    since: float
    """Since when it has not changed, by this process's own clock: what time its holder writes into it says nothing."""


def selector(driver: str) -> str:
    return f"{names.NODE_LOSS_FOR}={driver}"


def seen(lease: Lease, before: Seen | None, *, now: float) -> Seen:
    return before if before is not None and before.version == lease.resource_version else Seen(lease.resource_version, now)


def view(
    lease: Lease | None, others: Seen | None, *, node: str, node_uid: str, driver: str, namespace: str, now: float, wall: float
) -> LeaseView:
    """For `leases.decide`. It goes with its holder's Node, so that it is free at once when that is deleted."""
    terms = Terms(
        name=names.node_loss(driver),
        namespace=namespace,
        labels={names.NODE_LOSS_FOR: driver},
        node=node,
        node_uid=node_uid,
        holder=identity(node_uid, driver),
    )
    silent = others is not None and now - others.since >= DURATION + PATIENCE
    return LeaseView(wall, terms, wanted=True, stored=lease, takeable="nobody has renewed it" if silent else "")


def pause(node: str, *, holds: bool, due_in: float = HOLDER_EVERY) -> float:
    """Seconds until the next look. `due_in`: until there is something to do."""
    return min(HOLDER_EVERY, max(SOON, due_in)) if holds else OTHERS_EVERY * (1.0 + SPREAD * share_of(node))


def after_failures(in_a_row: int) -> float:
    """Seconds until volumes are listed again: a list of all of them each minute would be too much for what may never succeed."""
    return min(HOLDER_EVERY * 2.0 ** min(in_a_row, 10), VOLUMES_EVERY)


def first_pause(node: str) -> float:
    """Nodes that start together do not all ask at once."""
    return HOLDER_EVERY * share_of(node)


def share_of(node: str) -> float:
    """A number from 0 up to 1, the same in every process."""
    return crc32(node.encode()) / 2**32
