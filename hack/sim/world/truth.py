"""What would be lost if a node were gone now, or stranded if it were rebooted: from what the drivers really have, and from all objects.

This is a second reading of the promises, and shares no rule of drains with the product. Only data that was written counts: on a volume that
no pod ever ran with there is nothing to lose.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster import Cluster
from hack.sim.stand_ins import claims_of
from sidecar.kube.api import CLAIMS, CLASSES, PODS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

RETIRE: Final = "retire"
REBOOT: Final = "reboot"
_STRICTNESS: Final = ("Ignore", "AllowIdle", "Reprovision", "Block")
_DEFAULT: Final = {RETIRE: "Block", REBOOT: "AllowIdle"}
_OVER: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Said:
    """A policy, and whether somebody said it for this intent by name."""

    policy: str
    by_name: bool = False


@dataclass(slots=True)
class Scene:
    """All objects that matter, at one moment."""

    pods: list[Json]
    claims: dict[str, Json]
    volumes: list[Json]
    classes: dict[str, Json]
    wanted: set[str] = field(default_factory=set)
    """`namespace/name` of claims that a pod anywhere names, or that a workload is about to make a pod for."""

    @classmethod
    def of(cls, cluster: Cluster) -> "Scene":
        def every(resource: Any) -> list[Json]:
            return list(cluster.store.all_of(resource))

        scene = cls(
            pods=every(PODS),
            claims={full_name(claim): claim for claim in every(CLAIMS)},
            volumes=every(VOLUMES),
            classes={item["metadata"]["name"]: item for item in every(CLASSES)},
        )
        for pod in scene.pods:
            if (pod.get("status") or {}).get("phase") not in _OVER:
                scene.wanted.update(claims_of(pod))
        for workload in every(STATEFUL_SETS):
            if workload["spec"].get("replicas"):
                meta, template = workload["metadata"], workload["spec"]["template"]
                scene.wanted.update(claims_of({"metadata": meta, "spec": template["spec"]}))
        return scene

    def claim_of(self, volume: Json) -> Json | None:
        ref = volume["spec"].get("claimRef") or {}
        claim = self.claims.get(f"{ref.get('namespace')}/{ref.get('name')}")
        return claim if claim and ref.get("uid") in (None, "", claim["metadata"]["uid"]) else None

    def bound_to(self, claim: str) -> Json | None:
        """The volume of a claim, by the claim's full name."""
        found = self.claims.get(claim)
        name = found["spec"].get("volumeName") if found else None
        return next((volume for volume in self.volumes if volume["metadata"]["name"] == name), None)


