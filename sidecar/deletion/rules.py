"""Decides whether the driver may be asked to delete a volume. Deleted data cannot be restored, so every place that deletes uses this rule.

The caches may be late, and they do not hold every PersistentVolume. So the caller reads each fact from the API server itself, in the order
in which the rule needs it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from sidecar.model.objects import Claim, Volume


class Fact(Enum):
    """What has to be known before a volume is deleted."""

    VOLUME = "the PersistentVolume that bears the volume's name"
    CLAIM = "the claim that it was made for"
    HANDLE = "the driver's name for it"
    USERS = "the PersistentVolumes that have its handle"


class NotAsked(Enum):
    """The value of a fact that was not asked for yet. This differs from None, which means that there is no such object."""

    NOT_ASKED = "not asked"


NOT_ASKED: Final = NotAsked.NOT_ASKED

_LONG_AGO: Final = "it was begun by a process that is gone for long, and PersistentVolume {} may have come and gone since"


@dataclass(frozen=True, slots=True)
class Found:
    """A PersistentVolume of this driver, as the API server has it now."""

    volume: Volume
    elsewhere: bool = False
    """Something contradicts that it lies on this node, and it was not made here."""


@dataclass(frozen=True, slots=True)
class Released:
    """A PersistentVolume whose claim is gone and whose reclaim policy is Delete."""

    volume: Volume
    """As it was when the deletion was decided."""


@dataclass(frozen=True, slots=True)
class OnFile:
    """Only a file says that the volume was begun here, and others may write in its folder."""

    claim_uid: str
    volume_name: str


@dataclass(frozen=True, slots=True)
class Undone:
    """The driver has just created the volume, and the claim cannot use it; or its deletion was begun, and is to end."""

    on_file: OnFile | None = None
    unproven: tuple[str, str] | None = None
    """As in `Orphaned`: the claim's uid and the volume's name."""


@dataclass(frozen=True, slots=True)
class Orphaned:
    """The creation of the volume was begun, and the claim no longer needs it."""

    node: str
    """This node."""
    claim_uid: str
    volume_name: str
    reclaim_policy: str
    inherited: bool
    """The creation was begun by a process that is gone. That process may have stored the PersistentVolume, and nobody here knows."""
    on_file: OnFile | None = None
    unproven: bool = False
    """That process is gone for so long that something else may have run here, and people may have kept the volume since."""
    renamed: bool = False
    """The claim's volume has another name now, so this one is not made again for it."""
    sought: bool = False
    """The driver was asked for the volume, and may have made it when that of its PersistentVolume was deleted."""
    shown: str = ""
    """The handle that its PersistentVolume had since."""
    sent: bool = False
    """Its PersistentVolume may have been sent, and may still arrive."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A person wants it gone, of which this program cannot tell whether somebody wants it kept."""

    claim_uid: str
    volume_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionView:
    """Why a volume is to be deleted, and what is known about it so far."""

    reason: Released | Undone | Orphaned | Asked
    handle: str = ""
    """The driver's name for the volume; empty if it is not known yet."""
    any_node: bool = False
    """The driver says that the volume is on another node. Then its handles are unique in the cluster, and any PersistentVolume with this
    handle uses the volume. With most drivers, equal handles on different nodes mean different volumes."""
    volume: Found | Literal[NotAsked.NOT_ASKED] | None = NOT_ASKED
    claim: Claim | Literal[NotAsked.NOT_ASKED] | None = NOT_ASKED
    users: tuple[Found, ...] | Literal[NotAsked.NOT_ASKED] = NOT_ASKED


@dataclass(frozen=True, slots=True)
class Need:
    """This fact has to be known first."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Delete:
    """Nobody uses the volume: the driver may be asked to delete it."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The driver must not be asked to delete it."""

    why: str
    suspected: bool = False
    """The volume may be left behind without an owner, and nothing shows whether it is."""
    outdated: bool = False
    """The decision to delete was made on an old view of the volume or its claim, and has to be made again on the new one."""


def may_delete(view: DeletionView) -> Need | Delete | Keep:
    """Whether the driver may be asked to delete the volume, or which fact has to be known before that can be said."""
    match view.reason:
        case Released(volume):
            # The volume itself is read last: listing all of them may take seconds, in which somebody may decide to keep it.
            return _used(view, besides=volume.name) or _changed(view, volume) or Delete()
        case Undone(on_file, unproven):
            return _perhaps_kept(view, unproven) or _used(view) or _named_elsewhere(view, on_file) or Delete()
        case Asked() as asked:
            return _has_a_user(view, asked) or Delete()
        case Orphaned() as orphan:
            return _wanted(view, orphan) or _used(view) or _named_elsewhere(view, orphan.on_file) or Delete()


def _used(view: DeletionView, *, besides: str = "") -> Need | Keep | None:
    """Keeps a volume whose handle another PersistentVolume has, whatever the state of that one. Somebody may have created it by hand to
    reach this very data; such an object may have no node affinity and be in no cache."""
    if not view.handle:
        return Need(Fact.HANDLE)
    if view.users is NOT_ASKED:
        return Need(Fact.USERS)
    others = (found for found in view.users if found.volume.name != besides)
    user = next((found.volume.name for found in others if view.any_node or found.volume.affinity is None or not found.elsewhere), None)
    return None if user is None else Keep(f"PersistentVolume {user} has the same handle")


