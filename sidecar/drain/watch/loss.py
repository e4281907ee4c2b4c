"""Whether a machine is gone, what proves that its disks do not come back, and what becomes of each thing that it has left. Pure.

Gone is what the API server says when it is asked now: no Node and no CSINode of that name. A node that does not answer, a label that no
node has, and time prove nothing. Another machine under the name is another node: what is on its disks its own driver says.

Which machine had a volume its PersistentVolume says (`lies-on: node/uid`, written with it), or the report that the node's own sidecar left
when the node was announced to go. Nothing is ever taken of a volume of which neither says so. Data is kept where somebody has said so
(reclaim policy Retain, snapshots), pods are pod garbage collection's, attachments are for the attach-detach controller, and the node's
capacity objects for `capacity`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sidecar.drain.statefulset import StatefulSet, who_makes_again
from sidecar.drain.where import maker_of
from sidecar.drain.words import quoted
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Attachment, Claim, Json, Volume

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, order=True)
class Machine:
    """One Node object, and so one machine. Without a uid it is only the name that the maker of volumes had."""

    node: str
    uid: str

    def __str__(self) -> str:
        return f"{self.node}/{self.uid}"

    def may_be_gone(self, there: Mapping[str, str]) -> bool:
        """`there`: by name of a node its uid; empty where its CSINode does not say."""
        uid = there.get(self.node)
        return bool(self.node) and (uid is None or (bool(uid) and bool(self.uid) and uid != self.uid))


def machine_of(text: str) -> Machine | None:
    """None for what the API server could not have stored as a name and a uid: anybody may have edited it."""
    node, slash, uid = text.partition("/")
    return Machine(node, uid) if slash and _NAME.fullmatch(node) and _UID.fullmatch(uid) else None


class Evidence(StrEnum):
    """Who says that the disks do not come back."""

    ANNOUNCED = "Announced"  # its own sidecar: the node was announced to be retired, and nobody had taken that back
    ACKNOWLEDGED = "Acknowledged"  # a person, on its report, by the machine's uid
    NONE = "None"  # nobody: it is gone, and may come back with its disks
    UNPROVEN = "Unproven"  # nothing tells which machine has the volumes


@dataclass(frozen=True, slots=True)
class Loss:
    """A machine that is gone."""

    machine: Machine
    evidence: Evidence
    why: str

    @property
    def is_proven(self) -> bool:
        return self.evidence in (Evidence.ANNOUNCED, Evidence.ACKNOWLEDGED)


# --- the report that a leaving node leaves ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeftReport:
    """The report on a node that no Node owns: its own sidecar took the owner off when it was announced to go, or a peer has made it."""

    machine: Machine
    acknowledged: str  # what a person has annotated it with
    leaving: frozenset[str] | None
    """Uids of the volumes that were on it when it was last judged; None: it was not announced, or that was taken back."""
    is_of_gone_node: bool  # a peer has written there what the node left

    @classmethod
    def of(cls, obj: Mapping[str, Any], driver: str) -> "LeftReport | None":
        """None: it is another driver's, or a Node owns it. Read with distrust."""
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        if spec.get("driver") != driver or meta.get("ownerReferences"):
            return None
        uid, said = str(status.get("nodeUID") or ""), status.get("leaving")
        volumes = said.get("volumes") if isinstance(said, Mapping) and said.get("nodeUID") == uid else None
        leaving = frozenset(str(item) for item in volumes) if isinstance(volumes, list) else None
        acknowledged = str((meta.get("annotations") or {}).get(names.ACKNOWLEDGED) or "").strip()
        return cls(Machine(str(spec.get("nodeName") or ""), uid), acknowledged, leaving, bool(status.get("gone")))


def who_had(volume: Volume, reports: Iterable[LeftReport]) -> Machine:
    """The machine that had this volume; without uid: neither the volume nor a report says which."""
    said = machine_of(volume.lies_on)
    if said is not None:
        return said
    found = [report for report in reports if report.leaving is not None and volume.uid in report.leaving]
    return found[0].machine if len(found) == 1 else Machine(maker_of(volume), "")


# --- the judgement ----------------------------------------------------------------------------------------------------


def living(csi_node: Json) -> tuple[str, str]:
    """Name and uid of the Node that a CSINode belongs to. They are a tenth of the size of Nodes."""
    meta = csi_node["metadata"]
    uids = [ref.get("uid") for ref in meta.get("ownerReferences") or () if (ref.get("kind"), ref.get("name")) == (names.NODE, meta["name"])]
    return meta["name"], str(uids[0] or "") if uids else ""


def unreached(volumes: Iterable[Volume], nodes: Iterable[Node]) -> list[Volume]:
    """Of those that do not say which machine had them: which no node reaches by its labels. A node that was renamed reaches its own."""
    there = [(node.name, node.labels) for node in nodes]
    return [volume for volume in volumes if not any(term.matches(*node) for term in volume.affinity or () for node in there)]


