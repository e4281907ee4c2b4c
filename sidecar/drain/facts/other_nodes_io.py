"""Reads the other nodes of the cluster: a list once a minute, and one by one those on whose staying a verdict depends."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.locations import VolumeLocator, stays
from sidecar.drain.facts.watched import TRUSTED
from sidecar.kube.api import NODES, KubeApi, records
from sidecar.model import nodes
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume

# If so many nodes that stayed a minute ago stay no longer, all are taken to be leaving.
_MOST: Final = 20
_QUESTION: Final = "the other nodes"


class OtherNodes:
    """One per process."""

    def __init__(self, kube: KubeApi, asking: Asking, own: str) -> None:
        self._kube = kube
        self._asking = asking
        self._own = own

    async def all(self, *, at_most: float = TRUSTED) -> tuple[Node, ...] | None:
        """As they were so many seconds ago at most. None: they could not be read."""
        too_old = self._asking.age(_QUESTION) >= at_most
        return await self._asking.ask(
            _QUESTION, self._list, trusted=max(at_most, TRUSTED), not_before=float("inf") if too_old else float("-inf")
        )

    async def confirmed(self, others: Iterable[Node], locator: VolumeLocator, volumes: Iterable[Volume]) -> tuple[Node, ...]:
        """For each of these volumes a node that stays is read anew, until one is found: of two that are emptied one right after the other,
        one at least learns of the other. What is not confirmed counts as leaving, and so does a node that cannot be read."""
        known = {other.name: other for other in others}
        read: dict[str, Node | None] = {}
        doubted: set[str] = set()
        for staying in {locator.others_that_stay(volume) for volume in volumes if locator.is_shared(volume)}:
            doubted.update(staying)
            for name in staying[:_MOST]:
                if name not in read:
                    read[name] = await self._anew(name)
                found = read[name]
                if found is not None and stays(found):
                    break
        return _with(known, read, doubted)

    async def _anew(self, name: str) -> Node | None:
        obj = await self._asking.ask(f"node {name}", lambda: self._kube.get(NODES, name), trusted=0.0)
        return None if obj is None else Node.of(obj)

    async def _list(self) -> tuple[Node, ...]:
        nodes = [node async for node in records(self._kube, NODES, Node.of, cached=True)]
        return tuple(node for node in nodes if node.name != self._own)


def _with(others: dict[str, Node], read: Mapping[str, Node | None], doubted: Iterable[str]) -> tuple[Node, ...]:
    """A node that was not read goes on to exist: volumes that it alone reaches are there."""
    leaving = {name: replace(others[name], ready=nodes.UNKNOWN) for name in doubted}
    found = {name: node for name, node in read.items() if node is not None}
    return tuple((others | leaving | found).values())
