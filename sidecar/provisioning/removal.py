"""Takes released volumes away, and keeps our finalizer where it belongs: the file of this room that waits for deletions."""

import logging
from collections.abc import Callable
from typing import assert_never

from sidecar.csi.api import Driver
from sidecar.csi.outcome import DriverError, NotSent
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.kube.api import STRATEGIC_MERGE_PATCH, VOLUMES, KubeApi
from sidecar.kube.errors import ApiError, NotFound, Unavailable
from sidecar.kube.recorder import ObjectRef, Recorder
from sidecar.model import names
from sidecar.model.objects import Json, Volume
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.ownership.space import Space
from sidecar.provisioning.caches import UNSTORED, Caches
from sidecar.provisioning.lookup import Lookup
from sidecar.provisioning.memory import Memory
from sidecar.provisioning.secrets import SecretRef
from sidecar.provisioning.view import Here, Leaving, VolumeView
from sidecar.provisioning.volume_rules import Empty, Finalize, Hold, Remove, Rest, Unfinalize, VolumeDecision, decide_volume

log = logging.getLogger(__name__)

ROOM = "provisioning"


class Removal:
    """`handle` is given to the loop, with the volume's name as the key; it returns when to look again."""

    def __init__(
        self,
        *,
        here: Callable[[], Here],
        kube: KubeApi,
        driver: Driver,
        caches: Caches,
        recorder: Recorder,
        metrics: Metrics,
        narrator: Narrator,
        retry: Backoff,
        clock: Callable[[], float],
        space: Space,
        memory: Memory,
        lookup: Lookup,
        attachments_known: Callable[[], bool],
        dry_run: bool,
    ) -> None:
        self._here = here
        self._kube = kube
        self._driver = driver
        self._caches = caches
        self._recorder = recorder
        self._metrics = metrics
        self._narrator = narrator
        self._retry = retry
        self._clock = clock
        self._space = space
        self._memory = memory
        self._lookup = lookup
        self._attachments_known = attachments_known
        self._dry_run = dry_run
        self._emptying: dict[str, float] = {}
        self.attempts: Attempts[str] = Attempts()

    def view(self, name: str) -> VolumeView:
        """The picture of one volume."""
        volume = self._caches.volumes.get(name)
        return VolumeView(
            here=self._here(),
            volume=volume,
            class_=self._caches.classes.get(volume.class_name) if volume else None,
            progress=self._memory.leaving(volume) if volume else Leaving.NOT_YET,
            attachments_known=self._attachments_known(),
            attached_to=tuple(sorted(item.node for item in self._caches.attachments.by_index("volume", name))),
        )

    async def handle(self, name: str) -> float | None:
        """One look at a volume and at most two effects."""
        view = self.view(name)
        decision = decide_volume(view)
        self._narrator.note(ROOM, name, name, decision)
        if self._dry_run and not isinstance(decision, Rest):
            return None
        try:
            return await self._perform(name, decision)
        except NotFound:
            return None
        except ApiError as error:
            if view.volume is not None and _takes_away(decision, view.volume) and not isinstance(error, Unavailable):
                # A server that has just started may forbid everything for a moment.
                return min(self._not_deleted(view.volume, str(error)), self._clock() + UNSTORED)
            log.warning("Request for a volume failed", extra={"fields": {"volume": name, "why": decision.why, "err": str(error)}})
            return min(self._later(name), self._clock() + UNSTORED)

    async def _perform(self, name: str, decision: VolumeDecision) -> float | None:
        match decision:
            case Rest():
                self._forget_volume(name)
                return None
            case Hold(volume, why):
                return self._not_deleted(volume, why)
            case Empty(volume, secret):
                return await self._empty(volume, secret)
            case Remove(volume):
                await self._kube.delete(VOLUMES, volume.name, uid=volume.uid)
                self._memory.left(volume, Leaving.REMOVED)
                self._metrics.deleted(volume.class_name, self._clock() - self._emptying.pop(volume.uid, self._clock()))
                return None
            case Finalize(volume):
                patch = {"metadata": {"uid": volume.uid, "finalizers": [names.VOLUME_FINALIZER]}}
                await self._kube.patch(VOLUMES, volume.name, patch, content_type=STRATEGIC_MERGE_PATCH)
                return None
            case Unfinalize(volume):
                await self._kube.patch(VOLUMES, volume.name, _without_finalizer(volume), content_type=STRATEGIC_MERGE_PATCH)
                if volume.deleting:
                    self._memory.left(volume, Leaving.UNFINALIZED)
                return None
            case _:
                assert_never(decision)

    async def _empty(self, volume: Volume, secret: SecretRef | None) -> float | None:
        fresh = Volume.of(await self._kube.get(VOLUMES, volume.name))
        if (fresh.uid, fresh.resource_version) != (volume.uid, volume.resource_version):
            # The one step that cannot be taken back is not taken on an old picture: the watch will bring the new one.
            return self._later(volume.name)
        self._emptying.setdefault(volume.uid, self._clock())
        try:
            await self._driver.delete_volume(volume.handle, secrets=await self._lookup.secret_if_any(secret, about=volume.name))
        except NotSent as error:
            return self._not_deleted(volume, str(error))
        except DriverError as error:
            self._space.changed(volume.class_name, placed=volume.affinity is not None)
            return self._not_deleted(volume, str(error))
        self._space.freed(volume.class_name, volume.size, placed=volume.affinity is not None)
        self._memory.left(volume, Leaving.EMPTIED)
        log.info("Volume deleted", extra={"fields": {"volume": volume.name, "handle": volume.handle}})
        return self._clock()

    def _forget_volume(self, name: str) -> None:
        if self._caches.volumes.get(name) is None:
            self._memory.forget_volume(name)

    def _not_deleted(self, volume: Volume, why: str) -> float:
        self._metrics.delete_failed(volume.class_name)
        ref = ObjectRef("v1", "PersistentVolume", "", volume.name, volume.uid, volume.resource_version)
        self._recorder.record(ref, "Warning", names.VOLUME_FAILED_DELETE, why)
        log.warning("Deleting a volume failed", extra={"fields": {"volume": volume.name, "handle": volume.handle, "err": why}})
        return self._later(volume.name)

    def _later(self, name: str) -> float:
        return self._clock() + self._retry.delay(self.attempts.next(name))


def _takes_away(decision: VolumeDecision, volume: Volume) -> bool:
    """To put our finalizer on, or to take it off what stays, is no deletion that could fail."""
    return isinstance(decision, Empty | Remove) or (isinstance(decision, Unfinalize) and volume.deleting)


def _without_finalizer(volume: Volume) -> Json:
    """Takes one finalizer off the list and leaves the others; the uid keeps a namesake safe."""
    return {"metadata": {"uid": volume.uid, "$deleteFromPrimitiveList/finalizers": [names.VOLUME_FINALIZER]}}
