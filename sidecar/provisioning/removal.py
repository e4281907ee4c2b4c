"""Has the driver delete released volumes, deletes their PersistentVolumes, and puts our finalizer on and off. When: `volume_rules`."""

import logging
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from sidecar.csi.outcome import DriverError, NotSent, is_over
from sidecar.deletion.rules import DeletionView, Released
from sidecar.engine.backoff import on_a_beat
from sidecar.engine.loop import WORK, NeedsWork
from sidecar.engine.undone import TOLD_AT, UndoneWrites
from sidecar.kube.api import VOLUMES
from sidecar.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from sidecar.kube.events.recorder import ObjectRef
from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.provisioning.deletion_io import Deletion
from sidecar.provisioning.effects.volume_finalizers import VolumeFinalizers
from sidecar.provisioning.lookups import Lookups
from sidecar.provisioning.pace import PacedAttempts
from sidecar.provisioning.progress import UNSTORED, RemovalStep
from sidecar.provisioning.progress_table import ProgressTable
from sidecar.provisioning.requests.secrets import SecretRef
from sidecar.provisioning.unowned_io import Unowned
from sidecar.provisioning.view import VolumeView
from sidecar.provisioning.volume_rules import (
    Empty,
    Finalize,
    Hold,
    Remove,
    Rest,
    Unfinalize,
    Unpermitted,
    VolumeDecision,
    Wait,
    decide_volume,
    is_try,
)
from sidecar.rights.rights import FinalizerWrites
from sidecar.tools import Tools

log = logging.getLogger(__name__)

ROOM = "provisioning"

_IN_USE: Final = (
    ", so the volume is not deleted; delete that PersistentVolume first,"
    " or set persistentVolumeReclaimPolicy of this one to Retain to keep the data"
)

_MAY_GO: Final = (
    "before it was kept, the driver on node {} was asked to delete this volume, and has not said how that ended:"
    " its data may be gone, or go yet; look at it there before you rely on it"
)
_GONE: Final = (
    "before it was kept, the driver on node {} has deleted this volume: its data is gone, and this PersistentVolume leads to nothing"
)


