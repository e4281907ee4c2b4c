"""Which nodes' objects may be left behind, and how often to look: pure. What is asked and deleted is in `gone_nodes_io`.

An object that the DaemonSet owns outlives its node, and the scheduler goes on sending pods by it. Its own publisher died with the node.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from zlib import crc32

from sidecar.model import names
from sidecar.model.label_syntax import flaw_of_label
from sidecar.model.objects import CapacityRecord

HOUR: Final = 3600.0
MOST_AT_ONCE: Final = 20
"""Nodes that are asked about in one look: what must not happen, that all seem to be gone, is to show before much is deleted."""
MOST_OF_ONE: Final = 50
"""Objects of one node that are deleted in one look, for the same reason. They also take turns with the claims at our rate limit."""
_MOST_LABELS: Final = 16
"""Of a topology. A request that asks for very many is refused by servers, and by proxies before them."""


def left_by(record: CapacityRecord) -> str:
    """The node that the object is deleted with, if that is gone. Empty: it is deleted with none.

    An object without labels in its selector speaks for every node; no node can be asked for by what is no label; and a mark that is a hash
    does not say whose it is.
    """
    topology = record.node_topology
    if record.deleting or not topology or len(topology) > _MOST_LABELS:
        return ""
    if any(flaw_of_label(key, value) for key, value in topology.items()):
        return ""
    return names.manager_node(record.labels.get(names.CAPACITY_MANAGER_LABEL, ""))


def suspects(found: Iterable[str], *, there: Collection[str], after: str = "") -> tuple[str, ...]:
    """Nodes to ask about before anything is deleted. `found`: those that have objects; `there`: those that are known to be there.

    They begin behind `after`, the last one of the look before: some may be suspect for ever, such as nodes that were given another name,
    and the others must have their turn.
    """
    unknown = {node for node in found if node and node not in there}
    return tuple(sorted(unknown, key=lambda node: (node <= after, node))[:MOST_AT_ONCE])


def selectors(records: Iterable[CapacityRecord]) -> tuple[str, ...]:
    """Where the scheduler believes that space to be: no other node may have these labels."""
    return tuple(dict.fromkeys(_selector(record.node_topology or {}) for record in records))


def pause(objects: int) -> float:
    """Seconds until the next look of this node. All nodes together look about once an hour, for each has an object at least."""
    return HOUR * max(1, objects)


def first_pause(node: str) -> float:
    """Not at a start, which has enough to ask."""
    return HOUR * (0.25 + share_of(node))


def share_of(node: str) -> float:
    """Of the first pause: nodes that start together look at different times. Made from the name, for it is to be no throw of the dice."""
    return crc32(node.encode()) / 2**32


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
