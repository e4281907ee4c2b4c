"""Who makes the gate's pods: the Deployment controller, the scheduler and the garbage collector, for these pods alone.

A guard pod is put on its node here and not by the simulated scheduler, which does not know affinity.
"""

import copy

from hack.sim.stand_ins import StandInBase
from hack.sim.stand_ins.stand_in_base import owners_of, sides
from sidecar.kube.api import DEPLOYMENTS, NODES, PODS
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json


class Guards:
    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._deployments, self._pods, self._nodes = base.cache(DEPLOYMENTS), base.cache(PODS), base.cache(NODES)
        self._serial = 0
        loop = base.loop("guards", self._sync)
        base.wake(loop, DEPLOYMENTS, lambda change: [change.key])
        base.wake(loop, PODS, lambda change: [key for pod in sides(change) for key in owners_of(pod, "Deployment")])
        base.wake(loop, NODES, lambda _: self._deployments.keys())

    async def _sync(self, key: str) -> float | None:
        deployment, pods = self._deployments.get(key), [pod for pod in self._pods.values() if key in owners_of(pod, "Deployment")]
        if deployment is None or deployment["metadata"].get("deletionTimestamp"):
            for meta in (pod["metadata"] for pod in pods):
                if not meta.get("deletionTimestamp"):
                    await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
            return None
        if not any(not pod["metadata"].get("deletionTimestamp") for pod in pods) and (node := self._place(deployment)):
            self._serial += 1
            await self._base.api.create(PODS, self._pod(deployment, node), namespace=deployment["metadata"]["namespace"])
        return None

    def _pod(self, deployment: Json, node: str) -> Json:
        template, meta = copy.deepcopy(deployment["spec"]["template"]), deployment["metadata"]
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"], "controller": True}
        labels = (template.get("metadata") or {}).get("labels") or {}
        made = {"name": f"{meta['name']}-{self._serial}", "labels": labels, "ownerReferences": [owner]}
        return {"metadata": made, "spec": template["spec"] | {"nodeName": node}}

    def _place(self, deployment: Json) -> str:
        spec = deployment["spec"]["template"]["spec"]
        affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        name = str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
        node = self._nodes.get(name)
        return name if node and Pod.of({"metadata": {"name": name}, "spec": spec}).tolerates(Node.of(node).taints) else ""
