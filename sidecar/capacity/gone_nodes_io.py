"""Deletes the objects of this driver that nodes have left behind, on proof that such a node is gone: three answers of the API server."""

import asyncio
import logging

from sidecar.capacity.gone_nodes import MOST_OF_ONE, first_pause, left_by, pause, selectors, share_of, suspects
from sidecar.kube.api import CAPACITIES, CSI_NODES, NODES, Resource, records
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.objects import CapacityRecord, Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)


class GoneNodes:
    """`look_for_ever` is a task. It ends by itself where the role does not allow what it needs."""

    def __init__(self, tools: Tools, *, driver: str, namespace: str, node: str) -> None:
        self._tools = tools
        self._kube = tools.kube
        self._namespace = namespace
        self._node = node
        self._ours = f"{names.CAPACITY_DRIVER_LABEL}={driver}"
        self._last = ""
        """The suspect that was asked about last."""

    async def look_for_ever(self) -> None:
        await asyncio.sleep(first_pause(self._node))
        try:
            count = await self._count()
            due = share_of(self._node) * pause(count)
            while True:
                await asyncio.sleep(due)
                count = await self._look_safely(count)
                due = pause(count)
        except Forbidden as error:
            log.warning(
                "Capacity objects of nodes that are gone are not looked for: the role does not allow it. Those that the pod owns"
                " (--capacity-ownerref-level=0) go with it",
                extra={"fields": {"err": str(error)}},
            )

    async def look(self) -> int:
        """Returns how many objects there are. What each is stays with the server: there may be very many."""
        found = [
            node async for node in records(self._kube, CAPACITIES, _node, cached=True, namespace=self._namespace, label_selector=self._ours)
        ]
        there = {name async for name in records(self._kube, CSI_NODES, lambda obj: str(obj["metadata"]["name"]), cached=True)}
        for node in suspects(found, there={*there, self._node}, after=self._last):
            self._last = node  # before it is asked about: one that cannot be must not keep the others from their turn
            await self._judge(node)
        return len(found)

    async def _look_safely(self, count: int) -> int:
        """After a failure there are as many as before: if nodes came sooner then, a server for which a list is too much would get more."""
        try:
            return await self.look()
        except Forbidden:
            raise
        except ApiError as error:
            log.debug("Nodes that are gone were not looked for", extra={"fields": {"err": str(error)}})
            return count

    async def _count(self) -> int:
        """Of the first page of a list, which is enough to know that there are many."""
        try:
            return len((await self._kube.list_page(CAPACITIES, namespace=self._namespace, label_selector=self._ours)).items)
        except Forbidden:
            raise
        except ApiError:
            return 1

    async def _judge(self, node: str) -> None:
        """Deletes what that node has left, if it is gone and no other node is where its objects say.

        They are read before the proof begins, and deleted as they were then: a node that joins meanwhile writes its own anew.
        """
        if not await self._is_absent(NODES, node):
            return  # its CSINode is late, or the list of them is old
        mark = f"{names.CAPACITY_MANAGER_LABEL}={names.PEER}-{node}"
        page = await self._kube.list_page(CAPACITIES, namespace=self._namespace, label_selector=f"{self._ours},{mark}", limit=MOST_OF_ONE)
        left = [record for record in map(CapacityRecord.of, page.items) if left_by(record) == node]
        if not (await self._is_absent(NODES, node) and await self._is_absent(CSI_NODES, node)):
            return
        for selector in selectors(left):
            page = await self._kube.list_page(NODES, label_selector=selector, limit=2)
            # This node itself may have had that name: then it publishes anew what these objects are about.
            if page.continue_token or any(obj["metadata"]["name"] != self._node for obj in page.items):
                return
        for record in left:
            await self._delete(node, record)

    async def _is_absent(self, resource: Resource, name: str) -> bool:
        """Only if the API server says so in its own words: a proxy before it may answer 404 too."""
        try:
            await self._kube.get(resource, name)
        except NotFound as error:
            return error.reason == "NotFound"
        return False

    async def _delete(self, node: str, record: CapacityRecord) -> None:
        fields = {"node": node, "class": record.class_name, "object": f"{record.namespace}/{record.name}"}
        why = "there is neither a Node nor a CSINode of that name, and no other node has the labels of its topology"
        log.info("Deleting the capacity of a node that is gone", extra={"fields": fields | {"why": why}})
        if self._tools.dry_run:
            return
        try:
            await self._kube.delete(
                CAPACITIES, record.name, namespace=record.namespace, uid=record.uid, resource_version=record.resource_version
            )
        except (Conflict, NotFound):
            pass  # somebody publishes it again, or has deleted it


def _node(obj: Json) -> str:
    return left_by(CapacityRecord.of(obj))
