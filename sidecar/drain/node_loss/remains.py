"""Decides what becomes of each thing that a node has left: all is told, and under Cleanup, with evidence, some of it is cleared away.

Without evidence that the disks do not come back, nothing is touched. Data is kept where somebody has said so (reclaim policy Retain,
snapshots), pods are pod garbage collection's, and the node's capacity objects are for `capacity/gone_nodes`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sidecar.drain import machine_mark
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss import unplaced
from sidecar.drain.node_loss.evidence import Evidence, Gone, Unproven
from sidecar.drain.node_loss.things import AttachmentThere, ClaimThere, LostVolume, PodThere
from sidecar.drain.remade import NotRemade, ReplicatedSet, who_remakes
from sidecar.model import names


class Step(StrEnum):
    """What is done with it now. Each is one request, on condition that the object is as it was judged."""

    NOTHING = "Nothing"
    MARK_CLAIM = "MarkClaim"
    """Note on the claim with which machine its data was lost; only such a claim is deleted."""
    DELETE_CLAIM = "DeleteClaim"
    EMPTY_VOLUME = "EmptyVolume"
    """Have this node's driver delete what another node has made: a volume without node affinity, which any of its instances deletes."""
    DELETE_VOLUME = "DeleteVolume"
    RELEASE_VOLUME = "ReleaseVolume"
    """Take our finalizer off a PersistentVolume that is being deleted: its disks are not emptied."""


@dataclass(frozen=True, slots=True)
class Remain:
    """One thing, and what becomes of it."""

    kind: str
    namespace: str
    name: str
    uid: str
    step: Step
    why: str
    resource_version: str = ""
    volume: str = ""
    """Of a claim: its PersistentVolume."""


@dataclass(frozen=True, slots=True)
class RemainsView:
    """All that the rule looks at, as it is now."""

    loss: Gone | Unproven
    cleanup: bool
    """The policy is Cleanup and not Orphan, and the node has been gone for as long as the flag says."""
    volumes: tuple[LostVolume, ...]
    claims: Mapping[str, ClaimThere]
    """By uid: those that the volumes name, and that are there."""
    sets: tuple[ReplicatedSet, ...] = ()
    """Of the namespaces of the claims."""
    pods: tuple[PodThere, ...] = ()
    """Of the node, and those with a node that have one of the claims."""
    attachments: tuple[AttachmentThere, ...] = ()
    deleted: Collection[str] | None = None
    """Uids of volumes without node affinity that the driver has deleted; None: it is not asked from here."""


def remains(view: RemainsView) -> tuple[Remain, ...]:
    """Claims first, because their volumes are released by that."""
    return (
        *_claims(view),
        *(_volume(view, lost) for lost in view.volumes),
        *(_attachment(item) for item in view.attachments),
        *(Remain(names.POD, pod.namespace, pod.name, pod.uid, Step.NOTHING, "pod garbage collection deletes it") for pod in view.pods),
    )


@dataclass(frozen=True, slots=True)
class Untouched:
    """Nothing of the node is touched at all."""

    why: str


def machine_to_clear(view: RemainsView) -> Machine | Untouched:
    """The machine whose things may be cleared away."""
    match view.loss:
        case Unproven(why):
            return Untouched(why)
        case Gone(_, Evidence.NONE):
            return Untouched("nobody has said that the disks do not come back")
        case Gone(machine):
            return machine if view.cleanup else Untouched("the policy is Orphan, or the node has not been gone for long enough")


def _claims(view: RemainsView) -> Iterator[Remain]:
    for lost in view.volumes:
        ref = lost.volume.claim
        there = view.claims.get(ref.uid) if ref else None
        if there is not None and there.volume == lost.volume.name:
            step, why = _of_claim(view, there, lost)
            yield Remain(
                names.CLAIM,
                there.claim.namespace,
                there.claim.name,
                there.uid,
                step,
                why,
                resource_version=there.resource_version,
                volume=lost.volume.name,
            )


