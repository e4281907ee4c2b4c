"""The persistent volume controller with the protection controllers of claims and volumes; and the controller of ephemeral volumes.

It asks for a volume by annotation, binds the one that a provisioner makes, releases it when its claim is gone. A claim that a
scheduled pod uses stays, and so does a bound volume. Not here: matching claims with volumes nobody made for them.
"""

from typing import Any, Final

from hack.sim.stand_ins.stand_in_base import StandInBase, claim_uid, claims_of, class_name, owners_of, sides
from sidecar.kube.api import CLAIMS, CLASSES, PODS, VOLUMES, Change, Resource
from sidecar.kube.errors import NotFound
from sidecar.kube.store import by_name
from sidecar.model import names
from sidecar.model.objects import LATE, Json

CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
BOUND: Final = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


class Binder:
    """`claims` and `volumes` are its loops."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._claims, self._volumes = base.cache(CLAIMS), base.cache(VOLUMES)
        self._classes, self._pods = base.cache(CLASSES), base.cache(PODS)
        self.claims = base.loop("binder claims", self._sync_claim)
        self.volumes = base.loop("binder volumes", self._sync_volume)
        base.wake(self.claims, CLAIMS, lambda change: [change.key])
        base.wake(self.claims, VOLUMES, self._claims_of_volume)
        base.wake(self.claims, CLASSES, lambda _: self._claims.keys())
        base.wake(self.claims, PODS, lambda change: [key for pod in sides(change) for key in claims_of(pod)])
        base.wake(self.volumes, VOLUMES, lambda change: [change.key])
        base.wake(self.volumes, CLAIMS, self._volumes_of_claim)

    def _claims_of_volume(self, change: Change[Json]) -> list[str]:
        return [by_name(claim) for volume in sides(change) for uid in claim_uid(volume) for claim in self._claims.by_index("uid", uid)]

    def _volumes_of_claim(self, change: Change[Json]) -> list[str]:
        uids = {claim["metadata"]["uid"] for claim in sides(change)}
        return [volume["metadata"]["name"] for uid in sorted(uids) for volume in self._volumes.by_index("claim", uid)]

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            return
        # A pod that is not scheduled yet does not count: no kubelet would start it with a claim that is going.
        in_use = any(pod["spec"].get("nodeName") for pod in self._pods.by_index("claim", key))
        if _is_protected(claim, CLAIM_PROTECTION) and not in_use:
            await self._unprotect(CLAIMS, claim, CLAIM_PROTECTION)
        elif claim["spec"].get("volumeName"):
            await self._report(claim)
        elif made := self._volumes.by_index("claim", claim["metadata"]["uid"]):
            await self._bind(claim, made[0])
        else:
            await self._ask_for_volume(claim)

    async def _ask_for_volume(self, claim: Json) -> None:
        class_ = self._classes.get(class_name(claim))
        notes = claim["metadata"].get("annotations") or {}
        if class_ is None or (class_["volumeBindingMode"] == LATE and not notes.get(names.SELECTED_NODE)):
            return
        provisioner = class_["provisioner"]
        if notes.get(names.STORAGE_PROVISIONER) != provisioner:
            await self._annotate(claim, {names.STORAGE_PROVISIONER: provisioner, names.STORAGE_PROVISIONER_BETA: provisioner})

    async def _bind(self, claim: Json, volume: Json) -> None:
        await self._set_phase(volume, "Bound")
        spec = {"volumeName": volume["metadata"]["name"]}
        await self._report(await self._annotate(claim, {BOUND: "yes", BY_CONTROLLER: "yes"}, spec=spec))

    async def _report(self, claim: Json) -> None:
        volume = self._volumes.get(claim["spec"]["volumeName"])
        if volume is None:
            status: Json = {"phase": "Lost"}
        else:
            status = {"phase": "Bound", "accessModes": volume["spec"]["accessModes"], "capacity": volume["spec"]["capacity"]}
        if (claim.get("status") or {}).get("phase") != status["phase"]:
            await self._base.patch(CLAIMS, claim, {"status": status}, subresource="status")

    async def _annotate(self, claim: Json, notes: dict[str, str], **more: Any) -> Json:
        meta = {"annotations": notes, "resourceVersion": claim["metadata"]["resourceVersion"]}
        return await self._base.patch(CLAIMS, claim, {"metadata": meta, **more})

    async def _sync_volume(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None:
            return
        phase = (volume.get("status") or {}).get("phase")
        if not claim_uid(volume):
            await self._set_phase(volume, "Available")
        elif phase != "Released" and (await self._is_orphaned(volume["spec"]["claimRef"]) or self._is_not_needed(volume)):
            await self._set_phase(volume, "Released")
        elif phase != "Bound" and _is_protected(volume, VOLUME_PROTECTION):
            await self._unprotect(VOLUMES, volume, VOLUME_PROTECTION)

    def _is_not_needed(self, volume: Json) -> bool:
        """It was made for a claim that is bound to another volume, and goes with its claim."""
        claims = self._claims.by_index("uid", volume["spec"]["claimRef"]["uid"])
        elsewhere = any(claim["spec"].get("volumeName") not in (None, "", volume["metadata"]["name"]) for claim in claims)
        is_made = names.PROVISIONED_BY in (volume["metadata"].get("annotations") or {})
        return elsewhere and is_made and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"

    async def _is_orphaned(self, ref: Json) -> bool:
        """The cache may be behind: before a volume is released the API server itself is asked, as the real controller does."""
        if self._claims.by_index("uid", ref["uid"]):
            return False
        try:
            claim = await self._base.api.get(CLAIMS, ref["name"], namespace=ref["namespace"])
        except NotFound:
            return True
        return bool(claim["metadata"]["uid"] != ref["uid"])

    async def _set_phase(self, volume: Json, phase: str) -> None:
        if (volume.get("status") or {}).get("phase") != phase:
            await self._base.patch(VOLUMES, volume, {"status": {"phase": phase}}, subresource="status")

    async def _unprotect(self, resource: Resource, obj: Json, finalizer: str) -> None:
        meta = obj["metadata"]
        rest = [item for item in meta["finalizers"] if item != finalizer]
        await self._base.patch(resource, obj, {"metadata": {"finalizers": rest, "resourceVersion": meta["resourceVersion"]}})


def _is_protected(obj: Json, finalizer: str) -> bool:
    """It shall go, and this is one of the things it waits for."""
    return bool(obj["metadata"].get("deletionTimestamp")) and finalizer in (obj["metadata"].get("finalizers") or ())


class EphemeralClaims:
    """The ephemeral volume controller: the claim of each generic ephemeral volume of a pod, owned by the pod and collected with it.

    A claim of that name which belongs to something else is left alone. Not here: its event. `pods` is its loop.
    """

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._pods, self._claims = base.cache(PODS), base.cache(CLAIMS)
        self.pods = base.loop("ephemeral claims", self._sync)
        base.wake(self.pods, PODS, lambda change: [change.key])
        base.wake(self.pods, CLAIMS, lambda change: [key for claim in sides(change) for key in owners_of(claim, names.POD)])

    async def _sync(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for volume in pod["spec"].get("volumes") or ():
            name = f"{pod['metadata']['name']}-{volume['name']}"
            if volume.get("ephemeral") and f"{pod['metadata']['namespace']}/{name}" not in self._claims:
                await self._base.api.create(CLAIMS, _claim_of(pod, volume, name), namespace=pod["metadata"]["namespace"])


def _claim_of(pod: Json, volume: Json, name: str) -> Json:
    template, meta = volume["ephemeral"]["volumeClaimTemplate"], pod["metadata"]
    owner = {"apiVersion": "v1", "kind": names.POD, "name": meta["name"], "uid": meta["uid"]}
    notes = {key: value for key, value in (template.get("metadata") or {}).items() if key in ("annotations", "labels")}
    owners = [owner | {"controller": True, "blockOwnerDeletion": True}]
    return {"metadata": notes | {"name": name, "ownerReferences": owners}, "spec": template["spec"]}
