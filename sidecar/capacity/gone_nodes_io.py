"""Deletes the objects of this driver that nodes have left behind, on proof that such a node is gone: three answers of the API server."""

import asyncio
import logging
from collections.abc import Mapping

from sidecar.capacity.gone_nodes import Suspect, first_pause, pause, share_of, suspects
from sidecar.kube.api import CAPACITIES, CSI_NODES, NODES, find, records
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.objects import CapacityRecord
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

    async def look_for_ever(self) -> None:
        await asyncio.sleep(first_pause(self._node))
        try:
            due = share_of(self._node) * pause(await self._count())
            while True:
                await asyncio.sleep(due)
                due = pause(await self._look_safely())
        except Forbidden as error:
            log.warning(
                "Capacity objects of nodes that are gone are not looked for: the role does not allow it. Those that the pod owns"
                " (--capacity-ownerref-level=0) go with it",
                extra={"fields": {"err": str(error)}},
            )

    async def look(self) -> int:
        """Returns how many objects there are."""
        found = [
            record
            async for record in records(
                self._kube, CAPACITIES, CapacityRecord.of, cached=True, namespace=self._namespace, label_selector=self._ours
            )
        ]
        there = {name async for name in records(self._kube, CSI_NODES, lambda obj: str(obj["metadata"]["name"]), cached=True)}
        for suspect in suspects(found, nodes={*there, self._node}):
            if await self._is_gone(suspect):
                for record in suspect.records:
                    await self._delete(suspect.node, record)
        return len(found)

    async def _look_safely(self) -> int:
        try:
            return await self.look()
        except Forbidden:
            raise
        except ApiError as error:
            log.debug("Nodes that are gone were not looked for", extra={"fields": {"err": str(error)}})
            return 1

    async def _count(self) -> int:
        """Of the first page of a list, which is enough to know that there are many."""
        try:
            return len((await self._kube.list_page(CAPACITIES, namespace=self._namespace, label_selector=self._ours)).items)
        except Forbidden:
            raise
        except ApiError:
            return 1

    async def _is_gone(self, suspect: Suspect) -> bool:
        for resource in (NODES, CSI_NODES):
            if await find(self._kube, resource, suspect.node) is not None:
                return False
        for segment in suspect.segments:
            if (await self._kube.list_page(NODES, label_selector=_selector(segment))).items:
                return False
        return True

    async def _delete(self, node: str, record: CapacityRecord) -> None:
        fields = {"node": node, "class": record.class_name, "object": f"{record.namespace}/{record.name}"}
        why = "there is neither a Node nor a CSINode of that name, and no node has the labels of its topology"
        log.info("Deleting the capacity of a node that is gone", extra={"fields": fields | {"why": why}})
        if self._tools.dry_run:
            return
        try:
            await self._kube.delete(
                CAPACITIES, record.name, namespace=record.namespace, uid=record.uid, resource_version=record.resource_version
            )
        except (Conflict, NotFound):
            pass  # somebody publishes it again, or has deleted it


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
