"""Which nodes' objects may be left behind, and how often to look: pure. What is asked and deleted is in `gone_nodes_io`.

An object that the DaemonSet owns outlives its node, and the scheduler goes on sending pods by it. Its own publisher died with the node.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from sidecar.model import names
from sidecar.model.label_syntax import flaw_of_label
from sidecar.model.objects import CapacityRecord

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
MOST_AT_ONCE: Final = 20
"""Nodes that are asked about in one look: what must not happen, that all seem to be gone, is to show before much is deleted."""
MOST_OF_ONE: Final = 50
"""Objects of one node that are deleted in one look, for the same reason. They also take turns with the claims at our rate limit."""
SELDOM: Final = 16
"""Looks of one node from one question about a suspect to the next, at most."""
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


@dataclass(frozen=True, slots=True)
class _Question:
    """About a suspect that was not gone when it was asked about."""

    answer: str
    pause: int
    """In looks."""
    due: int
    """In which look it is asked again."""


class Suspects:
    """Nodes to ask about before anything is deleted, and when each is asked about again. It has no clock: it counts looks.

    Some are suspect for ever, such as nodes that were given another name. While the answer is the same, each pause is twice the one before.
    """

    def __init__(self) -> None:
        self._looks = 0
        self._last = ""
        self._asked: dict[str, _Question] = {}
        self._is_new = False

    def due(self, found: Iterable[str], *, there: Collection[str]) -> tuple[str, ...]:
        """Begins a look. `found`: the nodes that have objects; `there`: those that are known to be there.

        They begin behind the last one of the look before: where there are many, the others must have their turn.
        """
        self._looks += 1
        self._is_new = False
        suspect = {node for node in found if node and node not in there}
        # One that is there again, and goes later, is as new as any.
        self._asked = {node: question for node, question in self._asked.items() if node in suspect}
        due = (node for node in suspect if node not in self._asked or self._asked[node].due <= self._looks)
        return tuple(sorted(due, key=lambda node: (node <= self._last, node))[:MOST_AT_ONCE])

    def asks(self, node: str) -> None:
        """Before the answer: one that cannot be asked about must not keep the others from their turn."""
        self._last = node

    def stays(self, node: str, why: str) -> None:
        """It is not gone, or its objects may not be deleted."""
        before = self._asked.get(node)
        is_new = before is None or before.answer != why
        pause = 1 if before is None or is_new else min(2 * before.pause, SELDOM)
        self._asked[node] = _Question(why, pause, self._looks + pause)
        self._is_new |= is_new

    def cleared(self, node: str) -> None:
        """What it had left is deleted, or as much as one look may."""
        self._asked.pop(node, None)
        self._is_new = True

    @property
    def is_quiet(self) -> bool:
        """This look has told nothing new."""
        return not self._is_new


def selectors(records: Iterable[CapacityRecord]) -> tuple[str, ...]:
    """Where the scheduler believes that space to be: no other node may have these labels."""
    return tuple(dict.fromkeys(_selector(record.node_topology or {}) for record in records))


def pause(nodes: int, *, is_quiet: bool = False, refusals: int = 0) -> float:
    """Seconds until the next look of this node. `nodes`: how many have objects. All together look about once an hour, and every second hour
    while nothing changes. `refusals`: how often the role has not allowed it since it last did."""
    usual = HOUR * max(1, nodes) * (2.0 if is_quiet else 1.0)
    return max(usual, min(HOUR * 2.0 ** min(refusals, 10), DAY)) if refusals else usual


def first_pause(node: str) -> float:
    """Not at a start, which has enough to ask."""
    return HOUR * (0.25 + share_of(node))


def share_of(node: str) -> float:
    """Of the first pause: nodes that start together look at different times. Made from the name, for it is to be no throw of the dice."""
    return crc32(node.encode()) / 2**32


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
