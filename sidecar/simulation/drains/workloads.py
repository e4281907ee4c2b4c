"""Stand-ins for what makes pods again after an eviction, and for the count of disruption budgets. As little as drains meet of them.

A StatefulSet here has one pod. A guard pod is put on its node here and not by the scheduler, which knows neither taints nor affinity.
"""

import copy
from collections.abc import Callable
from typing import Final

from sidecar.kube.api import BUDGETS, DEPLOYMENTS, NODES, PODS, Resource
from sidecar.kube.store import Store
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json
from sidecar.simulation.cluster.kinds.table import STATEFUL_SETS
from sidecar.simulation.cluster.storage.selectors import selector_test
from sidecar.simulation.stand_ins import StandInBase
from sidecar.simulation.stand_ins.stand_in_base import sides

_STATEFUL_SET: Final = "StatefulSet"
_DEPLOYMENT: Final = "Deployment"


class Apps:
    """StatefulSets of one pod. A pod that is gone comes back after a while that is drawn."""

    def __init__(self, base: StandInBase, *, delay: Callable[[str], float]) -> None:
        self._base, self._delay = base, delay
        self._sets, self._pods = base.cache(STATEFUL_SETS), base.cache(PODS)
        self._due: dict[str, float] = {}
        loop = base.loop("apps", self._sync)
        base.wake(loop, STATEFUL_SETS, lambda change: [change.key])
        base.wake(loop, PODS, lambda change: [key for pod in sides(change) for key in _owner(pod, _STATEFUL_SET)])

    async def _sync(self, key: str) -> float | None:
        workload = self._sets.get(key)
        pods = _owned(self._pods, _STATEFUL_SET, key)
        wanted = workload is not None and bool(workload["spec"]["replicas"])
        if pods or not wanted:
            self._due.pop(key, None)
            for pod in pods if not wanted else ():
                await _delete(self._base, pod)
            return None
        due = self._due.setdefault(key, self._base.clock() + self._delay(key))
        if due > self._base.clock():
            return due
        assert workload is not None
        await self._base.api.create(PODS, pod_of(workload, _STATEFUL_SET, f"{workload['metadata']['name']}-0"), namespace="default")
        return None


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


class Disruptions:
    """The disruption controller: counts the ready pods of each budget."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._budgets, self._pods = base.cache(BUDGETS), base.cache(PODS)
        loop = base.loop("disruptions", self._sync)
        base.wake(loop, BUDGETS, lambda change: [change.key])
        base.wake(loop, PODS, lambda _: self._budgets.keys())

    async def _sync(self, key: str) -> None:
        budget = self._budgets.get(key)
        if budget is None:
            return
        chosen = selector_test(budget["spec"]["selector"])
        pods = [pod for pod in self._pods.values() if chosen(pod["metadata"].get("labels") or {})]
        healthy = sum(Pod.of(pod).ready and not pod["metadata"].get("deletionTimestamp") for pod in pods)
        desired = int(budget["spec"].get("minAvailable", 0))
        status = {
            "observedGeneration": budget["metadata"]["generation"],
            "expectedPods": len(pods),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(0, healthy - desired),
        }
        if {key: (budget.get("status") or {}).get(key) for key in status} != status:
            await self._base.patch(BUDGETS, budget, {"status": status}, subresource="status")


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
