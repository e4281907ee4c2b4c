"""Puts our finalizer on a PersistentVolume and takes it off, by the verb that the role allows. When: `volume_rules`."""

from collections.abc import Callable

from sidecar.kube.api import STRATEGIC_MERGE_PATCH, VOLUMES, KubeApi
from sidecar.kube.errors import Conflict
from sidecar.model import names
from sidecar.model.objects import Json, Volume
from sidecar.provisioning.requests.source_finalizers import with_finalizer, without_finalizer
from sidecar.rights.rights import FinalizerWrites


class VolumeFinalizers:
    """Both raise ApiError: Conflict if another volume has the name now, or somebody else has written in the same moment."""

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube

    async def put_on(self, volume: Volume, by: FinalizerWrites) -> bool:
        """Whether it is on by the API server's answer. Where an admission webhook takes it off in the write, no watch tells of anything."""
        if by is FinalizerWrites.BY_UPDATE:
            written = await self._update(volume, with_finalizer)
        else:
            written = await self._patch(volume, {"finalizers": [names.VOLUME_FINALIZER]})
        return names.VOLUME_FINALIZER in ((written.get("metadata") or {}).get("finalizers") or ())

    async def take_off(self, volume: Volume, by: FinalizerWrites) -> None:
        """The others stay."""
        if by is FinalizerWrites.BY_UPDATE:
            await self._update(volume, without_finalizer)
        else:
            await self._patch(volume, {"$deleteFromPrimitiveList/finalizers": [names.VOLUME_FINALIZER]})

    async def _patch(self, volume: Volume, finalizers: Json) -> Json:
        patch = {"metadata": {"uid": volume.uid, **finalizers}}
        return await self._kube.patch(VOLUMES, volume.name, patch, content_type=STRATEGIC_MERGE_PATCH)

    async def _update(self, volume: Volume, changed: Callable[[Json, str], bytes | None]) -> Json:
        """The object as it is on the server, with its resourceVersion, so nobody's change is lost."""
        found = await self._kube.get(VOLUMES, volume.name)
        if found["metadata"].get("uid") != volume.uid:
            raise Conflict(f"update {VOLUMES} {volume.name}: another PersistentVolume has the name now")
        body = changed(found, names.VOLUME_FINALIZER)
        return found if body is None else await self._kube.replace(VOLUMES, body, name=volume.name)
