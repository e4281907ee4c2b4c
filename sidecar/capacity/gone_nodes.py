"""Which nodes' objects may be left behind, and how often to look: pure. What is asked and deleted is in `gone_nodes_io`.

An object that the DaemonSet owns outlives its node, and the scheduler goes on sending pods by it. Its own publisher died with the node.
"""

from collections.abc import Collection, Iterable
from typing import Final
from zlib import crc32

from sidecar.frozen import frozen
from sidecar.model import names
from sidecar.model.objects import CapacityRecord

HOUR: Final = 3600.0
MOST_AT_ONCE: Final = 20
"""Nodes that are asked about in one look: what must not happen, that all seem to be gone, is to show before much is deleted."""


@frozen
class Suspect:
    """A node of which objects are there. It is asked about before any of them is deleted."""

    node: str
    records: tuple[CapacityRecord, ...]

    @property
    def segments(self) -> tuple[dict[str, str], ...]:
        """Where the scheduler believes that space to be: no node may have these labels."""
        found: list[dict[str, str]] = []
        for record in self.records:
            segment = dict(record.node_topology or {})
            if segment not in found:
                found.append(segment)
        return tuple(found)


def suspects(records: Iterable[CapacityRecord], *, nodes: Collection[str]) -> tuple[Suspect, ...]:
    """`nodes`: those that are known to be there.

    An object without labels in its selector speaks for every node, and one whose mark is a hash does not say whose it is.
    """
    by_node: dict[str, list[CapacityRecord]] = {}
    for record in records:
        node = names.manager_node(record.labels.get(names.CAPACITY_MANAGER_LABEL, ""))
        if node and node not in nodes and record.node_topology and not record.deleting:
            by_node.setdefault(node, []).append(record)
    return tuple(Suspect(node, tuple(by_node[node])) for node in sorted(by_node)[:MOST_AT_ONCE])


def pause(objects: int) -> float:
    """Seconds until the next look of this node. All nodes together look about once an hour, for each has an object at least."""
    return HOUR * max(1, objects)


def first_pause(node: str) -> float:
    """Not at a start, which has enough to ask."""
    return HOUR * (0.25 + share_of(node))


def share_of(node: str) -> float:
    """Of the first pause: nodes that start together look at different times. Made from the name, for it is to be no throw of the dice."""
    return crc32(node.encode()) / 2**32
