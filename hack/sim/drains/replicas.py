"""Holds evictions by sidecars against the other replicas: never two of a workload are away by our doing."""

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any, Final

from hack.sim.drains.claim_deletions import is_rolling, stops_at
from hack.sim.stand_ins import stateful_set_objects as objects
from hack.sim.world.node import NAMESPACE
from sidecar.kube.api import PODS, STATEFUL_SETS
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

TWO_AWAY: Final = "two away"
UNREADY: Final = "another not ready"
_LOOKED: Final = 11.0
"""Seconds between the look at the other replicas and the eviction: a pass ends within ten."""


class ReplicaReferee:
    """Omniscient. To be told of every change, of every eviction before it is carried out, and whether it was."""

    def __init__(self, world: "DrainWorld", *, slack: float) -> None:
        self._world = world
        self._looked = _LOOKED + slack
        self._away_since: dict[tuple[str, int], float] = {}
        """By uid of a set and ordinal: since when it has no pod there that is ready and stays."""
        self._ours: dict[tuple[str, int], str] = {}
        """Those that are away because a sidecar has evicted them: which pod."""
        self._rolling_since: dict[tuple[str, int], float] = {}
        """By uid of a set and ordinal: since when it has been rolling, and does not stop at this replica."""

    def look(self) -> None:
        for workload in self._world.cluster.store.all_of(STATEFUL_SETS):
            uid, there = workload["metadata"]["uid"], self._there(workload)
            rolling = is_rolling(workload, there.values())
            self._forget_unwanted(uid, objects.ordinals(workload))
            for ordinal in objects.ordinals(workload):
                if rolling and not stops_at(workload, ordinal, there):
                    self._rolling_since.setdefault((uid, ordinal), self._world.clock())
                else:
                    self._rolling_since.pop((uid, ordinal), None)
                if is_whole(there.get(ordinal)):
                    self._away_since.pop((uid, ordinal), None)
                    self._ours.pop((uid, ordinal), None)
                else:
                    self._away_since.setdefault((uid, ordinal), self._world.clock())

    def _forget_unwanted(self, uid: str, wanted: Container[int]) -> None:
        """Whoever makes a set smaller and larger again has made it wait himself, whatever a sidecar did before."""
        known: dict[tuple[str, int], Any]
        for known in (self._ours, self._away_since):
            for key in [key for key in known if key[0] == uid and key[1] not in wanted]:
                del known[key]

    def faults(self, pod: Json) -> list[tuple[str, str]]:
        """What is wrong with an eviction that is about to be carried out: kind and text."""
        self.look()
        workload = self._workload_of(pod)
        if workload is None:
            return []
        uid, own, found = workload["metadata"]["uid"], objects.ordinal_of(workload, pod), []
        for ordinal in objects.ordinals(workload):
            since, other = self._away_since.get((uid, ordinal)), f"{workload['metadata']['name']}-{ordinal}"
            if ordinal == own or since is None:
                continue
            seconds = self._world.clock() - since
            if evicted := self._ours.get((uid, ordinal)):
                found.append((TWO_AWAY, f"{other} was evicted {seconds:.3f} s ago ({evicted}), and is not ready again"))
            elif seconds > self._looked:
                found.append((UNREADY, f"{other} has not been ready for {seconds:.1f} s"))
        return found

    def evicted(self, pod: Json) -> None:
        workload = self._workload_of(pod)
        if workload is not None:
            uid, ordinal = workload["metadata"]["uid"], objects.ordinal_of(workload, pod)
            self._ours[uid, ordinal] = pod["metadata"]["uid"]
            self._away_since.setdefault((uid, ordinal), self._world.clock())

    def rolling(self, uid: str, ordinal: int) -> float:
        """For how many seconds that set has been rolling without stopping at this replica; 0: it is not."""
        return self._world.clock() - self._rolling_since.get((uid, ordinal), self._world.clock())

    def away(self, uid: str, ordinal: int) -> tuple[float, bool]:
        """For how many seconds a replica of that set has been away, and whether a sidecar has evicted it."""
        since = self._away_since.get((uid, ordinal))
        return (0.0, False) if since is None else (self._world.clock() - since, (uid, ordinal) in self._ours)

    def not_whole(self, *, by_us: bool = False) -> Iterable[str]:
        """Replicas that are away now; or only those that a sidecar has evicted."""
        self.look()
        for workload in self._world.cluster.store.all_of(STATEFUL_SETS):
            for ordinal in objects.ordinals(workload):
                if (workload["metadata"]["uid"], ordinal) in (self._ours if by_us else self._away_since):
                    yield f"{workload['metadata']['name']}-{ordinal}"

    def _workload_of(self, pod: Json) -> Json | None:
        owners = {ref["uid"] for ref in pod["metadata"].get("ownerReferences") or ()}
        return next((item for item in self._world.cluster.store.all_of(STATEFUL_SETS) if item["metadata"]["uid"] in owners), None)

    def _there(self, workload: Json) -> dict[int, Json]:
        uid, found = workload["metadata"]["uid"], {}
        for pod in self._world.cluster.store.all_of(PODS):
            owned = uid in {ref["uid"] for ref in pod["metadata"].get("ownerReferences") or ()}
            if owned and pod["metadata"]["namespace"] == NAMESPACE:
                found[objects.ordinal_of(workload, pod)] = pod
        return found


def is_whole(pod: Json | None) -> bool:
    return pod is not None and Pod.of(pod).ready and not pod["metadata"].get("deletionTimestamp")