class Truth:
    """Remembers what no object says: which volumes were written and when, and since when somebody has acknowledged what."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._used: dict[str, float] = {}
        """By handle: when a pod last began to run with it."""
        self.first_used: dict[str, float] = {}
        """By name of a PersistentVolume: when a pod first ran with it."""
        self._unused: dict[str, float] = {}
        """By handle: when a pod that ran with it ended."""
        self._running: dict[str, list[str]] = {}
        """By uid of a pod: the handles that it runs with."""
        self._acks: dict[str, tuple[str, float]] = {}

    def look(self) -> Scene:
        """To be called after every change: it notes what happens to the data."""
        scene = Scene.of(self._world.cluster)
        running = {pod["metadata"]["uid"]: pod for pod in scene.pods if (pod.get("status") or {}).get("phase") == "Running"}
        now = self._world.clock()
        for handle in (handle for uid, handles in self._running.items() if uid not in running for handle in handles):
            self._unused[handle] = now
        self._running = {uid: self._running.get(uid, []) for uid in running}
        for uid, pod in running.items():
            for volume in filter(None, map(scene.bound_to, claims_of(pod))):
                handle = volume["spec"]["csi"]["volumeHandle"]
                if handle not in self._running[uid]:
                    self._running[uid].append(handle)
                    self._used[handle] = now
                    self.first_used.setdefault(volume["metadata"]["name"], now)
        for item in scene.volumes:
            self._note_ack(item["metadata"])
        return scene

    def losses(self, scene: Scene, node: str) -> Iterator[str]:
        """What nobody gave up, and what would be lost with this node."""
        for volume in self._held(scene, node):
            if not self._given_up(scene, volume, node):
                yield f"{volume['metadata']['name']} ({volume['spec']['csi']['volumeHandle']})"

    def strandings(self, scene: Scene, node: str) -> Iterator[str]:
        """Volumes of this node whose policy forbids what a reboot would do to the pods that want them."""
        for volume in self._held(scene, node):
            claim = scene.claim_of(volume)
            wanted = claim is not None and full_name(claim) in scene.wanted and not _ephemeral(scene, claim)
            # Where the volume names another node its pods wait already, whatever becomes of this one.
            if wanted and _leads_to(volume, node) and said(scene, volume, claim, REBOOT).policy == "Block":
                yield f"{volume['metadata']['name']} ({volume['spec']['csi']['volumeHandle']})"

    def _held(self, scene: Scene, node: str) -> list[Json]:
        """The volumes on this node that were used."""
        here = {volume.id for volume in self._world.nodes[node].driver.volumes()} & self._used.keys()
        return [volume for volume in scene.volumes if (volume["spec"].get("csi") or {}).get("volumeHandle") in here]

    def _given_up(self, scene: Scene, volume: Json, node: str) -> bool:
        claim, spec = scene.claim_of(volume), volume["spec"]
        deleted = claim is None or claim["metadata"].get("deletionTimestamp")
        if deleted and spec.get("persistentVolumeReclaimPolicy") == "Delete" and spec.get("claimRef"):
            return True  # whoever deleted the claim knew the reclaim policy
        if claim and _ephemeral(scene, claim):
            return True
        word = said(scene, volume, claim, RETIRE)
        if word.policy == "Ignore":
            return True
        if claim and full_name(claim) in scene.wanted:
            return False
        if word.policy == "AllowIdle" and word.by_name and claim:
            return True
        known, handle = self._acks.get(volume["metadata"]["uid"]), spec["csi"]["volumeHandle"]
        if known is None:
            return False
        # A use after the acknowledgement voids it, if the sidecar saw that use.
        used, runs = self._used.get(handle, 0.0), any(handle in handles for handles in self._running.values())
        until = self._world.clock() if runs else self._unused.get(handle, 0.0)
        return until < known[1] or not self._world.verdicts.saw(node, max(used, known[1]), until)

    def _note_ack(self, meta: Json) -> None:
        text = (meta.get("annotations") or {}).get(names.ACKNOWLEDGED, "").strip()
        if not text:
            self._acks.pop(meta["uid"], None)
        elif self._acks.get(meta["uid"], ("", 0.0))[0] != text:
            self._acks[meta["uid"]] = text, self._world.clock()


def said(scene: Scene, volume: Json, claim: Json | None, intent: str) -> Said:
    """PersistentVolume or claim, the stricter of the two; then the class, then the default. Nobody here says it of a namespace."""
    own = [word for obj in (volume, claim) if (word := _word(obj, intent))]
    class_ = scene.classes.get(volume["spec"].get("storageClassName") or "")
    return max(own, key=lambda word: _STRICTNESS.index(word.policy)) if own else _word(class_, intent) or Said(_DEFAULT[intent])


def _word(obj: Json | None, intent: str) -> Said | None:
    """What was said for this intent by name outranks what was said for both."""
    notes = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    named = notes.get(f"{names.DRAIN_POLICY}.{intent}")
    text = notes.get(names.DRAIN_POLICY) if named is None else named
    if text is None:
        return None
    return Said(text if text in _STRICTNESS else "Block", by_name=named is not None)


def _ephemeral(scene: Scene, claim: Json) -> bool:
    """The claim was made for a volume of a pod that owns it, and not merely given a pod as its owner."""
    owners = {owner["uid"] for owner in claim["metadata"].get("ownerReferences") or () if owner["kind"] == names.POD}
    for pod in scene.pods:
        if pod["metadata"]["uid"] in owners:
            made = {f"{pod['metadata']['name']}-{item['name']}" for item in pod["spec"].get("volumes") or () if item.get("ephemeral")}
            return claim["metadata"]["name"] in made
    return False


def _leads_to(volume: Json, node: str) -> bool:
    terms = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms")
    return terms is None or any(node in item.get("values", ()) for term in terms for item in term.get("matchExpressions", ()))


def full_name(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def note(obj: Json, key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key) or "")
