"""The kubelets of all nodes: a pod runs as soon as it is bound to a node and its claims to volumes, and is gone at once when deleted.

A claim that is pending, lost or being deleted keeps a pod from its start, also one that somebody put on the node past the scheduler. A
pod that runs already goes on. Not here: pulling, mounting, waiting until a volume is attached.
"""

from collections.abc import Callable, Container, Iterable

from hack.sim.clock import EPOCH
from hack.sim.stand_ins.stand_in_base import StandInBase, claim_uid, claims_of, is_for, sides
from sidecar.kube.api import CLAIMS, NODES, PODS, VOLUMES, Change
from sidecar.kube.store import by_name
from sidecar.model import timestamps
from sidecar.model.objects import Json

_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


class Kubelet:
    """`pods` is its loop."""

    def __init__(self, base: StandInBase, *, silent: Container[str] = (), start: Callable[[Json], float] = lambda pod: 0.0) -> None:
        """`silent`: nodes whose kubelets do nothing. `start`: for how many seconds a pod runs before it is ready."""
        self._base = base
        self._silent = silent
        self._start = start
        self._starting: dict[str, float] = {}
        """By uid of a pod that runs: when it becomes ready."""
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

    async def _sync(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or not pod["spec"].get("nodeName") or pod["spec"]["nodeName"] in self._silent:
            return None
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace_period_seconds=0)
        elif pod["status"]["phase"] == "Pending" and all(self._can_be_mounted(pod, name) for name in claims_of(pod)):
            if seconds := self._start(pod):
                self._starting[meta["uid"]] = self._base.clock() + seconds
            await self._run(pod, ready=not seconds)
        elif (due := self._starting.get(meta["uid"])) is not None:
            if due > self._base.clock():
                return due
            del self._starting[meta["uid"]]
            await self._run(pod, ready=True)
        return None

    def _can_be_mounted(self, pod: Json, name: str) -> bool:
        claim = self._claims.get(name)
        if claim is None or not is_for(pod, claim) or claim["metadata"].get("deletionTimestamp"):
            return False
        if (claim.get("status") or {}).get("phase") != "Bound":
            return False
        volume = self._volumes.get(claim["spec"].get("volumeName") or "")
        return volume is not None and claim["metadata"]["uid"] in claim_uid(volume)

    async def _run(self, pod: Json, *, ready: bool) -> None:
        others = [item for item in pod["status"].get("conditions") or () if item["type"] not in _CONDITIONS]
        since = timestamps.to_text(EPOCH + self._base.clock())
        states = {kind: "True" if ready or kind == "Initialized" else "False" for kind in _CONDITIONS}
        own = [{"type": kind, "status": state, "lastTransitionTime": since} for kind, state in states.items()]
        await self._base.patch(PODS, pod, {"status": {"phase": "Running", "conditions": [*others, *own]}}, subresource="status")