def _named_elsewhere(view: DeletionView, on_file: OnFile | None) -> Keep | None:
    """Keeps what a PersistentVolume of another node names, where nothing but a file speaks for a volume of this node. With handles that are
    equal on all nodes that may be a leftover; but it may also be the other one. The claim's own does not count: it went there from here."""
    if on_file is None or view.users is NOT_ASKED:
        return None
    others = (found.volume for found in view.users if not _is_own(found.volume, on_file))
    user = next((volume.name for volume in others), None)
    return None if user is None else Keep(f"PersistentVolume {user} of another node has the same handle", suspected=True)


def _is_own(volume: Volume, on_file: OnFile) -> bool:
    return volume.name == on_file.volume_name and volume.claim is not None and volume.claim.uid == on_file.claim_uid


def _perhaps_kept(view: DeletionView, unproven: tuple[str, str] | None) -> Need | Keep | None:
    """A deletion that was begun long ago: the volume may have been made anew since, and kept. Only the claim could show that it was not."""
    if unproven is None:
        return None
    if view.claim is NOT_ASKED:
        return Need(Fact.CLAIM)
    uid, name = unproven
    gone = view.claim is None or view.claim.uid != uid or view.claim.volume_name == name
    return Keep(_LONG_AGO.format(name), suspected=True) if gone else None


def _has_a_user(view: DeletionView, asked: Asked) -> Need | Keep | None:
    """Keeps what any object leads to, on whatever node: a person who errs cannot be asked again."""
    if view.volume is NOT_ASKED:
        return Need(Fact.VOLUME)
    if view.volume is not None:
        return Keep(f"PersistentVolume {asked.volume_name} exists")
    if view.claim is NOT_ASKED:
        return Need(Fact.CLAIM)
    if view.claim is not None and view.claim.uid == asked.claim_uid and (use := _may_use(view.claim, asked.volume_name)):
        return Keep(f"its claim {view.claim.full_name} exists and {use}; delete the claim first, if nobody wants its data")
    if not view.handle:
        return Need(Fact.HANDLE)
    if view.users is NOT_ASKED:
        return Need(Fact.USERS)
    user = next((found.volume.name for found in view.users), None)
    return None if user is None else Keep(f"PersistentVolume {user} has the same handle")


def _may_use(claim: Claim, volume_name: str) -> str:
    """Why the claim may use the volume; empty: it has another one, for it is bound for good."""
    if claim.volume_name == volume_name:
        return "is bound to a PersistentVolume of that name"
    return "" if claim.volume_name else "has no volume yet"


def _changed(view: DeletionView, decided_on: Volume) -> Need | Keep | None:
    if view.volume is NOT_ASKED:
        return Need(Fact.VOLUME)
    if view.volume is None:
        return Keep(f"PersistentVolume {decided_on.name} is gone", outdated=True)
    now = view.volume.volume
    if (now.uid, now.resource_version) != (decided_on.uid, decided_on.resource_version):
        return Keep(f"PersistentVolume {decided_on.name} has changed", outdated=True)
    return None


def _is_stored(view: DeletionView, orphan: Orphaned, volume: Volume) -> Keep | None:
    """None: what the driver was asked for may be another volume than its PersistentVolume's, and the driver has to say so."""
    why = f"PersistentVolume {orphan.volume_name} is stored"
    if not orphan.sought or view.handle == volume.handle:
        return Keep(why)
    if not view.handle:
        return None
    beside = f"{why} with handle {volume.handle!r}, and the driver has volume {view.handle!r} of that name"
    return Keep(beside, suspected=bool(orphan.shown), outdated=not orphan.shown)


def _wanted(view: DeletionView, orphan: Orphaned) -> Need | Keep | None:
    """Keeps a volume that is in use, that may be used again, or that somebody may have used and wants to keep."""
    if view.volume is NOT_ASKED:
        return Need(Fact.VOLUME)
    stored = view.volume
    if stored is not None and stored.volume.claim is not None and stored.volume.claim.uid == orphan.claim_uid and not stored.elsewhere:
        if (kept := _is_stored(view, orphan, stored.volume)) is not None:
            return kept
    elif orphan.shown and view.handle == orphan.shown:
        # Many drivers make the handle from the name, so this may be one that was made since, or the data that somebody keeps.
        return Keep(f"PersistentVolume {orphan.volume_name} had that handle, and has come and gone", suspected=True)
    if view.claim is NOT_ASKED:
        return Need(Fact.CLAIM)
    claim = view.claim
    if claim is None or claim.uid != orphan.claim_uid:
        # The claim is gone, so it can no longer show that it never had the volume. If the class keeps volumes, an administrator may have
        # removed the PersistentVolume and kept the data.
        if orphan.inherited and orphan.unproven:
            return Keep(_LONG_AGO.format(orphan.volume_name), suspected=True)
        if orphan.inherited and orphan.reclaim_policy != "Delete":
            return Keep(f"its class keeps volumes, and PersistentVolume {orphan.volume_name} may have come and gone", suspected=True)
        return None
    if not claim.volume_name and claim.selected_node == orphan.node and not orphan.renamed:
        return Keep("the claim is this node's again", outdated=True)
    if not claim.volume_name and orphan.sent:
        # Wherever the claim has gone: it would be bound to what arrives. The caches may not have it.
        return Keep(f"PersistentVolume {orphan.volume_name} may have been sent and still arrive, and its claim is not bound", outdated=True)
    if orphan.inherited and claim.volume_name == orphan.volume_name and stored is None:
        return Keep(f"the claim is bound to PersistentVolume {orphan.volume_name}, which is gone", suspected=True)
    return None
