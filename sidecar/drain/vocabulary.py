"""The words of drain decisions: intents, policies, classes of volumes, fates of pods, reasons and what they mean.

Reports, events, metrics and `explain` show these values: a value that is changed breaks alerts and scripts of users.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from sidecar.model import names


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Intent(StrEnum):
    """What is going to happen to the node."""

    REBOOT = "reboot"
    """The node comes back, with its disks."""
    RETIRE = "retire"
    """The node goes for good, and its disks with it."""


class Policy(StrEnum):
    """What may be done with a volume when its node is drained. `judgement/blockers` says what each of them blocks."""

    IGNORE = "Ignore"
    BLOCK = "Block"
    ALLOW_IDLE = "AllowIdle"
    REPROVISION = "Reprovision"
    MIGRATE = "Migrate"


NOT_AVAILABLE_YET: Final = (Policy.REPROVISION, Policy.MIGRATE)
"""Recognised and judged. The second is not carried out by this release, the first where it is allowed."""


class VolumeClass(StrEnum):
    """What a thing on the node is. Each is exactly one of these; `judgement/volumes` sorts them."""

    EPHEMERAL = "Ephemeral"
    """It goes with its pod."""
    IN_USE = "InUse"
    IDLE = "Idle"
    """Bound or reserved, and no pod uses it."""
    RELEASING = "Releasing"
    """Its data is to be deleted, and still is here."""
    RETAINED = "Retained"
    """No claim uses it, and its reclaim policy keeps its data."""
    IN_FLIGHT = "InFlight"
    """It is being created, or is about to be."""
    SNAPSHOT = "Snapshot"
    UNTRACKED = "Untracked"
    """The driver lists it, and it has no PersistentVolume."""
    FOREIGN = "Foreign"
    """Of another driver: told in a note, and never judged."""
    RENAMED = "Renamed"
    """The driver lists it here, and its PersistentVolume names a node that is gone: this node had that name."""


class Fate(StrEnum):
    """What becomes of a pod of this node, if the node is drained for an intent."""

    STAYS = "Stays"
    """No drain evicts it: a static pod, or a DaemonSet's."""
    MOVES_FREE = "MovesFree"
    """It can run on another node."""
    RETURNS = "ReturnsAfterUncordon"
    """It stays Pending until this node is uncordoned."""
    STRANDED = "StrandedUntilUncordon"
    """It stays Pending for as long as its claims exist: the node does not come back."""
    REPROVISIONED = "Reprovisioned"
    MIGRATED = "Migrated"
    LOST = "Lost"
    """The pod or its data does not come back."""


