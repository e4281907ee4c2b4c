"""The words drain decisions are told in: policies, classes of volumes, reasons, ends of pods. All renderings say these."""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Intent(StrEnum):
    """What is going to happen to the node."""

    REBOOT = "reboot"
    """It comes back, with its disks."""
    RETIRE = "retire"
    """Its disks vanish."""


class Policy(StrEnum):
    """What may be done with a volume when its node is emptied."""

    IGNORE = "Ignore"
    BLOCK = "Block"
    ALLOW_IDLE = "AllowIdle"
    REPROVISION = "Reprovision"
    MIGRATE = "Migrate"


NOT_YET: Final = (Policy.REPROVISION, Policy.MIGRATE)
"""Recognised and assessed; carrying them out is not available yet."""


class VolumeClass(StrEnum):
    EPHEMERAL = "Ephemeral"
    IN_USE = "InUse"
    IDLE = "Idle"
    RELEASING = "Releasing"
    RETAINED = "Retained"
    IN_FLIGHT = "InFlight"
    SNAPSHOT = "Snapshot"
    UNTRACKED = "Untracked"
    FOREIGN = "Foreign"
    MOVED = "Moved"


class End(StrEnum):
    """What becomes of a pod of this node."""

    STAYS = "Stays"
    """Nobody drains it: a static pod, or a DaemonSet's."""
    MOVES_FREE = "MovesFree"
    RETURNS = "ReturnsAfterUncordon"
    STRANDED = "StrandedUntilUncordon"
    REPROVISIONED = "Reprovisioned"
    MIGRATED = "Migrated"
    LOST = "Lost"


class Reason(StrEnum):
    """Why a verdict is not True. `MEANING` says each in a sentence, with the remedy."""

    LAST_COPY = "LastCopy"
    VOLUME_IN_USE = "VolumeInUse"
    WOULD_STRAND = "WouldStrand"
    NO_CAPACITY = "NoCapacity"
    NO_NODE_FITS = "NoNodeFits"
    NOT_AVAILABLE_YET = "NotAvailableYet"
    SNAPSHOT_ON_NODE = "SnapshotOnNode"
    RELEASE_PENDING = "ReleasePending"
    PROVISIONING_IN_FLIGHT = "ProvisioningInFlight"
    RECLAIM_RETAIN = "ReclaimRetain"
    UNTRACKED_DATA = "UntrackedData"
    PDB_BLOCKED = "PDBBlocked"
    TWO_BUDGETS = "PDBConflict"
    POD_TERMINATING_TOO_LONG = "PodTerminatingTooLong"
    BARE_POD = "BareControllerlessPod"
    POLICY_CONFLICT = "PolicyConflict"
    SOURCE_OFFLINE = "SourceOffline"
    WAITING_FOR_SLOT = "WaitingForSlot"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NOT_KNOWN = "NotKnown"
    NODE_IDENTITY = "NodeIdentityChanged"
    # of verdicts that are True
    NOTHING_HERE = "NoVolumes"
    NOTHING_BLOCKS = "NothingBlocks"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason says, and what the one who reads it can do."""

    says: str
    remedy: str


MEANING: Final = MappingProxyType(
    {
        Reason.LAST_COPY: Meaning(
            "the volume's only copy lies on this node, and no pod uses it",
            "back it up and delete the claim, or annotate it with csi-node-sidecar.io/drain-policy: Ignore if its data may vanish",
        ),
        Reason.VOLUME_IN_USE: Meaning(
            "a pod of this node uses the volume, whose only copy lies here",
            "move the application away and delete the claim, or annotate it with csi-node-sidecar.io/drain-policy: Ignore",
        ),
        Reason.WOULD_STRAND: Meaning(
            "an evicted pod could run nowhere until the node is back, and the volume's policy forbids that",
            "stop the application first, or set the policy AllowIdle for the time of the reboot",
        ),
        Reason.NO_CAPACITY: Meaning(
            "no other node has room for the volume",
            "add a node or free space elsewhere; the report says how many bytes are missing",
        ),
        Reason.NO_NODE_FITS: Meaning(
            "no other node can take the volume and its pod at all",
            "look at cordons, taints, node selectors and allowed topologies; the report says what is wrong with each node",
        ),
        Reason.NOT_AVAILABLE_YET: Meaning(
            "the volume's policy asks for something this release recognises and cannot do yet",
            "move the data by hand and delete the claim, or choose the policy Ignore, Block or AllowIdle",
        ),
        Reason.SNAPSHOT_ON_NODE: Meaning(
            "a snapshot's data lies on this node",
            "delete the VolumeSnapshot, or annotate its content with csi-node-sidecar.io/ack: WHO if it may vanish",
        ),
        Reason.RELEASE_PENDING: Meaning(
            "a released volume is still to be deleted by this node",
            "wait; if it does not go, look at the PersistentVolume's events and at the driver",
        ),
        Reason.PROVISIONING_IN_FLIGHT: Meaning(
            "a volume is being created here",
            "wait; if it goes on, look at the claim's events",
        ),
        Reason.RECLAIM_RETAIN: Meaning(
            "a released volume was kept on purpose",
            "save its data and delete the PersistentVolume, or annotate it with csi-node-sidecar.io/ack: WHO",
        ),
        Reason.UNTRACKED_DATA: Meaning(
            "the driver has a volume here that no PersistentVolume stands for",
            "find out whose it is, and delete it in the driver",
        ),
        Reason.PDB_BLOCKED: Meaning(
            "a PodDisruptionBudget allows no further disruption, so the pod cannot be evicted now",
            "make the application's other replicas ready, or relax the budget",
        ),
        Reason.TWO_BUDGETS: Meaning(
            "more than one PodDisruptionBudget selects the pod, so the API server refuses every eviction of it",
            "change the selectors so that one budget is left",
        ),
        Reason.POD_TERMINATING_TOO_LONG: Meaning(
            "the pod was asked to end and has not, long after its time",
            "look at the pod's finalizers and at the kubelet of the node",
        ),
        Reason.BARE_POD: Meaning(
            "nothing would make the pod again after an eviction",
            "delete it yourself when it may go, or let a workload own it",
        ),
        Reason.POLICY_CONFLICT: Meaning(
            "what is said about the volume's policy contradicts itself or is no policy, so the strictest is taken",
            "correct the annotation csi-node-sidecar.io/drain-policy that the message names",
        ),
        Reason.SOURCE_OFFLINE: Meaning(
            "the node does not answer, so nothing on it can be known or saved",
            "bring the node back, or treat its volumes as lost",
        ),
        Reason.WAITING_FOR_SLOT: Meaning(
            "as many nodes as may be evacuated at a time are being evacuated",
            "wait; the report names the nodes ahead",
        ),
        Reason.DEADLINE_EXCEEDED: Meaning(
            "the evacuation has taken longer than it may",
            "look at the blockers; csi-node-sidecar.io/force-drain on the node lets it go regardless",
        ),
        Reason.NOT_KNOWN: Meaning(
            "something that has to be known could not be read",
            "see the message; grant the rights of deploy/components/drain or wait for the API server",
        ),
        Reason.NODE_IDENTITY: Meaning(
            "another machine has registered under this node's name",
            "nothing of the former node is applied to it; restart the sidecar if this does not pass",
        ),
    }
)
