"""The pod garbage collector: every 20 s it takes away pods that nobody ends any more, whatever their grace period.

Pods of a node that has not existed for 40 s, those that are to end on a node that is out of service and not ready, and those that are to
end without ever having had a node. They are marked as failed first. Not here: old pods that have ended.
"""

import asyncio
from typing import Final

from hack.sim.stand_ins.stand_in_base import StandInBase
from sidecar.kube.api import NODES, PODS
from sidecar.kube.errors import NotFound
from sidecar.model import nodes
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

EVERY: Final = 20.0
_QUARANTINE: Final = 40.0
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_ALL: Final = "all pods"
_BY_COLLECTOR: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}


class PodGarbageCollector:
    """`rounds` is its loop."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._pods, self._nodes = base.cache(PODS), base.cache(NODES)
        self._missing_since: dict[str, float] = {}
        """By name of a node."""
        self.rounds = base.loop("pod garbage", self._round)
        self.rounds.add(_ALL)

    async def _round(self, _: str) -> float:
        now, pods = self._base.clock(), self._pods.values()
        named = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
        missing = {name for name in named if name not in self._nodes}
        self._missing_since = {name: self._missing_since.get(name, now) for name in sorted(missing)}
        gone = {name for name, since in self._missing_since.items() if now - since >= _QUARANTINE and await self._is_gone(name)}
        doomed = [(pod, pod["spec"].get("nodeName") in gone) for pod in pods]
        doomed = [(pod, orphaned) for pod, orphaned in doomed if orphaned or self._is_to_end(pod)]
        await asyncio.gather(*(self._remove(pod, orphaned=orphaned) for pod, orphaned in doomed))
        return now + EVERY

    async def _is_gone(self, node: str) -> bool:
        """By the word of the API server: the cache may be behind."""
        try:
            await self._base.api.get(NODES, node)
        except NotFound:
            return True
        return False

    def _is_to_end(self, pod: Json) -> bool:
        if not pod["metadata"].get("deletionTimestamp"):
            return False
        name = pod["spec"].get("nodeName")
        if not name:
            return True
        found = self._nodes.get(name)
        if found is None:
            return False
        node = Node.of(found)
        return node.ready != nodes.TRUE and any(taint.key == _OUT_OF_SERVICE for taint in node.taints)

    async def _remove(self, pod: Json, *, orphaned: bool) -> None:
        status, meta = pod.get("status") or {}, pod["metadata"]
        try:
            if status.get("phase") not in ("Succeeded", "Failed"):
                others = [item for item in status.get("conditions") or () if item["type"] != _BY_COLLECTOR["type"]]
                conditions = [*others, _BY_COLLECTOR] if orphaned else others
                failed = {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Failed", "conditions": conditions}}
                await self._base.patch(PODS, pod, failed, subresource="status")
            await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], grace_period_seconds=0)
        except NotFound:
            pass  # it went meanwhile
