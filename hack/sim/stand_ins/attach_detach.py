"""The attach-detach controller: a VolumeAttachment for every volume that a scheduled pod uses, if its driver wants to attach.

A volume for one node is attached to the next one only when the attachment to the last one is gone. Attaching itself, and the
attachment's status and finalizer, are the work of a driver's external-attacher.
"""

import hashlib
from collections.abc import Iterable

from sidecar.kube.api import CSI_DRIVERS
from hack.sim.stand_ins.stand_in_base import StandInBase, claims_of, sides
from sidecar.kube.api import ATTACHMENTS, CLAIMS, PODS, VOLUMES, Change
from sidecar.kube.store import by_name
from sidecar.model.objects import Json

_SHARED = {"ReadWriteMany", "ReadOnlyMany"}


class AttachDetach:
    """`volumes` is its loop."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._pods, self._claims, self._volumes = base.cache(PODS), base.cache(CLAIMS), base.cache(VOLUMES)
        self._attachments, self._drivers = base.cache(ATTACHMENTS), base.cache(CSI_DRIVERS)
        self.volumes = base.loop("attach-detach", self._sync)
        base.wake(self.volumes, VOLUMES, lambda change: [change.key])
        base.wake(self.volumes, CLAIMS, lambda change: _named(claim["spec"].get("volumeName") for claim in sides(change)))
        base.wake(self.volumes, PODS, self._volumes_of_pod)
        base.wake(self.volumes, ATTACHMENTS, lambda change: _named(_volume_of(item) for item in sides(change)))

    def _volumes_of_pod(self, change: Change[Json]) -> list[str]:
        claims = (self._claims.get(name) for pod in sides(change) for name in claims_of(pod))
        return _named(claim["spec"].get("volumeName") for claim in claims if claim)

    async def _sync(self, name: str) -> None:
        volume = self._volumes.get(name)
        attachments = self._attachments.by_index("volume", name)
        wanted = self._wanted(volume) if volume else set()
        for attachment in attachments:
            if attachment["spec"]["nodeName"] not in wanted and not attachment["metadata"].get("deletionTimestamp"):
                await self._base.api.delete(ATTACHMENTS, attachment["metadata"]["name"], uid=attachment["metadata"]["uid"])
        held = {attachment["spec"]["nodeName"] for attachment in attachments}
        for node in sorted(wanted - held):
            if volume and (not held or _SHARED & set(volume["spec"]["accessModes"])):
                await self._base.api.create(ATTACHMENTS, _attachment(volume, node))

    def _wanted(self, volume: Json) -> set[str]:
        """The nodes of the pods that use the volume."""
        csi = volume["spec"].get("csi")
        driver = self._drivers.get(csi["driver"]) if csi else None
        if csi is None or (driver is not None and not driver["spec"].get("attachRequired", True)):
            return set()
        claims = self._claims.by_index("volume", volume["metadata"]["name"])
        users = (pod for claim in claims for pod in self._pods.by_index("claim", by_name(claim)))
        return {pod["spec"]["nodeName"] for pod in users if pod["spec"].get("nodeName") and not _is_over(pod)}


def _is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _volume_of(attachment: Json) -> str | None:
    name: str | None = attachment["spec"]["source"].get("persistentVolumeName")
    return name


def _named(volumes: Iterable[str | None]) -> list[str]:
    return [name for name in volumes if name]


def _attachment(volume: Json, node: str) -> Json:
    csi = volume["spec"]["csi"]
    digest = hashlib.sha256(f"{csi['volumeHandle']}{csi['driver']}{node}".encode()).hexdigest()
    spec = {"attacher": csi["driver"], "nodeName": node, "source": {"persistentVolumeName": volume["metadata"]["name"]}}
    return {"metadata": {"name": f"csi-{digest}"}, "spec": spec}