def judge(machine: Machine, *, is_there: bool, report: LeftReport | None) -> Loss | None:
    """None: it is there. `is_there`: the API server has a Node or a CSINode of its name now."""
    if is_there:
        return None
    nothing = f"there is neither a Node nor a CSINode {machine.node}"
    if not machine.uid:
        why = f"{nothing}, and its volumes do not say on which machine they are: it may have been renamed"
        return Loss(machine, Evidence.UNPROVEN, why)
    ours = report if report is not None and report.machine == machine else None
    if ours is not None and ours.acknowledged:
        if ours.acknowledged == machine.uid:
            return Loss(machine, Evidence.ACKNOWLEDGED, f"{nothing}, and its report is acknowledged")
        said = f"its report is annotated with {quoted(ours.acknowledged)}, which is not the uid {machine.uid}"
        return Loss(machine, Evidence.NONE, f"{nothing}; {said}")
    if ours is not None and ours.leaving is not None:
        return Loss(machine, Evidence.ANNOUNCED, f"{nothing}, and it had been announced to be retired")
    return Loss(machine, Evidence.NONE, f"{nothing}, and nobody has said that its disks do not come back")


# --- what becomes of each thing ---------------------------------------------------------------------------------------


class Clearing(StrEnum):
    """What is done with it now. Each is one request, on condition that the object is as it was judged."""

    NOTHING = "Nothing"
    MARK_CLAIM = "MarkClaim"  # note on the claim with which machine its data was lost; only such a claim is deleted
    DELETE_CLAIM = "DeleteClaim"
    DELETE_VOLUME = "DeleteVolume"
    RELEASE_VOLUME = "ReleaseVolume"  # take our finalizer off a PersistentVolume that is being deleted: its disks are not emptied


@dataclass(frozen=True, slots=True)
class Remain:
    """One thing, and what becomes of it."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    step: Clearing
    why: str

    @property
    def named(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides about volumes whose claims are in one namespace, as it is now."""

    claims: Mapping[str, Claim] = field(default_factory=dict)  # by uid
    sets: tuple[StatefulSet, ...] = ()
    pods: tuple[Pod, ...] = ()
    attachments: tuple[Attachment, ...] = ()

    def claim_of(self, volume: Volume) -> Claim | None:
        """If it is there, and bound to this volume."""
        claim = self.claims.get(volume.claim.uid) if volume.claim else None
        return claim if claim is not None and claim.volume_name == volume.name else None


def remains(volume: Volume, around: Surroundings, *, loss: Loss, clears: bool) -> list[Remain]:
    """`clears`: the policy is Cleanup, and the node has been gone for as long as the flag says."""
    keeps = "" if clears else "the policy is Orphan, or the node has not been gone for long enough"
    keeps = keeps if loss.is_proven else "nobody has said that the disks do not come back"
    found = []
    if (claim := around.claim_of(volume)) is not None:
        step, why = _of_claim(claim, volume, around, loss.machine, keeps)
        found.append(Remain(names.CLAIM, claim.namespace, claim.name, claim.uid, claim.resource_version, step, why))
    step, why = _of_volume(volume, around, keeps)
    return [*found, Remain(names.VOLUME, "", volume.name, volume.uid, volume.resource_version, step, why)]


def _of_claim(claim: Claim, volume: Volume, around: Surroundings, machine: Machine, keeps: str) -> tuple[Clearing, str]:
    if claim.deleting:
        return Clearing.NOTHING, "it is being deleted"
    notes, of_pod = dict(claim.notes), claim.owner is not None and claim.owner.kind == names.POD
    by, nobody = who_makes_again(claim.name, claim.namespace, around.sets, of_pod=of_pod, said=notes.get(names.ALLOW_CLAIM_DELETION))
    if nobody or keeps:
        return Clearing.NOTHING, nobody or keeps
    if (claim.selected_node, claim.provisioner) != (machine.node, volume.driver):
        # A claim that was bound by hand, or by a backup tool: a person knows more of it.
        return Clearing.NOTHING, f"it does not say that {volume.driver} made its volume for node {machine.node}"
    if user := next((pod for pod in around.pods if pod.node and claim.full_name in pod.claim_names), None):
        return Clearing.NOTHING, f"pod {user.name} with node {user.node} has it"
    step = Clearing.DELETE_CLAIM if notes.get(names.LOST_WITH) == str(machine) else Clearing.MARK_CLAIM
    return step, f"its data was lost with the node; {by} makes it again"


def _of_volume(volume: Volume, around: Surroundings, keeps: str) -> tuple[Clearing, str]:
    if volume.reclaim_policy != "Delete":
        return Clearing.NOTHING, f"its reclaim policy is {volume.reclaim_policy or 'not set'}, not Delete"
    if volume.phase != "Released":
        return Clearing.NOTHING, f"its phase is {volume.phase or 'not set'}, not Released"
    if (claim := around.claim_of(volume)) is not None:
        # The volume controller has not been at it since somebody bound it again, as after the restoration of a backup.
        return Clearing.NOTHING, f"claim {claim.full_name} is there, and bound to it"
    if volume.affinity is None:
        return Clearing.NOTHING, "it has no node affinity, so whether its data is gone is for a person to say"
    if keeps:
        return Clearing.NOTHING, keeps
    if any(item.volume == volume.name for item in around.attachments):
        return Clearing.NOTHING, "a VolumeAttachment names it"
    if not volume.deleting:
        return Clearing.DELETE_VOLUME, "its disks are gone with the node"
    if names.VOLUME_FINALIZER in volume.finalizers:
        return Clearing.RELEASE_VOLUME, "its disks are gone with the node, and nobody else would take our finalizer off"
    return Clearing.NOTHING, "it is being deleted, and finalizers of others keep it" if volume.finalizers else "it is being deleted"
