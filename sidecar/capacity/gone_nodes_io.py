"""Deletes the objects of this driver that nodes have left behind, on proof that such a node is gone: three answers of the API server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from sidecar.capacity.gone_nodes import MOST_OF_ONE, Suspects, first_pause, left_by, pause, selectors, share_of
from sidecar.kube.api import CAPACITIES, CSI_NODES, NODES, Resource, records
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.objects import CapacityRecord, Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)


_HAS_NODE: Final = "there is a Node of its name"
"""Its CSINode is late, or the list of them is old."""
_IS_BACK: Final = "there is a Node or a CSINode of its name again"
_OTHER_HAS_LABELS: Final = "another node has the labels of its topology"
_NOTHING_LEFT: Final = "what bears its mark does not say whose it is"
_WRITTEN_ANEW: Final = "somebody has written its objects meanwhile"
_DRY_RUN: Final = "this is a dry run"


class GoneNodes:
    """`look_for_ever` is a task. Where the role does not allow what it needs, it says so once and goes on, rarely."""

    def __init__(self, tools: Tools, *, driver: str, namespace: str, node: str) -> None:
        self._tools = tools
        self._kube = tools.kube
        self._namespace = namespace
        self._node = node
        self._ours = f"{names.CAPACITY_DRIVER_LABEL}={driver}"
        self._suspects = Suspects()
        self._nodes = 1
        """That have objects, as far as is known."""
        self._refusals = 0
        """Since it was allowed for the last time."""

    async def look_for_ever(self) -> None:
        await asyncio.sleep(first_pause(self._node))
        await self._safely(self._count)
        await asyncio.sleep(share_of(self._node) * pause(self._nodes, refusals=self._refusals))
        while True:
            await self._safely(self.look)
            await asyncio.sleep(pause(self._nodes, is_quiet=self._suspects.is_quiet, refusals=self._refusals))

    async def look(self) -> None:
        """What each object is stays with the server: there may be very many."""
        marks: set[str] = set()
        found: set[str] = set()
        async for mark, node in records(
            self._kube, CAPACITIES, _mark_and_node, cached=True, namespace=self._namespace, label_selector=self._ours
        ):
            marks.add(mark)
            found.add(node)
        self._nodes = len(marks)
        there = {name async for name in records(self._kube, CSI_NODES, lambda obj: str(obj["metadata"]["name"]), cached=True)}
        for node in self._suspects.due(found, there={*there, self._node}):
            self._suspects.asks(node)
            if why := await self._judge(node):
                self._suspects.stays(node, why)
            else:
                self._suspects.cleared(node)

    async def _count(self) -> None:
        """Of the first page of a list, which is enough to know that there are many."""
        page = await self._kube.list_page(CAPACITIES, namespace=self._namespace, label_selector=self._ours)
        self._nodes = len({_mark_and_node(obj)[0] for obj in page.items})

    async def _safely(self, doing: Callable[[], Awaitable[None]]) -> None:
        """After a failure there are as many nodes as before: if looks came sooner then, a server for which a list is too much would get
        more."""
        try:
            await doing()
        except Forbidden as error:
            if not self._refusals:
                log.warning(
                    "Capacity objects of nodes that are gone are hardly looked for: the role does not allow it. Those that the pod owns"
                    " (--capacity-ownerref-level=0) go with it",
                    extra={"fields": {"err": str(error)}},
                )
            self._refusals += 1
        except ApiError as error:
            log.debug("Nodes that are gone were not looked for", extra={"fields": {"err": str(error)}})
        else:
            if self._refusals:
                log.info("Capacity objects of nodes that are gone are looked for again")
            self._refusals = 0

    async def _judge(self, node: str) -> str:
        """Deletes what that node has left, if it is gone and no other node is where its objects say; else it says why not.

        They are read before the proof begins, and deleted as they were then: a node that joins meanwhile writes its own anew.
        """
        if not await self._is_absent(NODES, node):
            return _HAS_NODE
        mark = f"{names.CAPACITY_MANAGER_LABEL}={names.PEER}-{node}"
        page = await self._kube.list_page(CAPACITIES, namespace=self._namespace, label_selector=f"{self._ours},{mark}", limit=MOST_OF_ONE)
        left = [record for record in map(CapacityRecord.of, page.items) if left_by(record) == node]
        if not left:
            return _NOTHING_LEFT
        if not (await self._is_absent(NODES, node) and await self._is_absent(CSI_NODES, node)):
            return _IS_BACK
        for selector in selectors(left):
            page = await self._kube.list_page(NODES, label_selector=selector, limit=2)
            # This node itself may have had that name: then it publishes anew what these objects are about.
            if page.continue_token or any(obj["metadata"]["name"] != self._node for obj in page.items):
                return _OTHER_HAS_LABELS
        gone = 0
        for record in left:
            self._announce(node, record)
            gone += not self._tools.dry_run and await self._delete(record)
        if gone:
            return ""
        return _DRY_RUN if self._tools.dry_run else _WRITTEN_ANEW

    async def _is_absent(self, resource: Resource, name: str) -> bool:
        """Only if the API server says so in its own words: a proxy before it may answer 404 too."""
        try:
            await self._kube.get(resource, name)
        except NotFound as error:
            return error.reason == "NotFound"
        return False

    def _announce(self, node: str, record: CapacityRecord) -> None:
        fields = {"node": node, "class": record.class_name, "object": f"{record.namespace}/{record.name}"}
        why = "there is neither a Node nor a CSINode of that name, and no other node has the labels of its topology"
        log.info("Deleting the capacity of a node that is gone", extra={"fields": fields | {"why": why}})

    async def _delete(self, record: CapacityRecord) -> bool:
        """Whether it is gone now, and not published anew."""
        try:
            await self._kube.delete(
                CAPACITIES, record.name, namespace=record.namespace, uid=record.uid, resource_version=record.resource_version
            )
        except NotFound:
            return True
        except Conflict:
            return False
        return True


def _mark_and_node(obj: Json) -> tuple[str, str]:
    record = CapacityRecord.of(obj)
    return record.labels.get(names.CAPACITY_MANAGER_LABEL, ""), left_by(record)
