"""The DaemonSet controller: one pod on each node that matches, made again when it is gone; none without its DaemonSet.

Pods are put on their nodes here and not by the scheduler, and a pod's name tells its node instead of being random, so that
one is never made twice. Not here: tolerations, rolling updates and the status.
"""

import copy

from sidecar.kube.api import DAEMON_SETS
from hack.sim.stand_ins.stand_in_base import StandInBase, daemon_set_of, sides
from sidecar.kube.api import NODES, PODS
from sidecar.model.objects import Json


class DaemonSetPods:
    """`sets` is its loop."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._sets, self._pods, self._nodes = base.cache(DAEMON_SETS), base.cache(PODS), base.cache(NODES)
        self.sets = base.loop("daemon sets", self._sync)
        base.wake(self.sets, DAEMON_SETS, lambda change: [change.key])
        base.wake(self.sets, PODS, lambda change: [key for pod in sides(change) for key in daemon_set_of(pod)])
        base.wake(self.sets, NODES, lambda _: self._sets.keys())

    async def _sync(self, key: str) -> None:
        daemon_set = self._sets.get(key)
        wanted = self._wanted(daemon_set) if daemon_set else set()
        pods = self._pods.by_index("daemon set", key)
        for pod in pods:
            if not _owns(daemon_set, pod) or (self._is_there(pod) and pod["spec"]["nodeName"] not in wanted):
                await self._remove(pod)
        if daemon_set is not None:
            for node in sorted(wanted - {pod["spec"].get("nodeName") for pod in pods}):
                await self._base.api.create(PODS, _pod(daemon_set, node), namespace=daemon_set["metadata"]["namespace"])

    def _wanted(self, daemon_set: Json) -> set[str]:
        if daemon_set["metadata"].get("deletionTimestamp"):
            return set()
        selector = daemon_set["spec"]["template"]["spec"].get("nodeSelector") or {}
        matching = (node["metadata"] for node in self._nodes.values())
        return {meta["name"] for meta in matching if selector.items() <= (meta.get("labels") or {}).items()}

    def _is_there(self, pod: Json) -> bool:
        """Pods of a node that is gone are left alone: taking them away is the pod garbage collector's work, a minute later."""
        return pod["spec"].get("nodeName") in self._nodes

    async def _remove(self, pod: Json) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            meta = pod["metadata"]
            await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])


def _owns(daemon_set: Json | None, pod: Json) -> bool:
    owners = {owner["uid"] for owner in pod["metadata"]["ownerReferences"]}
    return daemon_set is not None and daemon_set["metadata"]["uid"] in owners


def _pod(daemon_set: Json, node: str) -> Json:
    template, meta = copy.deepcopy(daemon_set["spec"]["template"]), daemon_set["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": meta["name"], "uid": meta["uid"]}
    return {
        "metadata": {
            "name": f"{meta['name']}-{node}",
            "labels": (template.get("metadata") or {}).get("labels") or {},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": template["spec"] | {"nodeName": node},
    }
