"""The pod garbage collector: every 20 s it takes away pods of a node that has not existed for 40 s, whatever their grace period.

They are marked as failed first. Not here: nodes out of service, pods that are to end and never had a node, old pods that have ended.
"""

import asyncio
from typing import Final

from hack.sim.stand_ins.stand_in_base import StandInBase
from sidecar.kube.api import NODES, PODS
from sidecar.kube.errors import NotFound
from sidecar.model.objects import Json

EVERY: Final = 20.0
_QUARANTINE: Final = 40.0
_ALL: Final = "all pods"
_WHY: Final = {"reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}
_BY_COLLECTOR: Final = {"type": "DisruptionTarget", "status": "True", **_WHY}


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
        await asyncio.gather(*(self._remove(pod) for pod in pods if pod["spec"].get("nodeName") in gone))
        return now + EVERY

    async def _is_gone(self, node: str) -> bool:
        """By the word of the API server: the cache may be behind."""
        try:
            await self._base.api.get(NODES, node)
        except NotFound:
            return True
        return False

    async def _remove(self, pod: Json) -> None:
        status, meta = pod.get("status") or {}, pod["metadata"]
        try:
            if status.get("phase") not in ("Succeeded", "Failed"):
                others = [item for item in status.get("conditions") or () if item["type"] != _BY_COLLECTOR["type"]]
                failed = {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Failed", "conditions": [*others, _BY_COLLECTOR]}}
                await self._base.patch(PODS, pod, failed, subresource="status")
            await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], grace_period_seconds=0)
        except NotFound:
            pass  # it went meanwhile
