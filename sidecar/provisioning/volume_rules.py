"""What to do with a volume next: one look, one decision, as for claims. What is done on its word is `removal`'s."""

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.model import names
from sidecar.model.objects import Json, Volume, affinity_of, identity_of
from sidecar.model.topology import Term
from sidecar.provisioning.request import Unfit, missing_capability
from sidecar.provisioning.secrets import SecretRef, deletion_secret
from sidecar.provisioning.view import Here, Leaving, VolumeView


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do, now or later; the next change of the object asks again."""

    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The volume must not go yet. Tried again with back-off."""

    volume: Volume
    why: str


@dataclass(frozen=True, slots=True)
class Empty:
    """Have the driver delete what is behind the volume."""

    volume: Volume
    secret: SecretRef | None
    why: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the PersistentVolume: nothing is behind it any more."""

    volume: Volume
    why: str


@dataclass(frozen=True, slots=True)
class Unfinalize:
    """Take our finalizer off, so that the PersistentVolume can go."""

    volume: Volume
    why: str


@dataclass(frozen=True, slots=True)
class Finalize:
    """Put our finalizer on, so that the PersistentVolume does not go before what is behind it."""

    volume: Volume
    why: str


VolumeDecision = Rest | Hold | Empty | Remove | Unfinalize | Finalize


def decide_volume(view: VolumeView) -> VolumeDecision:
    """What to do with a volume next."""
    volume = view.volume
    if volume is None:
        return Rest("the volume is gone or another node's")
    if excluded := _not_ours(view.here, volume) or _upkeep(volume) or _not_deletable(volume):
        return excluded
    if view.progress is not Leaving.NOT_YET:
        return _leave(view.progress, volume)
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


def _upkeep(volume: Volume) -> Finalize | Unfinalize | None:
    """Our finalizer is on volumes that this program will empty, and on no others."""
    has_it = names.VOLUME_FINALIZER in volume.finalizers
    if volume.reclaim_policy in ("Retain", "Recycle") and has_it:
        return Unfinalize(volume, f"reclaim policy {volume.reclaim_policy}: what is behind it is not deleted by this program")
    if volume.reclaim_policy == "Delete" and volume.phase == "Bound" and not volume.deleting and not has_it:
        return Finalize(volume, "reclaim policy Delete: what is behind it goes first")
    return None


def _not_deletable(volume: Volume) -> Rest | None:
    if volume.deleting and names.VOLUME_FINALIZER not in volume.finalizers:
        return Rest("being deleted, and this program's finalizer is gone")
    if volume.phase != "Released":
        return Rest(f"phase is {volume.phase or 'not set'}, not Released")
    if volume.reclaim_policy != "Delete":
        return Rest(f"reclaim policy is {volume.reclaim_policy or 'not set'}, not Delete")
    return None


def lies_here(here: Here, volume: Volume) -> bool:
    """Whether this node's driver has it."""
    return _lies_here(here, volume.affinity, volume.identity)


def lies_elsewhere(here: Here, volume: Volume) -> bool:
    """Something speaks against this node. Neither this nor `lies_here` holds for what asks for labels that this driver does not report."""
    if volume.affinity is not None and here.with_topology:
        return not any(term.may_match(here.node, here.segment.labels()) for term in volume.affinity)
    return not lies_here(here, volume)


def concerns_us(here: Here, obj: Json) -> bool:
    """The same of a PersistentVolume as it comes: of the volumes of all the other nodes not even a record is made."""
    driver = ((obj.get("spec") or {}).get("csi") or {}).get("driver")
    return driver == here.driver.name and _lies_here(here, affinity_of(obj), identity_of(obj))


def may_lie_here(here: Here, obj: Json, hostname: str) -> bool:
    """Of a PersistentVolume as it comes: it is this driver's, and nothing that is known at once speaks against this node.

    Volumes that people made may ask for labels of nodes that no driver reports, of which its hostname is the usual one.
    """
    if ((obj.get("spec") or {}).get("csi") or {}).get("driver") != here.driver.name:
        return False
    known = {**({names.HOSTNAME: hostname} if hostname else {}), **here.segment.labels()}
    return any(term.may_match(here.node, known) for term in affinity_of(obj) or ())


def _lies_here(here: Here, affinity: tuple[Term, ...] | None, identity: str) -> bool:
    """Drivers answer OK when asked to delete a volume they do not know, so only the node that has it may ask.

    Without node affinity, or where that also asks for what this driver does not report, the identity says who made it:
    `<time>-<random>-<driver>-<node>`.
    """
    made_here = identity.split("-", 2)[-1] == f"{here.driver.name}-{here.node}"
    if affinity is None or not here.with_topology:
        return made_here
    labels = here.segment.labels()
    return any(_places_here(here, term, labels, made_here=made_here) for term in affinity)


def _places_here(here: Here, term: Term, labels: Mapping[str, str], *, made_here: bool) -> bool:
    """What names no place of this driver, or only excludes others, is true of many nodes."""
    if not term.names_values(labels):
        return made_here and term.holds(labels)
    return term.holds(labels) or (made_here and term.may_match(here.node, {names.HOSTNAME: here.node, **labels}))


def _blocked(view: VolumeView, volume: Volume) -> Hold | None:
    if not view.attachments_known:
        return Hold(volume, "whether it is attached is not known: VolumeAttachments cannot be read; grant list and watch, and restart")
    if view.attached_to:
        return Hold(volume, f"still attached to node {', '.join(view.attached_to)}")
    if not volume.handle:
        return Hold(volume, "the volume has no handle, so the driver cannot be asked to delete it")
    if unfit := missing_capability(view.here):
        return Hold(volume, unfit.why)
    return None


def _leave(progress: Leaving, volume: Volume) -> Remove | Unfinalize | Rest:
    if progress is Leaving.UNFINALIZED or (progress is Leaving.REMOVED and not volume.deleting):
        return Rest("all is done; only the watch has to show it")
    if volume.deleting:
        return Unfinalize(volume, "the driver has deleted what was behind it")
    return Remove(volume, "the driver has deleted what was behind it")


def _claim_of(volume: Volume) -> str:
    return f"claim {volume.claim.namespace}/{volume.claim.name}" if volume.claim else "its claim"