class Removal:
    """The loop calls `glance` and `handle` with the volume's name as the key; `handle` returns when to look again."""

    def __init__(
        self,
        tools: Tools,
        *,
        here: Callable[[], Here],
        caches: Caches,
        space: ReservedSpace,
        table: ProgressTable,
        lookup: Lookups,
        deletion: Deletion,
        attachments_known: Callable[[], bool],
        finalizers: Callable[[], FinalizerWrites],
        on_forbidden: Callable[[], None],
    ) -> None:
        """`on_forbidden`: our finalizer could not be written as `finalizers` says."""
        self._here = here
        self._kube = tools.kube
        self._caches = caches
        self._recorder = tools.recorder
        self._metrics = tools.metrics
        self._narrator = tools.narrator
        self._retry = tools.retry
        self._clock = tools.clock
        self._space = space
        self._table = table
        self._lookup = lookup
        self._deletion = deletion
        self._attachments_known = attachments_known
        self._writes = finalizers
        self._on_forbidden = on_forbidden
        self._finalizers = VolumeFinalizers(tools.kube)
        self._dry_run = tools.dry_run
        self.unowned = Unowned(tools, here=here)
        self._asked: dict[str, tuple[str, str]] = {}
        """By name: the uid of a volume that the driver was asked to delete, and what has become of it, for whoever keeps it after all."""
        self._upkeep = UndoneWrites[str](tools.retry)
        self._emptying: dict[str, float] = {}
        """By name: since when a volume is being deleted."""
        self._unpermitted: dict[str, str] = {}
        """By name: the uid of a volume of which the log says that its finalizer may not be taken off."""
        self.attempts = PacedAttempts()

    def namespace_of(self, name: str) -> str:
        """For the turns of namespaces, as with claims."""
        volume = self._caches.volumes.get(name)
        return volume.claim.namespace if volume is not None and volume.claim is not None else ""

    def view(self, name: str) -> VolumeView:
        """The view of one volume, from the caches and the progress of this process."""
        volume, now = self._caches.volumes.get(name), self._clock()
        return VolumeView(
            here=self._here(),
            now=now,
            pace=self.attempts.pace(name, now),
            volume=volume,
            class_=self._caches.classes.get(volume.class_name) if volume else None,
            progress=self._table.removal_step(volume) if volume else RemovalStep.NOT_YET,
            attachments_known=self._attachments_known(),
            attached_to=tuple(sorted(item.node for item in self._caches.attachments.by_index("volume", name))),
            finalizers=self._writes(),
        )

    def glance(self, name: str) -> float | NeedsWork | None:
        """What `handle` does where there is nothing to be done, which is nearly always."""
        decision = decide_volume(self.view(name))
        is_told = isinstance(decision, Rest) and name in self._asked
        if self.unowned.is_due(name) or is_told or not isinstance(decision, Rest | Wait):
            return WORK
        self._narrator.note(ROOM, name, name, decision)
        if isinstance(decision, Wait):
            return decision.until
        self._forget_volume(name)
        return None

    async def handle(self, name: str) -> float | None:
        """Looks at a volume once, and carries out what was decided."""
        view = self.view(name)
        decision = decide_volume(view)
        self._narrator.note(ROOM, name, name, decision)
        if self._dry_run and not isinstance(decision, Rest):
            return None
        self._tell_too_late(view.volume, decision)
        if is_try(decision):
            if (turn := self._upkeep_turn(decision)) > view.now:
                return turn
            self.attempts.begun(name, view.now, ends_pause=not isinstance(decision, Finalize | Unfinalize))
        try:
            if self.unowned.is_due(name):
                await self.unowned.look(name)
            return await self._perform(name, decision, view.finalizers)
        except NotFound:
            return None
        except ApiError as error:
            if isinstance(error, Forbidden) and isinstance(decision, Finalize | Unfinalize):
                self._on_forbidden()
            if view.volume is not None and _takes_away(decision, view.volume) and not isinstance(error, Unavailable):
                # A server that has just started may forbid everything for a moment, so it is tried again soon, whatever the back-off says.
                return min(self._not_deleted(view.volume, str(error)), self._clock() + UNSTORED)
            log.warning(
                "Work on a volume failed: tried again later",
                extra={"fields": {"volume": name, "why": decision.why, "err": str(error)}},
            )
            return min(self._later(name), self._clock() + UNSTORED)

    async def _perform(self, name: str, decision: VolumeDecision, writes: FinalizerWrites) -> float | None:
        match decision:
            case Rest():
                self._forget_volume(name)
                return None
            case Wait(until):
                return until
            case Hold(volume, why):
                return self._not_deleted(volume, why)
            case Unpermitted(volume, why):
                is_told = self._unpermitted.get(volume.name) == volume.uid
                self._unpermitted[volume.name] = volume.uid
                return self._not_deleted(volume, why, logs=not is_told)
            case Empty(volume, secret):
                return await self._empty(volume, secret)
            case Remove(volume):
                self._asked.pop(volume.name, None)
                await self._kube.delete(VOLUMES, volume.name, uid=volume.uid)
                self._table.reach_removal_step(volume, RemovalStep.REMOVED)
                self._metrics.deleted(volume.class_name, self._clock() - self._emptying.pop(volume.name, self._clock()))
                return None
            case Finalize(volume):
                is_on = await self._finalizers.put_on(volume, writes)
                self._wrote_finalizers(volume)
                return None if is_on else max(self._upkeep_turn(decision), self._clock())
            case Unfinalize(volume):
                await self._finalizers.take_off(volume, writes)
                if volume.deleting:
                    self._table.reach_removal_step(volume, RemovalStep.UNFINALIZED)
                else:
                    self._wrote_finalizers(volume)
                return None
            case _:
                assert_never(decision)

    async def _empty(self, volume: Volume, secret: SecretRef | None) -> float | None:
        # Called only when the rule allows the deletion, so no Secret is read for a volume that is kept.
        async def begin() -> Mapping[str, str]:
            self._emptying.setdefault(volume.name, self._clock())
            return await self._lookup.secret_if_any(secret, about=volume.name)

        view = DeletionView(reason=Released(volume), handle=volume.handle)
        try:
            kept = await self._deletion.delete(view, secrets=begin, name=volume.name)
        except NotSent as error:
            return self._not_deleted(volume, str(error))
        except DriverError as error:
            if is_over(error):
                self._asked.pop(volume.name, None)
            else:
                self._asked[volume.name] = volume.uid, _MAY_GO
            # The driver was asked, and an error does not say that nothing was deleted: the free space may have changed.
            self._space.changed(volume.class_name, placed=volume.affinity is not None)
            return self._not_deleted(volume, str(error))
        if kept is not None:
            # Nobody is told about a decision on an old view: the watch will bring the new one, and it is decided again.
            return self._later(volume.name) if kept.outdated else self._not_deleted(volume, kept.why + _IN_USE)
        self._space.freed(volume.class_name, volume.size, placed=volume.affinity is not None)
        self._table.reach_removal_step(volume, RemovalStep.EMPTIED)
        self._asked[volume.name] = volume.uid, _GONE
        log.info("Volume deleted", extra={"fields": {"volume": volume.name, "handle": volume.handle}})
        return self._clock()

    def _tell_too_late(self, volume: Volume | None, decision: VolumeDecision) -> None:
        """To somebody who keeps a volume, by its reclaim policy or for another claim, when its deletion had begun."""
        if volume is None or not isinstance(decision, Rest | Unfinalize):
            return
        uid, what = self._asked.pop(volume.name, ("", ""))
        if uid == volume.uid and not volume.deleting:
            self._record(volume, what.format(self._here().node))

    def _upkeep_turn(self, decision: VolumeDecision) -> float:
        """When our finalizer may be put on, or taken off, again; 0.0: now, or nothing of the kind is to be done."""
        if not isinstance(decision, Finalize | Unfinalize) or decision.volume.deleting:
            return 0.0
        return self._upkeep.turn(decision.volume.uid)

    def _wrote_finalizers(self, volume: Volume) -> None:
        if self._upkeep.wrote(volume.uid, self._clock()) == TOLD_AT:
            fields = {"volume": volume.name, "handle": volume.handle, "finalizer": names.VOLUME_FINALIZER}
            log.warning("Something undoes what is written to the finalizers of a PersistentVolume", extra={"fields": fields})

    def _forget_volume(self, name: str) -> None:
        if self._caches.volumes.get(name) is None:
            self._table.forget_volume(name)
            self._emptying.pop(name, None)
            self._asked.pop(name, None)
            self._unpermitted.pop(name, None)

    def _not_deleted(self, volume: Volume, why: str, *, logs: bool = True) -> float:
        self._metrics.delete_failed(volume.class_name)
        self._record(volume, why)
        if logs:
            log.warning("Deleting a volume failed", extra={"fields": {"volume": volume.name, "handle": volume.handle, "err": why}})
        return self._later(volume.name)

    def _record(self, volume: Volume, why: str) -> None:
        ref = ObjectRef("v1", names.VOLUME, "", volume.name, volume.uid, volume.resource_version)
        self._recorder.record(ref, names.WARNING, names.VOLUME_FAILED_DELETE, why)

    def _later(self, name: str) -> float:
        now = self._clock()
        until = on_a_beat(now, self.attempts.failed(name, now, self._retry))
        self.attempts.paused(name, now, until)
        return until


def _takes_away(decision: VolumeDecision, volume: Volume) -> bool:
    """Whether the decision is part of a deletion. If our finalizer cannot be put on, or be taken off a volume that stays, no deletion has
    failed, and none is reported."""
    return isinstance(decision, Empty | Remove) or (isinstance(decision, Unfinalize) and volume.deleting)
