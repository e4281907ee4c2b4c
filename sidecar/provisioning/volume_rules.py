"""Decides what to do with a volume next: each look gives one decision, as for claims. `removal` carries it out."""

from dataclasses import dataclass

from sidecar.local.here import Here
from sidecar.local.volume_location import lies_here
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.provisioning.progress import RemovalStep
from sidecar.provisioning.requests.request import Unfit, missing_capability
from sidecar.provisioning.requests.secrets import SecretRef, deletion_secret
from sidecar.provisioning.view import VolumeView
from sidecar.rights.rights import FINALIZER_REMEDY, FinalizerWrites


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do, now or later, until the object changes."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at that time."""

    until: float
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The volume must not be deleted yet; it is tried again with back-off."""

    volume: Volume
    why: str


@dataclass(frozen=True, slots=True)
class Empty:
    """Have the driver delete its volume. The PersistentVolume stays until that has succeeded: without it nobody would know of the data."""

    volume: Volume
    secret: SecretRef | None
    why: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the PersistentVolume: the driver's volume is gone."""

    volume: Volume
    why: str


@dataclass(frozen=True, slots=True)
class Unfinalize:
    """Take our finalizer off the PersistentVolume."""

    volume: Volume
    why: str


@dataclass(frozen=True, slots=True)
class Finalize:
    """Put our finalizer on, so that the PersistentVolume cannot go before the driver's volume."""

    volume: Volume
    why: str


@dataclass(frozen=True, slots=True)
class Unpermitted:
    """Our finalizer keeps a PersistentVolume that is being deleted, and the role does not allow to take it off. That is told, and looked at
    again with back-off; a right that comes ends it at once."""

    volume: Volume
    why: str


VolumeDecision = Rest | Wait | Hold | Empty | Remove | Unfinalize | Finalize | Unpermitted


def decide_volume(view: VolumeView) -> VolumeDecision:
    """What to do with a volume next."""
    decision, turn = _decide(view), view.pace.turn()
    return Wait(turn, view.pace.why_later(decision.why)) if is_try(decision) and turn > view.now else decision


def was_merely_bound(old: Volume | None, new: Volume | None) -> bool:
    """Of a change: it is the one that every volume goes through, and leaves nothing to do. So no look is needed, whatever else is known."""
    if old is None or new is None or old.uid != new.uid:
        return False
    waited = old.phase in ("", "Pending", "Available") and not old.deleting
    return waited and new.phase == "Bound" and not new.deleting and _upkeep(new, FinalizerWrites.BY_PATCH) is None


def is_try(decision: VolumeDecision) -> bool:
    """Whether it asks anything of the driver or the API server, events apart."""
    return not isinstance(decision, Rest | Wait | Hold | Unpermitted)


def _decide(view: VolumeView) -> VolumeDecision:
    volume = view.volume
    if volume is None:
        return Rest("the volume is gone or another node's")
    if excluded := _not_ours(view.here, volume) or _upkeep(volume, view.finalizers) or _not_deletable(volume):
        return excluded
    if view.progress is not RemovalStep.NOT_YET:
        return _leave(view.progress, volume, view.finalizers)
    if blocked := _blocked(view, volume):
        return blocked
    secret = deletion_secret(volume, view.class_)
    if isinstance(secret, Unfit):
        return Hold(volume, secret.why)
    return Empty(volume, secret, f"released by {_claim_of(volume)}, reclaim policy Delete")


def _not_ours(here: Here, volume: Volume) -> Rest | None:
    by = volume.driver if volume.provisioned_by is None else volume.provisioned_by
    if by != here.driver.name or volume.driver != here.driver.name:
        return Rest("another driver's volume")
    if not lies_here(here, volume):
        return Rest("not demonstrably on this node: its node affinity does not match, or it has none and another instance made it")
    return None


def _upkeep(volume: Volume, writes: FinalizerWrites) -> Finalize | Unfinalize | Unpermitted | None:
    """Keeps our finalizer on the volumes whose data this program will delete, and on no others. A reclaim policy may change at any time.

    Where it could not be taken off, it is not put on. One that a volume has all the same matters when that is deleted, not before."""
    has_it = names.VOLUME_FINALIZER in volume.finalizers
    if volume.reclaim_policy in ("Retain", "Recycle") and has_it:
        why = f"reclaim policy {volume.reclaim_policy}: this program does not delete the driver's volume"
        if writes is FinalizerWrites.NEVER:
            return _unpermitted(volume, why) if volume.deleting else None
        return Unfinalize(volume, why)
    if writes is FinalizerWrites.NEVER:
        return None
    if volume.reclaim_policy == "Delete" and volume.phase == "Bound" and not volume.deleting and not has_it:
        return Finalize(volume, "reclaim policy Delete: the driver's volume is to be deleted before its PersistentVolume")
    return None


def _not_deletable(volume: Volume) -> Rest | None:
    if volume.deleting and names.VOLUME_FINALIZER not in volume.finalizers:
        return Rest("being deleted, and this program's finalizer is gone")
    if volume.phase != "Released":
        return Rest(f"phase is {volume.phase or 'not set'}, not Released")
    if volume.reclaim_policy != "Delete":
        return Rest(f"reclaim policy is {volume.reclaim_policy or 'not set'}, not Delete")
    return None


def _blocked(view: VolumeView, volume: Volume) -> Hold | None:
    if not view.attachments_known:
        return Hold(volume, "whether it is attached is not known: VolumeAttachments cannot be read; grant list and watch")
    if view.attached_to:
        return Hold(volume, f"still attached to node {', '.join(view.attached_to)}")
    if not volume.handle:
        return Hold(volume, "the volume has no handle, so the driver cannot be asked to delete it")
    if unfit := missing_capability(view.here):
        return Hold(volume, unfit.why)
    return None


def _leave(progress: RemovalStep, volume: Volume, writes: FinalizerWrites) -> Remove | Unfinalize | Unpermitted | Rest:
    """The rest of the removal, once the driver has deleted its volume."""
    if progress is RemovalStep.UNFINALIZED or (progress is RemovalStep.REMOVED and not volume.deleting):
        return Rest("all is done; only the watch has to show it")
    why = "the driver has deleted its volume"
    if not volume.deleting:
        return Remove(volume, why)
    return _unpermitted(volume, why) if writes is FinalizerWrites.NEVER else Unfinalize(volume, why)


def _unpermitted(volume: Volume, why: str) -> Unpermitted:
    return Unpermitted(volume, f"{why}, and the finalizer {names.VOLUME_FINALIZER} may not be taken off: {FINALIZER_REMEDY}")


def _claim_of(volume: Volume) -> str:
    return f"claim {volume.claim_name}" if volume.claim else "its claim"