class Reason(StrEnum):
    """Why a verdict is what it is. `MEANING` explains each that withholds a True, with the remedy."""

    LAST_COPY = "LastCopy"
    VOLUME_IN_USE = "VolumeInUse"
    WOULD_STRAND = "WouldStrand"
    NO_CAPACITY = "NoCapacity"
    NO_NODE_FITS = "NoNodeFits"
    NOT_AVAILABLE_YET = "NotAvailableYet"
    REPROVISION_PENDING = "ReprovisionPending"
    NODE_RENAMED = "NodeRenamed"
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
    AGENT_UNAVAILABLE = "AgentUnavailable"
    # verdicts that are True
    NOTHING_HERE = "NoVolumes"
    NOTHING_BLOCKS = "NothingBlocks"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason says, and what whoever reads it can do."""

    says: str
    remedy: str


MEANING: Final = MappingProxyType(
    {
        Reason.LAST_COPY: Meaning(
            "the volume's only copy is on this node, and no pod uses it",
            f"back up the data and delete the claim; if the data may be lost, annotate the claim with {names.DRAIN_POLICY_RETIRE}: Ignore",
        ),
        Reason.VOLUME_IN_USE: Meaning(
            "a pod uses the volume, or is about to, and the only copy of its data is on this node",
            "move the application and its data to another node and delete the claim; if the data may be lost, annotate the claim with "
            f"{names.DRAIN_POLICY_RETIRE}: Ignore",
        ),
        Reason.WOULD_STRAND: Meaning(
            "a pod that needs the volume stays Pending from its eviction until the node is uncordoned, and the volume's policy Block "
            "forbids that",
            f"stop the application before the drain, or annotate the claim with {names.DRAIN_POLICY_REBOOT}: AllowIdle until the reboot is "
            "over",
        ),
        Reason.NO_CAPACITY: Meaning(
            "no other node has enough free space for the volume",
            "add a node or free space on another one; the report says how many bytes are missing in all",
        ),
        Reason.NO_NODE_FITS: Meaning(
            "no other node can take the volume and run its pod",
            "check cordons, taints, node selectors and allowedTopologies; the report gives the reasons node by node",
        ),
        Reason.NOT_AVAILABLE_YET: Meaning(
            "the volume's policy asks for Migrate, which this release cannot carry out yet, or for Reprovision, which this sidecar is not "
            "allowed to (--allow-reprovision)",
            "move the data by hand and delete the claim, or choose another policy for retiring, with the annotation "
            f"{names.DRAIN_POLICY_RETIRE} of the claim",
        ),
        Reason.REPROVISION_PENDING: Meaning(
            "the volume is to be made anew on another node, as its policy Reprovision allows, and still is here",
            "wait while the node is evacuated to be retired; csi-node-sidecar explain node NAME says which lock is shut, and why",
        ),
        Reason.NODE_RENAMED: Meaning(
            "the driver lists the volume on this node, and its PersistentVolume names another node: the node may have had that name",
            "give the node its former name, or make the PersistentVolume anew with the labels of this node; if the data may be lost, "
            f"annotate the PersistentVolume with {names.ACKNOWLEDGED}: WHO",
        ),
        Reason.SNAPSHOT_ON_NODE: Meaning(
            "the data of a volume snapshot is on this node",
            f"delete the VolumeSnapshot; if it may be lost, annotate its VolumeSnapshotContent with {names.ACKNOWLEDGED}: WHO",
        ),
        Reason.RELEASE_PENDING: Meaning(
            "a released volume waits to be deleted by this node's sidecar",
            "wait; if it stays, read the events of the PersistentVolume and the driver's log; if the data may be lost where it is, "
            f"annotate the PersistentVolume with {names.ACKNOWLEDGED}: WHO",
        ),
        Reason.PROVISIONING_IN_FLIGHT: Meaning(
            "a volume is being created on this node",
            "wait; if it does not finish, read the events of the claim",
        ),
        Reason.RECLAIM_RETAIN: Meaning(
            "a volume that no claim uses was kept, because its reclaim policy is Retain, and its data is on this node",
            "save the data and delete the PersistentVolume; if the data may be lost, annotate the PersistentVolume with "
            f"{names.ACKNOWLEDGED}: WHO",
        ),
        Reason.UNTRACKED_DATA: Meaning(
            "the driver lists a volume on this node that has no PersistentVolume",
            "find out whose data it is, and delete the volume in the driver",
        ),
        Reason.PDB_BLOCKED: Meaning(
            "a PodDisruptionBudget allows no further disruption, so the pod cannot be evicted now",
            "make the application's other replicas ready, or relax the budget",
        ),
        Reason.TWO_BUDGETS: Meaning(
            "more than one PodDisruptionBudget selects the pod, so the API server refuses to evict it",
            "change the selectors so that only one budget selects the pod",
        ),
        Reason.POD_TERMINATING_TOO_LONG: Meaning(
            "the pod was asked to end and is still there, long after its grace period",
            "check the pod's finalizers and the kubelet of the node",
        ),
        Reason.BARE_POD: Meaning(
            "no controller owns the pod, so an eviction would delete it for good",
            "delete the pod yourself once it may go, or run it under a controller such as a Deployment",
        ),
        Reason.POLICY_CONFLICT: Meaning(
            "the drain policies set for the volume contradict each other or cannot be understood, so the strictest is applied",
            f"correct the annotation {names.DRAIN_POLICY} that the message names, or the one for a reboot or for retiring alone",
        ),
        Reason.SOURCE_OFFLINE: Meaning(
            "the node does not answer, so nothing on it can be checked or saved",
            "bring the node back, or treat its volumes as lost",
        ),
        Reason.WAITING_FOR_SLOT: Meaning(
            "as many nodes are being evacuated as --max-concurrent-evacuations allows",
            "wait; the report names the nodes that come first",
        ),
        Reason.DEADLINE_EXCEEDED: Meaning(
            "the evacuation has taken longer than --evacuation-deadline allows",
            f"remove what blocks it; to let the node be drained regardless, annotate it with {names.FORCE_DRAIN}: WHY",
        ),
        Reason.NOT_KNOWN: Meaning(
            "information that the answer depends on could not be read",
            "see the message; grant the rights of deploy/components/drain, or wait for the API server",
        ),
        Reason.AGENT_UNAVAILABLE: Meaning(
            "the sidecar of the node is silent, so what it said last does not count any more",
            "see why the driver's pod does not run on the node; until it does, ask from outside: csi-node-sidecar explain node NAME",
        ),
    }
)


class Hindrance(StrEnum):
    """Why no pod of a node that is being emptied is evicted now, or this one is not. `HINDRANCES` explains each."""

    WOULD_COME_BACK = "WouldComeBack"
    POD_LEAVING = "PodLeaving"
    REPLICA_NOT_READY = "ReplicaNotReady"
    ANOTHER_NODE_FIRST = "AnotherNodeFirst"
    DATA_STAYS = "DataStays"
    REPROVISION_PENDING = "ReprovisionPending"
    PROVISIONING_IN_FLIGHT = "ProvisioningInFlight"
    BARE_POD = "BareControllerlessPod"
    PDB_BLOCKED = "PDBBlocked"
    TWO_BUDGETS = "PDBConflict"
    PAUSED = "EvictionRefused"
    SOURCE_OFFLINE = "SourceOffline"
    NOT_KNOWN = "NotKnown"
    # of making a replica anew
    REPROVISION_OFF = "ReprovisionOff"
    POLICY_KEEPS = "PolicyKeeps"
    OWNER_NOT_SUPPORTED = "OwnerNotSupported"
    TOO_MANY_CLAIMS = "TooManyClaims"
    NOBODY_MAKES_IT_AGAIN = "NobodyMakesClaimAgain"
    REPLICA_CONDEMNED = "ReplicaCondemned"
    SINGLE_REPLICA = "SingleReplica"
    REPLICA_NOT_APART = "ReplicaNotApart"
    REPLICA_NOT_IN_SYNC = "ReplicaNotInSync"
    EACH_WAITS = "EachWaitsForTheOther"
    WORKLOAD_ROLLING = "WorkloadRolling"
    CLAIM_CHANGED = "ClaimChanged"
    SEVERAL_PLACES = "SeveralPlaces"
    NO_CAPACITY = "NoCapacity"
    NO_NODE_FITS = "NoNodeFits"
    FOREIGN_FINALIZER = "ForeignFinalizer"
    SNAPSHOT_ON_NODE = "SnapshotOnNode"
    NAMESPACE_ENDS = "NamespaceEnds"
    MARK_NOT_UNDERSTOOD = "MarkNotUnderstood"
    WORKLOAD_TAKEN = "WorkloadTaken"
    CLAIM_IN_USE = "ClaimInUse"
    CLAIM_NOT_DELETED = "ClaimNotDeleted"
    REPLACEMENT_NOT_READY = "ReplacementNotReady"


OF_REPROVISION: Final = frozenset(
    {
        Hindrance.REPROVISION_OFF,
        Hindrance.POLICY_KEEPS,
        Hindrance.OWNER_NOT_SUPPORTED,
        Hindrance.TOO_MANY_CLAIMS,
        Hindrance.NOBODY_MAKES_IT_AGAIN,
        Hindrance.REPLICA_CONDEMNED,
        Hindrance.SINGLE_REPLICA,
        Hindrance.REPLICA_NOT_APART,
        Hindrance.REPLICA_NOT_IN_SYNC,
        Hindrance.EACH_WAITS,
        Hindrance.WORKLOAD_ROLLING,
        Hindrance.CLAIM_CHANGED,
        Hindrance.SEVERAL_PLACES,
        Hindrance.NO_CAPACITY,
        Hindrance.NO_NODE_FITS,
        Hindrance.FOREIGN_FINALIZER,
        Hindrance.SNAPSHOT_ON_NODE,
        Hindrance.NAMESPACE_ENDS,
        Hindrance.MARK_NOT_UNDERSTOOD,
        Hindrance.WORKLOAD_TAKEN,
        Hindrance.CLAIM_IN_USE,
        Hindrance.CLAIM_NOT_DELETED,
        Hindrance.REPLACEMENT_NOT_READY,
    }
)
"""Those of making a replica anew alone."""

HINDRANCES: Final = MappingProxyType(
    {
        Hindrance.WOULD_COME_BACK: Meaning(
            "the pod would be put on this node again: it tolerates all that keeps pods off the node, or nothing does",
            f"cordon the node, or taint it with {names.EVACUATE_TAINT}={Intent.RETIRE}:{names.NO_SCHEDULE}; a pod that tolerates that is "
            "for its owner to stop",
        ),
        Hindrance.POD_LEAVING: Meaning(
            "a pod with a volume of this node is ending, and pods are evicted one at a time",
            "wait; if it stays, check its grace period, its finalizers and the kubelet of the node",
        ),
        Hindrance.REPLICA_NOT_READY: Meaning(
            "another replica of the same workload is not there or not ready, so with this pod two would be away at once",
            "make the other replicas ready; the message names one, or says how many are missing: see the events of the workload",
        ),
        Hindrance.ANOTHER_NODE_FIRST: Meaning(
            "another node that is emptied at the same time has replicas of the same workload, and its turn is first",
            "wait; where it takes too long, give the workload a PodDisruptionBudget that allows one pod to be away, or empty one node at a "
            "time (--max-concurrent-evacuations)",
        ),
        Hindrance.DATA_STAYS: Meaning(
            "the pod uses a volume whose policy does not let it go with the node",
            "save the data and delete the claim; if the data may be lost, annotate the claim with "
            f"{names.DRAIN_POLICY_RETIRE}: {Policy.IGNORE}",
        ),
        Hindrance.REPROVISION_PENDING: MEANING[Reason.REPROVISION_PENDING],
        Hindrance.PROVISIONING_IN_FLIGHT: Meaning(
            "a volume is being created for the pod",
            "wait; if it does not finish, read the events of the claim",
        ),
        Hindrance.BARE_POD: MEANING[Reason.BARE_POD],
        Hindrance.PDB_BLOCKED: MEANING[Reason.PDB_BLOCKED],
        Hindrance.TWO_BUDGETS: MEANING[Reason.TWO_BUDGETS],
        Hindrance.PAUSED: Meaning(
            "the API server has refused the eviction a moment ago, and it is tried again soon",
            "see the message; a right that is missing is in deploy/components/emptying",
        ),
        Hindrance.SOURCE_OFFLINE: MEANING[Reason.SOURCE_OFFLINE],
        Hindrance.NOT_KNOWN: MEANING[Reason.NOT_KNOWN],
        Hindrance.REPROVISION_OFF: Meaning(
            "this sidecar makes no replica anew",
            "to have it done, add deploy/components/reprovision (--allow-reprovision)",
        ),
        Hindrance.POLICY_KEEPS: Meaning(
            "nobody has said Reprovision for the claim, or not clearly, or another claim of the pod keeps it here",
            f"annotate each claim of the driver that the pod uses with {names.DRAIN_POLICY_RETIRE}: {Policy.REPROVISION}, or say it on "
            "their class or namespace",
        ),
        Hindrance.OWNER_NOT_SUPPORTED: Meaning(
            "the pod's controller is no StatefulSet, so it is not known whether it makes the claim again",
            "make the replica anew by hand: delete the claim, then the pod",
        ),
        Hindrance.TOO_MANY_CLAIMS: Meaning(
            "the pod uses more claims than are made anew together",
            "make the replica anew by hand: delete the claims, then the pod",
        ),
        Hindrance.NOBODY_MAKES_IT_AGAIN: Meaning(
            "the StatefulSet has no template for the claim, or is gone, so nobody would make the claim again",
            f"if somebody else does, annotate the claim with {names.ALLOW_CLAIM_DELETION}: true",
        ),
        Hindrance.REPLICA_CONDEMNED: Meaning(
            "the StatefulSet has fewer replicas by now, so the pod goes and is not made again",
            "wait, or give the StatefulSet its replicas back",
        ),
        Hindrance.SINGLE_REPLICA: Meaning(
            "the workload has one replica, which has the only copy of the data",
            "save the data, or give the workload more replicas",
        ),
        Hindrance.REPLICA_NOT_IN_SYNC: Meaning(
            "another replica became Ready less than --reprovision-pause ago, or lacks the condition that its StatefulSet names as being in "
            "sync: it may still be copying the data",
            "wait; where the pods have a condition that is True once a replica has all its data, name it on the StatefulSet in the "
            f"annotation {names.IN_SYNC_CONDITION}",
        ),
        Hindrance.REPLICA_NOT_APART: Meaning(
            "another replica is on this node too, or has no claim of its own, so it may not have a copy that stays",
            f"spread the replicas over nodes; annotate the claim with {names.REPROVISION_PEERS}: NUMBER if fewer others are enough",
        ),
        Hindrance.EACH_WAITS: Meaning(
            "another replica is not there, and its StatefulSet, which makes its pods in order, makes it only once this one is ready",
            "take the evacuation back until all replicas are ready; if the others that are ready have all the data, annotate the claim with"
            f" {names.REPROVISION_PEERS}: NUMBER",
        ),
        Hindrance.WORKLOAD_ROLLING: Meaning(
            "the StatefulSet is being rolled out, so its replicas are replaced by its controller too",
            "wait for the end of the rollout; with OnDelete or a partition that is when all its pods are of the new revision",
        ),
        Hindrance.CLAIM_CHANGED: Meaning(
            "the claim is another one than that which was judged, or is being deleted by somebody",
            "wait; the node is judged again",
        ),
        Hindrance.SEVERAL_PLACES: Meaning(
            "the PersistentVolume does not say that its data is on this node alone",
            "correct the node affinity of the PersistentVolume, or delete the claim by hand",
        ),
        Hindrance.NO_CAPACITY: MEANING[Reason.NO_CAPACITY],
        Hindrance.NO_NODE_FITS: MEANING[Reason.NO_NODE_FITS],
        Hindrance.FOREIGN_FINALIZER: Meaning(
            "somebody else's finalizer is on the claim, so somebody needs it",
            "see who set the finalizer that the message names",
        ),
        Hindrance.SNAPSHOT_ON_NODE: MEANING[Reason.SNAPSHOT_ON_NODE],
        Hindrance.NAMESPACE_ENDS: Meaning(
            "the namespace is being deleted, and the claim with it",
            "wait",
        ),
        Hindrance.MARK_NOT_UNDERSTOOD: Meaning(
            "a mark on the claim, or the record in the Lease, is not what this sidecar writes",
            "see who wrote what the message quotes, and correct it or take it away",
        ),
        Hindrance.WORKLOAD_TAKEN: Meaning(
            "another node makes a replica of this workload anew",
            "wait",
        ),
        Hindrance.CLAIM_IN_USE: Meaning(
            "another pod that has a node uses the claim",
            "stop that pod",
        ),
        Hindrance.CLAIM_NOT_DELETED: Meaning(
            "the API server, or a policy or webhook there, refuses to delete the claim",
            "see the message; a right that is missing is in deploy/components/reprovision. To give it up, take the taint off the "
            "node: until its claim is deleted the pod returns to its data",
        ),
        Hindrance.REPLACEMENT_NOT_READY: Meaning(
            "a replica that was sent away is not Ready again within --reprovision-ready-timeout, so no other one of its workload is "
            "touched",
            "see what the message says, and the events and the log of the pod that it names; as long as its claim is not deleted, it "
            "returns to its data if the taint is taken off the node",
        ),
    }
)
