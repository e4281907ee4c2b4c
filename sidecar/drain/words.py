"""The words of drain decisions: intents, policies, classes of volumes, fates of pods, and reasons with their remedies.

Reports, conditions, events, metrics and `explain` show these values: a value that is changed breaks alerts and scripts of users.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from sidecar.model import names


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Intent(StrEnum):
    """What is going to happen to the node."""

    REBOOT = "reboot"  # the node comes back, with its disks
    RETIRE = "retire"  # the node goes for good, and its disks with it


class Policy(StrEnum):
    """What may be done with a volume when its node is drained, from the laxest to the strictest. `blockers` says what each blocks."""

    IGNORE = "Ignore"
    ALLOW_IDLE = "AllowIdle"
    REPROVISION = "Reprovision"
    BLOCK = "Block"


class VolumeClass(StrEnum):
    """What a thing on the node is. Each is exactly one of these; `things` sorts them."""

    EPHEMERAL = "Ephemeral"  # it goes with its pod
    IN_USE = "InUse"
    IDLE = "Idle"  # bound or reserved, and no pod uses it
    RELEASING = "Releasing"  # its data is to be deleted, and still is here
    RETAINED = "Retained"  # no claim uses it, and its reclaim policy keeps its data
    IN_FLIGHT = "InFlight"  # it is being created, or is about to be
    SNAPSHOT = "Snapshot"
    UNTRACKED = "Untracked"  # the driver lists it, and it has no PersistentVolume


class Fate(StrEnum):
    """What becomes of a pod of this node if the node is drained for an intent."""

    STAYS = "Stays"  # no drain evicts it: a static pod, or a DaemonSet's
    MOVES_FREE = "MovesFree"  # it can run on another node
    RETURNS = "ReturnsAfterUncordon"  # it stays Pending until this node is uncordoned
    STRANDED = "StrandedUntilUncordon"  # it stays Pending for as long as its claims exist: the node does not come back
    REPROVISIONED = "Reprovisioned"  # its claims are deleted and made again on another node, empty
    LOST = "Lost"  # the pod or its data does not come back


class Reason(StrEnum):
    """Why a verdict is what it is, or why a pod is not evicted now. Each that withholds something says what it means, and what whoever
    reads it can do."""

    says: str
    remedy: str

    def __new__(cls, value: str, says: str = "", remedy: str = "") -> "Reason":
        reason = str.__new__(cls, value)
        reason._value_, reason.says, reason.remedy = value, says, remedy
        return reason

    # of a volume that blocks a verdict
    LAST_COPY = (
        "LastCopy",
        "the volume's only copy is on this node, and no pod uses it",
        f"back up the data and delete the claim; if the data may be lost, annotate the claim with {names.DRAIN_POLICY_RETIRE}: Ignore",
    )
    LAST_UP_TO_DATE_COPY = (
        "LastUpToDateCopy",
        "the volume is replicated, and no other node has a copy of it that is up to date",
        "wait until another replica is UpToDate; drbdadm status shows how far it is",
    )
    VOLUME_IN_USE = (
        "VolumeInUse",
        "a pod uses the volume, or is about to, and the only copy of its data is on this node",
        "move the application and its data to another node and delete the claim; if the data may be lost, annotate the claim with "
        f"{names.DRAIN_POLICY_RETIRE}: Ignore",
    )
    WOULD_STRAND = (
        "WouldStrand",
        "a pod that needs the volume stays Pending from its eviction until the node is uncordoned, and the volume's policy Block "
        "forbids that",
        f"stop the application before the drain, or annotate the claim with {names.DRAIN_POLICY_REBOOT}: AllowIdle until the reboot is "
        "over",
    )
    REPROVISION_PENDING = (
        "ReprovisionPending",
        "the volume may be made anew on another node, by its policy Reprovision, and still is here",
        "wait while the node is emptied to be retired; csi-node-sidecar explain node NAME says what is in the way. A sidecar without "
        "--allow-reprovision makes nothing anew: back up the data and delete the claim",
    )
    SNAPSHOT_ON_NODE = (
        "SnapshotOnNode",
        "the data of a volume snapshot is on this node",
        f"delete the VolumeSnapshot; if it may be lost, annotate its VolumeSnapshotContent with {names.ACKNOWLEDGED}: WHO",
    )
    RELEASE_PENDING = (
        "ReleasePending",
        "a released volume waits to be deleted by this node's sidecar",
        "wait; if it stays, read the events of the PersistentVolume and the driver's log; if the data may be lost where it is, "
        f"annotate the PersistentVolume with {names.ACKNOWLEDGED}: WHO",
    )
    PROVISIONING_IN_FLIGHT = (
        "ProvisioningInFlight",
        "a volume is being created on this node",
        "wait; if it does not finish, read the events of the claim",
    )
    RECLAIM_RETAIN = (
        "ReclaimRetain",
        "a volume that no claim uses was kept, because its reclaim policy is Retain, and its data is on this node",
        "save the data and delete the PersistentVolume; if the data may be lost, annotate the PersistentVolume with "
        f"{names.ACKNOWLEDGED}: WHO",
    )
    POLICY_CONFLICT = (
        "PolicyConflict",
        "the drain policies set for the volume contradict each other or cannot be understood, so the strictest is applied",
        f"correct the annotation {names.DRAIN_POLICY} that the message names, or the one for a reboot or for retiring alone",
    )
    # of a pod
    BARE_POD = (
        "BareControllerlessPod",
        "no controller owns the pod, so an eviction would delete it for good",
        "delete the pod yourself once it may go, or run it under a controller such as a StatefulSet",
    )
    POD_TERMINATING = (
        "PodTerminating",
        "a pod with a volume of this node was asked to end and is still there; pods are evicted one at a time",
        "wait; if it stays, check its grace period, its finalizers and the kubelet of the node",
    )
    # of the whole node
    SOURCE_OFFLINE = (
        "SourceOffline",
        "the node does not answer, so nothing on it can be checked or saved",
        "bring the node back, or treat its volumes as lost",
    )
    AGENT_UNAVAILABLE = (
        "AgentUnavailable",
        "the sidecar of the node is silent, so what it said last does not count any more",
        "see why the driver's pod does not run on the node; until it does, ask from outside: csi-node-sidecar explain node NAME",
    )
    NOT_KNOWN = (
        "NotKnown",
        "something that the answer depends on is not known",
        "see the message; grant the rights of deploy/components/drain, or wait for the API server",
    )
    WAITING_FOR_SLOT = (
        "WaitingForSlot",
        "another node is being emptied, or makes a replica of the same workload anew, and its turn is first",
        "wait; the message names the other node (--max-concurrent-evacuations)",
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "the evacuation has taken longer than --evacuation-deadline allows",
        f"remove what blocks it; to let the node be drained regardless, annotate it with {names.FORCE_DRAIN}: WHY",
    )
    # why nobody is evicted, and no replica made anew
    WOULD_COME_BACK = (
        "WouldComeBack",
        "the pod would be put on this node again: it tolerates all that keeps pods off the node, nothing does, or it came after another "
        "one was evicted",
        f"cordon the node, or taint it with {names.EVACUATE_TAINT}={Intent.RETIRE}:{names.NO_SCHEDULE}; a pod that tolerates that is "
        "for its owner to stop",
    )
    REPLICA_NOT_READY = (
        "ReplicaNotReady",
        "another replica of the same workload is missing, not ready, or not apart from this one, so with this pod two would be away",
        "make the other replicas ready; the message names one, or says how many are missing: see the events of the workload",
    )
    REPLICA_NOT_IN_SYNC = (
        "ReplicaNotInSync",
        "another replica became Ready less than --reprovision-pause ago, or lacks the condition that its StatefulSet names as being in "
        "sync: it may still be copying the data",
        "wait; where the pods have a condition that is True once a replica has all its data, name it on the StatefulSet in the "
        f"annotation {names.IN_SYNC_CONDITION}",
    )
    PDB_BLOCKED = (
        "PDBBlocked",
        "a PodDisruptionBudget allows no further disruption, several select the pod, or the one that is needed is missing or allows more "
        "than one",
        "make the application's other replicas ready, or give it one budget that allows one disruption; see the message",
    )
    EVICTION_REFUSED = (
        "EvictionRefused",
        "the API server, or a policy or webhook there, has refused a moment ago to evict the pod or to delete its claim",
        "see the message; a right that is missing is in deploy/components/emptying or reprovision. It is tried again",
    )
    CLAIM_KEPT = (
        "ClaimKept",
        "the claim is not deleted to be made anew: nobody would make it again, somebody else needs it, or it is not what was judged",
        "see the message; or make the replica anew by hand: delete the claim, then the pod",
    )
    NO_NODE_FITS = (
        "NoNodeFits",
        "no other node can take the volumes and run the pod",
        "check free space, cordons, taints, node selectors and allowedTopologies; the message gives the reasons node by node",
    )
    # of a verdict that is True
    NOTHING_BLOCKS = "NothingBlocks"


LONGEST: Final = 1024  # characters of a text in a report or a condition
_SHOWN: Final = 3
_LONGEST: Final = 40  # characters of a quoted text: an annotation may have 256 KiB


def first_few(named: Sequence[str], most: int = _SHOWN) -> str:
    """The first names of a list that may be long, and how many there are beside them."""
    rest = len(named) - most
    return ", ".join(named[:most]) + (f" and {rest} more" if rest > 0 else "")


def quoted(text: str) -> str:
    """What somebody wrote on an object, for a sentence about it."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
