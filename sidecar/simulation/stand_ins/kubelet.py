"""The kubelets of all nodes: a pod runs as soon as it is bound to a node and its claims to volumes, and is gone at once when deleted.

A claim that is pending, lost or being deleted keeps a pod from its start, also one that somebody put on the node past the scheduler. A
pod that runs already goes on. Not here: pulling, mounting, waiting until a volume is attached.
"""

from collections.abc import Container, Iterable

from sidecar.kube.api import CLAIMS, NODES, PODS, VOLUMES, Change
from sidecar.kube.store import by_name
from sidecar.model.objects import Json
from sidecar.simulation.stand_ins.stand_in_base import StandInBase, claim_uid, claims_of, sides

_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


class Kubelet:
    """`pods` is its loop."""

    def __init__(self, base: StandInBase, *, silent: Container[str] = ()) -> None:
        """`silent`: nodes whose kubelets do nothing."""
        self._base = base
        self._silent = silent
        self._pods, self._claims, self._volumes = base.cache(PODS), base.cache(CLAIMS), base.cache(VOLUMES)
        self.pods = base.loop("kubelet", self._sync)
        base.wake(self.pods, PODS, lambda change: [change.key])
        base.wake(self.pods, CLAIMS, lambda change: self._users(sides(change)))
        base.wake(self.pods, VOLUMES, self._users_of_volume)
        if silent != ():
            base.wake(self.pods, NODES, lambda _: self._pods.keys())

    def _users(self, claims: Iterable[Json]) -> list[str]:
        return [by_name(pod) for claim in claims for pod in self._pods.by_index("claim", by_name(claim))]

    def _users_of_volume(self, change: Change[Json]) -> list[str]:
        uids = {uid for volume in sides(change) for uid in claim_uid(volume)}
        return self._users(claim for uid in sorted(uids) for claim in self._claims.by_index("uid", uid))

    async def _sync(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not pod["spec"].get("nodeName") or pod["spec"]["nodeName"] in self._silent:
            return
        if pod["metadata"].get("deletionTimestamp"):
            meta = pod["metadata"]
            await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace_period_seconds=0)
        elif pod["status"]["phase"] == "Pending" and all(map(self._can_be_mounted, claims_of(pod))):
            await self._base.patch(PODS, pod, {"status": _running(pod["status"])}, subresource="status")

    def _can_be_mounted(self, name: str) -> bool:
        claim = self._claims.get(name)
        if claim is None or claim["metadata"].get("deletionTimestamp") or (claim.get("status") or {}).get("phase") != "Bound":
            return False
        volume = self._volumes.get(claim["spec"].get("volumeName") or "")
        return volume is not None and claim["metadata"]["uid"] in claim_uid(volume)


def _running(status: Json) -> Json:
    others = [item for item in status.get("conditions") or () if item["type"] not in _CONDITIONS]
    return {"phase": "Running", "conditions": [*others, *({"type": kind, "status": "True"} for kind in _CONDITIONS)]}
