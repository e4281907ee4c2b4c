"""Who makes the gate's pods again, and the bodies of workloads.

A guard pod is put on its node here and not by the scheduler, which does not know affinity.
"""

import copy
from typing import Final

from hack.sim.stand_ins import StandInBase
from hack.sim.stand_ins.stand_in_base import sides
from sidecar.kube.api import DEPLOYMENTS, NODES, PODS, Resource
from sidecar.kube.store import Store
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json

_STATEFUL_SET: Final = "StatefulSet"
_DEPLOYMENT: Final = "Deployment"


class Guards:
    """The Deployment controller, the scheduler and the garbage collector, for the gate's pods alone."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._deployments, self._pods, self._nodes = base.cache(DEPLOYMENTS), base.cache(PODS), base.cache(NODES)
        self._serial = 0
        loop = base.loop("guards", self._sync)
        base.wake(loop, DEPLOYMENTS, lambda change: [change.key])
        base.wake(loop, PODS, lambda change: [key for pod in sides(change) for key in _owner(pod, _DEPLOYMENT)])
        base.wake(loop, NODES, lambda _: self._deployments.keys())

    async def _sync(self, key: str) -> float | None:
        deployment, pods = self._deployments.get(key), _owned(self._pods, _DEPLOYMENT, key)
        if deployment is None or deployment["metadata"].get("deletionTimestamp"):
            for pod in pods:
                await _delete(self._base, pod)
            return None
        if not any(not pod["metadata"].get("deletionTimestamp") for pod in pods) and (node := self._place(deployment)):
            self._serial += 1
            body = pod_of(deployment, _DEPLOYMENT, f"{deployment['metadata']['name']}-{self._serial}")
            body["spec"]["nodeName"] = node
            await self._base.api.create(PODS, body, namespace=deployment["metadata"]["namespace"])
        return None

    def _place(self, deployment: Json) -> str:
        spec = deployment["spec"]["template"]["spec"]
        affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        name = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        node = self._nodes.get(name)
        return name if node and Pod.of({"metadata": {"name": name}, "spec": spec}).tolerates(Node.of(node).taints) else ""


def pod_of(workload: Json, kind: str, name: str) -> Json:
    template, meta = copy.deepcopy(workload["spec"]["template"]), workload["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": template["spec"]}


def workload_of(resource: Resource, name: str, pod: Json, *, replicas: int = 1) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


def _owner(pod: Json, kind: str) -> list[str]:
    meta = pod["metadata"]
    return [f"{meta['namespace']}/{owner['name']}" for owner in meta.get("ownerReferences") or () if owner["kind"] == kind]


def _owned(pods: Store[Json], kind: str, key: str) -> list[Json]:
    return [pod for pod in pods.values() if key in _owner(pod, kind)]


async def _delete(base: StandInBase, pod: Json) -> None:
    meta = pod["metadata"]
    if not meta.get("deletionTimestamp"):
        await base.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
