"""What takes pods away, or keeps them: the disruption controller and the pod garbage collector.

The first counts the ready pods of each budget against what is wanted of them: a number, or a share of what the owners of the pods are
scaled to, rounded up. A pod whose eviction was allowed does not count for two minutes, though nothing else shows yet that it leaves. Not
here: conditions, budgets without a selector, and that a pod of several budgets wakes only one of them.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from hack.sim.cluster.selectors import selector_test
from hack.sim.stand_ins.stand_in_base import StandInBase, leaves
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS, Resource
from sidecar.kube.errors import NotFound
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json

_SCALED: Final[dict[str, Resource]] = {kind.kind: kind for kind in (STATEFUL_SETS, REPLICA_SETS, DEPLOYMENTS)}
_LEAVES_WITHIN: Final = 120.0
EVERY: Final = 20.0
_QUARANTINE: Final = 40.0
_ALL: Final = "all pods"
_WHY: Final = {"reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}
_BY_COLLECTOR: Final = {"type": "DisruptionTarget", "status": "True", **_WHY}


class Disruptions:
    """`budgets` is its loop."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._budgets, self._pods = base.cache(BUDGETS), base.cache(PODS)
        self._owners = {kind: base.cache(resource) for kind, resource in _SCALED.items()}
        self._disrupted: dict[tuple[str, str, str], float] = {}
        """By key of a budget, name of a pod and the moment that the API server noted: when that was seen."""
        self.budgets = base.loop("disruptions", self._sync)
        base.wake(self.budgets, BUDGETS, lambda change: [change.key])
        base.wake(self.budgets, PODS, lambda _: self._budgets.keys())

    async def _sync(self, key: str) -> float | None:
        budget = self._budgets.get(key)
        if budget is None:
            return None
        chosen, namespace = selector_test(budget["spec"]["selector"]), budget["metadata"]["namespace"]
        there = (pod for pod in self._pods.values() if pod["metadata"]["namespace"] == namespace)
        pods = [pod for pod in there if chosen(pod["metadata"].get("labels") or {})]
        disrupted, again = self._still_expected_to_leave(key, budget, pods)
        healthy = sum(Pod.of(pod).ready and not leaves(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        counted = self._wanted(budget["spec"], pods)
        if counted is None:  # it fails safe
            status: Json = {"disruptionsAllowed": 0}
        else:
            expected, desired = counted
            status = {
                "observedGeneration": budget["metadata"]["generation"],
                "expectedPods": expected,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
            }
        before = budget.get("status") or {}
        noted = before.get("disruptedPods") or {}
        if {key: before.get(key) for key in status} != status or noted != disrupted:
            status["disruptedPods"] = dict.fromkeys(noted) | disrupted
            version = {"metadata": {"resourceVersion": budget["metadata"]["resourceVersion"]}}
            await self._base.patch(BUDGETS, budget, {**version, "status": status}, subresource="status")
        return again

    def _still_expected_to_leave(self, key: str, budget: Json, pods: Iterable[Json]) -> tuple[dict[str, str], float | None]:
        """Pods whose eviction was allowed a moment ago and that show no sign of it; when the first of them counts again."""
        noted, now = (budget.get("status") or {}).get("disruptedPods") or {}, self._base.clock()
        staying = {pod["metadata"]["name"] for pod in pods if not leaves(pod)}
        ends = {name: self._disrupted.setdefault((key, name, at), now) + _LEAVES_WITHIN for name, at in noted.items() if name in staying}
        expected = {name: noted[name] for name, end in ends.items() if end > now}
        return expected, min((end for end in ends.values() if end > now), default=None)

    def _wanted(self, spec: Json, pods: list[Json]) -> tuple[int, int] | None:
        """How many pods there should be, and how many of them ready; None: nobody can say."""
        if "maxUnavailable" in spec:
            scale = self._scale(pods)
            return None if scale is None else (scale, max(0, scale - _share(spec["maxUnavailable"], scale)))
        least = spec.get("minAvailable", 0)
        if isinstance(least, int):
            return len(pods), least
        scale = self._scale(pods)
        return None if scale is None else (scale, _share(least, scale))

    def _scale(self, pods: Iterable[Json]) -> int | None:
        """What all owners of these pods want together. A pod without an owner does not count."""
        wanted: dict[str, int] = {}
        for pod in pods:
            for owner in pod["metadata"].get("ownerReferences") or ():
                if owner.get("controller"):
                    cache = self._owners.get(owner["kind"])
                    found = cache.get(f"{pod['metadata']['namespace']}/{owner['name']}") if cache else None
                    if found is None or found["metadata"]["uid"] != owner["uid"]:
                        return None
                    wanted[owner["uid"]] = found["spec"].get("replicas", 1)
        return sum(wanted.values())


def _share(value: int | str, whole: int) -> int:
    """A number, or a percentage, rounded up."""
    return value if isinstance(value, int) else -(-whole * int(value.removesuffix("%")) // 100)


class PodGarbageCollector:
    """Every 20 s it takes away pods of a node that has not existed for 40 s, whatever their grace period. They are marked as failed first.
    Not here: nodes out of service, pods that are to end and never had a node, old pods that have ended. `rounds` is its loop."""

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
