"""What must not be the case even for a moment: two owners of a claim, a volume that nobody made, two replicas away by our doing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hack.sim.cluster import Call
from hack.sim.stand_ins import stateful_sets as objects
from hack.sim.world import strangers
from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import CLAIMS, PODS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

HOLLOW: Final = "hollow"
_MAY_GO: Final = ("Released", "Failed")
_LOOKED: Final = 11.0
"""Seconds between the look at the other replicas and the eviction: a pass ends within ten."""


class Replicas:
    """Holds evictions by sidecars against the other replicas, each known by its set and ordinal. To be told of every change, and of every
    eviction by a sidecar that was carried out."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._looked = _LOOKED + (world.late if world.strays else 0.0)
        self._away_since: dict[tuple[str, int], float] = {}
        """Since when it has no pod that is there, ready and stays."""
        self._whole_since: dict[tuple[str, int], float] = {}
        self._ours: dict[tuple[str, int], str] = {}
        """Those that are away because a sidecar has evicted them: which pod."""

    def look(self) -> None:
        wanted = {}
        for workload in self._world.cluster.store.all_of(STATEFUL_SETS):
            there = self.pods_of(workload)
            for ordinal in objects.ordinals(workload):
                wanted[workload["metadata"]["uid"], ordinal] = is_whole(there.get(ordinal))
        for key, whole in wanted.items():
            if not whole:
                self._away_since.setdefault(key, self._world.clock())
                self._whole_since.pop(key, None)
            else:
                self._whole_since.setdefault(key, self._world.clock())
        # Whoever makes a set smaller and larger again has made it wait himself, whatever a sidecar did before.
        for key in [key for key in self._away_since if wanted.get(key, True)]:
            del self._away_since[key]
            self._ours.pop(key, None)

    def faults(self, pod: Json) -> Iterator[tuple[str, str]]:
        """What is wrong with an eviction that is about to be carried out: kind and text."""
        workload = self._workload_of(pod)
        for ordinal in objects.ordinals(workload) if workload else ():
            if workload is None or ordinal == objects.ordinal_of(workload, pod):
                continue
            name, (seconds, by_us) = f"{workload['metadata']['name']}-{ordinal}", self.away(workload["metadata"]["uid"], ordinal)
            if by_us:
                yield "two away", f"{name} was evicted by a sidecar {seconds:.3f} s ago, and is not ready again"
            elif seconds > self._looked:
                yield "another not ready", f"{name} has not been ready for {seconds:.1f} s"

    def evicted(self, pod: Json) -> None:
        if workload := self._workload_of(pod):
            key = workload["metadata"]["uid"], objects.ordinal_of(workload, pod)
            self._ours[key] = pod["metadata"]["uid"]
            self._away_since.setdefault(key, self._world.clock())

    def away(self, uid: str, ordinal: int) -> tuple[float, bool]:
        """For how many seconds a replica of that set has been away, and whether a sidecar has evicted it."""
        self.look()
        since = self._away_since.get((uid, ordinal))
        return (0.0, False) if since is None else (self._world.clock() - since, (uid, ordinal) in self._ours)

    def whole_for(self, uid: str, ordinal: int) -> float:
        """For how many seconds it has been there and ready without a break."""
        return self._world.clock() - self._whole_since.get((uid, ordinal), self._world.clock())

    def not_whole(self) -> Iterator[str]:
        """Replicas that are away now."""
        self.look()
        for workload in self._world.cluster.store.all_of(STATEFUL_SETS):
            for ordinal in objects.ordinals(workload):
                if (workload["metadata"]["uid"], ordinal) in self._away_since:
                    yield f"{workload['metadata']['name']}-{ordinal}"

    def pods_of(self, workload: Json) -> dict[int, Json]:
        """By ordinal."""
        uid = workload["metadata"]["uid"]
        pods = (pod for pod in self._world.cluster.store.all_of(PODS) if pod["metadata"]["namespace"] == NAMESPACE)
        owned = (pod for pod in pods if uid in {ref["uid"] for ref in pod["metadata"].get("ownerReferences") or ()})
        return {objects.ordinal_of(workload, pod): pod for pod in owned}

    def _workload_of(self, pod: Json) -> Json | None:
        owners = {ref["uid"] for ref in pod["metadata"].get("ownerReferences") or ()}
        return next((item for item in self._world.cluster.store.all_of(STATEFUL_SETS) if item["metadata"]["uid"] in owners), None)


def is_whole(pod: Json | None) -> bool:
    return pod is not None and Pod.of(pod).ready and not pod["metadata"].get("deletionTimestamp")


class Claims:
    """To be told of every change and of what drivers do."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._owners: dict[str, str] = {}
        """By uid of a claim: the node that has it."""
        self._owned: set[tuple[str, str]] = set()
        """Every claim with each node that has ever had it."""
        self._made: set[str] = set()
        """Handles of volumes that drivers have made."""

    def created(self, node: str, name: str) -> None:
        """Its driver has made that volume, or had it already, because the node asked for it: the claim is that node's, or was."""
        self._made.update(volume.id for volume in self._world.nodes[node].driver.volumes())
        owners = {owner for uid, owner in self._owned if names.is_volume_name(name, uid)}
        if owners and node not in owners:
            self._world.found("acted on another's claim", f"{node} asked for {name}, of which the owners were {sorted(owners)}")

    def deleted(self, handle: str) -> None:
        """A driver has deleted that volume, or had none."""
        for volume in self._world.cluster.store.all_of(VOLUMES):
            if (volume["spec"].get("csi") or {}).get("volumeHandle") != handle or volume["metadata"].get("deletionTimestamp"):
                continue
            uid = (volume["spec"].get("claimRef") or {}).get("uid")
            there = any(claim["metadata"]["uid"] == uid for claim in self._world.cluster.store.all_of(CLAIMS))
            if there and (volume.get("status") or {}).get("phase") not in _MAY_GO:
                self._world.found("taken away", f"{handle} was deleted, and {volume['metadata']['name']} names it for its claim")

    def heard(self, call: Call) -> None:
        resource = next((each for each in (CLAIMS, VOLUMES) if each == call.resource), None)
        found = self._world.cluster.store.find(resource, call.name, call.namespace) if resource else None
        if found is None or strangers.is_one(found):
            return
        if call.resource == CLAIMS:
            self._look_at_claim(found)
        elif found["spec"]["csi"]["driver"] == DRIVER:
            self._look_at_volume(found)

    def _look_at_claim(self, claim: Json) -> None:
        """An owner may give a claim back, but no other node may take it over."""
        uid, owner = claim["metadata"]["uid"], (claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, "")
        before = self._owners.get(uid, "")
        if owner and before and owner != before:
            self._world.found("two owners", f"claim {claim['metadata']['name']} was {before}'s and became {owner}'s")
        self._owners[uid] = owner
        self._owned.add((uid, owner))

    def _look_at_volume(self, volume: Json) -> None:
        """A PersistentVolume may outlive its volume for a while, but must not exist before it."""
        handle = volume["spec"]["csi"]["volumeHandle"]
        if handle not in self._made and not self._world.fails_over:  # there volumes are on other storage
            self._world.found(HOLLOW, f"PersistentVolume {volume['metadata']['name']} names volume {handle}, which never was")
            self._made.add(handle)  # said once
