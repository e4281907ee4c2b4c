"""The kubelets of all nodes: a pod that is bound to a node runs at once, and a pod that is deleted is gone at once."""

from collections.abc import Container

from sidecar.kube.api import NODES, PODS
from sidecar.model.objects import Json
from sidecar.simulation.stand_ins.stand_in_base import StandInBase

_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


class Kubelet:
    """`pods` is its loop."""

    def __init__(self, base: StandInBase, *, silent: Container[str] = ()) -> None:
        """`silent`: nodes whose kubelets do nothing."""
        self._base = base
        self._silent = silent
        self._pods = base.cache(PODS)
        self.pods = base.loop("kubelet", self._sync)
        base.wake(self.pods, PODS, lambda change: [change.key])
        if silent != ():
            base.wake(self.pods, NODES, lambda _: self._pods.keys())

    async def _sync(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not pod["spec"].get("nodeName") or pod["spec"]["nodeName"] in self._silent:
            return
        if pod["metadata"].get("deletionTimestamp"):
            meta = pod["metadata"]
            await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace_period_seconds=0)
        elif pod["status"]["phase"] == "Pending":
            await self._base.patch(PODS, pod, {"status": _running(pod["status"])}, subresource="status")


def _running(status: Json) -> Json:
    others = [item for item in status.get("conditions") or () if item["type"] not in _CONDITIONS]
    return {"phase": "Running", "conditions": [*others, *({"type": kind, "status": "True"} for kind in _CONDITIONS)]}
