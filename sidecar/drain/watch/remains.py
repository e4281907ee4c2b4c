"""What becomes of each thing that a gone node has left: all is told, and with evidence, under Cleanup, some of it is cleared away. Pure.

Data is kept where somebody has said so (reclaim policy Retain, snapshots), pods are pod garbage collection's, attachments are for the
attach-detach controller, and the node's capacity objects for `capacity`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sidecar.drain.statefulset import StatefulSet, who_makes_again
from sidecar.drain.watch.evidence import Loss, Machine
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Attachment, Volume, claim_provisioner, controller_of, selected_node


class Step(StrEnum):
    """What is done with it now. Each is one request, on condition that the object is as it was judged."""

    NOTHING = "Nothing"
    MARK_CLAIM = "MarkClaim"
    """Note on the claim with which machine its data was lost; only such a claim is deleted."""
    DELETE_CLAIM = "DeleteClaim"
    DELETE_VOLUME = "DeleteVolume"
    RELEASE_VOLUME = "ReleaseVolume"
    """Take our finalizer off a PersistentVolume that is being deleted: its disks are not emptied."""


@dataclass(frozen=True, slots=True)
class LostClaim:
    """A claim as it is stored now, as far as it matters here."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    volume: str
    deleting: bool
    lost_with: str
    """With which machine its data was lost, as `node/uid`; empty: nobody has noted that."""
    selected_node: str
    """For which node its volume was made. Nothing else on a claim says where its data is, and policies see no more than the claim."""
    provisioner: str
    of_pod: bool
    """A pod owns it: it is for a generic ephemeral volume."""
    allowed: str | None
    """What a person has written as `names.ALLOW_CLAIM_DELETION`."""
    finalizers: tuple[str, ...]

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "LostClaim":
        meta, spec = obj["metadata"], obj.get("spec") or {}
        notes, owner = meta.get("annotations") or {}, controller_of(meta)
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            volume=str(spec.get("volumeName") or ""),
            deleting="deletionTimestamp" in meta,
            lost_with=str(notes.get(names.LOST_WITH) or ""),
            selected_node=selected_node(obj),
            provisioner=claim_provisioner(obj),
            of_pod=owner is not None and owner.kind == names.POD,
            allowed=notes.get(names.ALLOW_CLAIM_DELETION),
            finalizers=tuple(meta.get("finalizers") or ()),
        )


@dataclass(frozen=True, slots=True)
class Remain:
    """One thing, and what becomes of it."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    step: Step
    why: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of one volume: its claim, and what decides about both, as it is now."""

    claim: LostClaim | None
    """The one of which the volume is, if it is there."""
    sets: tuple[StatefulSet, ...] = ()
    """Of the claim's namespace."""
    pods: tuple[Pod, ...] = ()
    """Of that namespace."""
    attachments: tuple[Attachment, ...] = ()


def remains(volume: Volume, had_by: Machine, around: Surroundings, *, loss: Loss, clears: bool) -> list[Remain]:
    """`clears`: the policy is Cleanup, and the node has been gone for as long as the flag says."""
    keeps = "" if clears else "the policy is Orphan, or the node has not been gone for long enough"
    keeps = keeps if loss.is_proven else "nobody has said that the disks do not come back"
    keeps = keeps if had_by == loss.machine else "it does not say that it was on this machine"
    found = []
    claim = around.claim
    if claim is not None and claim.volume == volume.name:
        step, why = _of_claim(claim, volume, around, loss.machine, keeps)
        found.append(Remain(names.CLAIM, claim.namespace, claim.name, claim.uid, claim.resource_version, step, why))
    step, why = _of_volume(volume, around, keeps)
    return [*found, Remain(names.VOLUME, "", volume.name, volume.uid, volume.resource_version, step, why)]


def _of_claim(claim: LostClaim, volume: Volume, around: Surroundings, machine: Machine, keeps: str) -> tuple[Step, str]:
    if claim.deleting:
        foreign = [item for item in claim.finalizers if item != names.CLAIM_PROTECTION]
        return Step.NOTHING, f"it is being deleted{', and others keep it: ' + ', '.join(foreign) if foreign else ''}"
    by, nobody = who_makes_again(claim.name, claim.namespace, around.sets, of_pod=claim.of_pod, said=claim.allowed)
    if nobody or keeps:
        return Step.NOTHING, nobody or keeps
    if (claim.selected_node, claim.provisioner) != (machine.node, volume.driver):
        # A claim that was bound by hand, or by a backup tool: a person knows more of it.
        return Step.NOTHING, f"it does not say that {volume.driver} made its volume for node {machine.node}"
    if users := _users(around.pods, claim):
        return Step.NOTHING, f"pod {users[0].name} with node {users[0].node} has it"
    step = Step.DELETE_CLAIM if claim.lost_with == str(machine) else Step.MARK_CLAIM
    return step, f"its data was lost with the node; {by} makes it again"


def _users(pods: Iterable[Pod], claim: LostClaim) -> list[Pod]:
    return [pod for pod in pods if pod.node and pod.namespace == claim.namespace and claim.name in pod.claims]


def _of_volume(volume: Volume, around: Surroundings, keeps: str) -> tuple[Step, str]:
    if volume.reclaim_policy != "Delete":
        return Step.NOTHING, f"its reclaim policy is {volume.reclaim_policy or 'not set'}, not Delete"
    if volume.phase != "Released":
        return Step.NOTHING, f"its phase is {volume.phase or 'not set'}, not Released"
    if around.claim is not None and around.claim.volume == volume.name:
        # The volume controller has not been at it since somebody bound it again, as after the restoration of a backup.
        return Step.NOTHING, f"claim {around.claim.namespace}/{around.claim.name} is there, and bound to it"
    if volume.affinity is None:
        return Step.NOTHING, "it has no node affinity, so whether its data is gone is for a person to say"
    if keeps:
        return Step.NOTHING, keeps
    if any(item.volume == volume.name for item in around.attachments):
        return Step.NOTHING, "a VolumeAttachment names it"
    if not volume.deleting:
        return Step.DELETE_VOLUME, "its disks are gone with the node"
    if names.VOLUME_FINALIZER in volume.finalizers:
        return Step.RELEASE_VOLUME, "its disks are gone with the node, and nobody else would take our finalizer off"
    return Step.NOTHING, "it is being deleted, and finalizers of others keep it" if volume.finalizers else "it is being deleted"