def _of_claim(view: RemainsView, there: ClaimThere, lost: LostVolume) -> tuple[Step, str]:
    if there.deleting:
        others = [item for item in there.finalizers if item != names.CLAIM_PROTECTION]
        return (
            Step.NOTHING,
            f"it is being deleted, and finalizers of others keep it: {', '.join(others)}" if others else "it is being deleted",
        )
    remade = who_remakes(there.claim, view.sets)
    if isinstance(remade, NotRemade):
        return Step.NOTHING, remade.why
    machine = machine_to_clear(view)
    if isinstance(machine, Untouched):
        return Step.NOTHING, machine.why
    if lost.lies_on != machine:
        return Step.NOTHING, "its volume does not say that it was on this machine"
    if (there.selected_node, there.provisioner) != (machine.node, lost.volume.driver):
        # A claim that was bound by hand, or by a backup tool, and one of a node that was renamed: a person knows more of it.
        return Step.NOTHING, f"it does not say that {lost.volume.driver} made its volume for node {machine.node}, by which policies know it"
    if users := _users(view.pods, there):
        return Step.NOTHING, f"pod {users[0].name} with node {users[0].node} has it"
    step = Step.DELETE_CLAIM if there.lost_with == machine_mark.text(machine) else Step.MARK_CLAIM
    return step, f"its data was lost with the node; {remade.by} makes it again"


def _users(pods: Iterable[PodThere], there: ClaimThere) -> list[PodThere]:
    claim = there.claim
    return [pod for pod in pods if pod.node and pod.namespace == claim.namespace and claim.name in pod.claims]


def _volume(view: RemainsView, lost: LostVolume) -> Remain:
    volume = lost.volume
    step, why = _of_volume(view, lost)
    return Remain(names.VOLUME, "", volume.name, volume.uid, step, why, resource_version=volume.resource_version)


def _of_volume(view: RemainsView, lost: LostVolume) -> tuple[Step, str]:
    volume = lost.volume
    if volume.reclaim_policy != "Delete":
        kept = f"reclaim policy is {volume.reclaim_policy or 'not set'}, not Delete"
        held = volume.deleting and names.VOLUME_FINALIZER in volume.finalizers
        return Step.NOTHING, f"{kept}; its deletion waits for {names.VOLUME_FINALIZER}, which is a person's to take off" if held else kept
    if volume.phase != "Released":
        return Step.NOTHING, f"phase is {volume.phase or 'not set'}, not Released"
    if volume.claim is not None and (there := view.claims.get(volume.claim.uid)) is not None and there.volume == volume.name:
        # The volume controller has not been at it since somebody bound it again, as after the restoration of a backup.
        return Step.NOTHING, f"claim {there.claim.namespace}/{there.claim.name} is there, and bound to it"
    machine = machine_to_clear(view)
    if isinstance(machine, Untouched):
        return Step.NOTHING, machine.why
    if lost.lies_on != machine:
        return Step.NOTHING, "it does not say that it was on this machine"
    if any(item.volume == volume.name for item in view.attachments):
        return Step.NOTHING, "a VolumeAttachment names it"
    if volume.affinity is None:
        if why := unplaced.doubt(lost, machine):
            return Step.NOTHING, why
        if view.deleted is None:
            return Step.NOTHING, "it has no node affinity, and another program asks the driver to delete volumes"
        if volume.uid not in view.deleted:
            return Step.EMPTY_VOLUME, "it has no node affinity and its maker is gone, so the driver is asked from here"
    if not volume.deleting:
        return Step.DELETE_VOLUME, "its disks are gone with the node"
    if names.VOLUME_FINALIZER in volume.finalizers:
        return Step.RELEASE_VOLUME, "its disks are gone with the node, and nobody else would take our finalizer off"
    return Step.NOTHING, "it is being deleted, and finalizers of others keep it" if volume.finalizers else "it is being deleted"


def _attachment(item: AttachmentThere) -> Remain:
    why = "the attach-detach controller deletes it" if not item.deleting else "it is being deleted; its finalizer is the attacher's"
    return Remain(names.ATTACHMENT, "", item.name, item.uid, Step.NOTHING, why, volume=item.volume)
