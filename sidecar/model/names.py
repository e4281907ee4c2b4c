"""Every string that other programs see: labels, annotations, finalizers, taints, event reasons, kinds, API groups and derived names.

They stand nowhere else (a test looks), so that a name can be looked up, and never differs between two files.
"""

import re
from typing import Final

GROUP: Final = "csi-node-sidecar.io"

# groups of the API
STORAGE_GROUP: Final = "storage.k8s.io"
SNAPSHOT_GROUP: Final = "snapshot.storage.k8s.io"
GATEWAY_GROUP: Final = "gateway.networking.k8s.io"
POLICY_GROUP: Final = "policy"
APPS_GROUP: Final = "apps"
COORDINATION_GROUP: Final = "coordination.k8s.io"
ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
AUTHORIZATION_GROUP: Final = "authorization.k8s.io"

# kinds, as references, events and messages name them
CLAIM: Final = "PersistentVolumeClaim"
VOLUME: Final = "PersistentVolume"
STORAGE_CLASS: Final = "StorageClass"
ATTRIBUTES_CLASS: Final = "VolumeAttributesClass"
CAPACITY: Final = "CSIStorageCapacity"
ATTACHMENT: Final = "VolumeAttachment"
CSI_DRIVER: Final = "CSIDriver"
CSI_NODE: Final = "CSINode"
SNAPSHOT: Final = "VolumeSnapshot"
SNAPSHOT_CONTENT: Final = "VolumeSnapshotContent"
REFERENCE_GRANT: Final = "ReferenceGrant"
MUTATING_POLICY: Final = "MutatingAdmissionPolicy"
MUTATING_POLICY_BINDING: Final = "MutatingAdmissionPolicyBinding"
POD: Final = "Pod"
NODE: Final = "Node"
NAMESPACE: Final = "Namespace"
SECRET: Final = "Secret"
CONFIG_MAP: Final = "ConfigMap"
EVENT: Final = "Event"
LEASE: Final = "Lease"
DEPLOYMENT: Final = "Deployment"
DAEMON_SET: Final = "DaemonSet"
STATEFUL_SET: Final = "StatefulSet"
DISRUPTION_BUDGET: Final = "PodDisruptionBudget"
REPLICA_SET: Final = "ReplicaSet"
POD_HASH: Final = "pod-template-hash"
"""Label of a Deployment's pods; the names of its ReplicaSets end with it."""
DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
"""Annotation of a Deployment's ReplicaSets: how many pods it wants of all of them together."""
ACCESS_REVIEW: Final = "SelfSubjectAccessReview"
REVIEW_OF_OTHERS: Final = "SubjectAccessReview"

# labels of nodes
HOSTNAME: Final = "kubernetes.io/hostname"

# annotations on claims
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
STORAGE_PROVISIONER_BETA: Final = "volume.beta.kubernetes.io/storage-provisioner"
STORAGE_CLASS_BETA: Final = "volume.beta.kubernetes.io/storage-class"

# the label of claims that an admission policy keeps (deploy/components/scoped-watches), for watches to select by
CLAIM_LABEL: Final = f"{GROUP}/claim"
CLAIM_POLICY: Final = "csi-node-sidecar-claim-label"
"""The name of the policy, and of its binding."""
WAITING_CLAIM: Final = "waiting"

# finalizers of what volumes are filled from
CLONE_FINALIZER: Final = "provisioner.storage.kubernetes.io/cloning-protection"
SNAPSHOT_FINALIZER: Final = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

# on snapshots
ALLOW_MODE_CHANGE: Final = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
CONTENT_MANAGED_BY: Final = "snapshot.storage.kubernetes.io/managed-by"

# on volumes
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
DELETION_SECRET_NAME: Final = "volume.kubernetes.io/provisioner-deletion-secret-name"
DELETION_SECRET_NAMESPACE: Final = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
MODIFY_SECRET_NAME: Final = "volume.kubernetes.io/controller-modify-secret-name"
MODIFY_SECRET_NAMESPACE: Final = "volume.kubernetes.io/controller-modify-secret-namespace"
VOLUME_FINALIZER: Final = "external-provisioner.volume.kubernetes.io/finalizer"
PROVISIONER_IDENTITY: Final = "storage.kubernetes.io/csiProvisionerIdentity"
VOLUME_NODE: Final = f"{GROUP}/node"
SEVERAL_NODES: Final = "several"
"""The value of `VOLUME_NODE` of a volume that other nodes may have to do with as well."""

# parameters of classes and of CreateVolume
RESERVED_PARAMETER_PREFIX: Final = "csi.storage.k8s.io/"
FSTYPE_PARAMETER: Final = "csi.storage.k8s.io/fstype"
FSTYPE_PARAMETER_DEPRECATED: Final = "fstype"
PVC_NAME_PARAMETER: Final = "csi.storage.k8s.io/pvc/name"
PVC_NAMESPACE_PARAMETER: Final = "csi.storage.k8s.io/pvc/namespace"
PV_NAME_PARAMETER: Final = "csi.storage.k8s.io/pv/name"

# on CSIStorageCapacity objects
CAPACITY_DRIVER_LABEL: Final = "csi.storage.k8s.io/drivername"
CAPACITY_MANAGER_LABEL: Final = "csi.storage.k8s.io/managed-by"
CAPACITY_NAME_PREFIX: Final = "csisc-"
STALE_SINCE: Final = f"{GROUP}/stale-since"

# what people write about drains on nodes, volumes, claims, classes and namespaces; every driver's sidecar reads it
EVACUATE_TAINT: Final = f"{GROUP}/evacuate"
DRAIN_INTENT: Final = f"{GROUP}/drain-intent"
NODE_DRAIN_POLICY: Final = f"{GROUP}/node-drain-policy"
FORCE_DRAIN: Final = f"{GROUP}/force-drain"
# fail-over
FAILOVER: Final = f"{GROUP}/failover"
"""On pods, claims, classes and namespaces: a word of `failover.unit.Word`."""
POWERED_OFF: Final = f"{GROUP}/powered-off"
"""On Nodes: the bootID that has ended, by the word of whoever cut the power."""
STORAGE_LOST: Final = "storage-lost"
"""A taint, by `of_driver`."""
FAILOVER_FOR: Final = f"{GROUP}/failover-for"
FAILOVER_RECORD: Final = f"{GROUP}/failover-record"
GUEST_KUBECONFIG: Final = f"{GROUP}/guest-kubeconfig"
GUEST_DRAIN_STARTED: Final = f"{GROUP}/guest-drain-started"
GUEST_CORDONED: Final = f"{GROUP}/guest-cordoned"
IGNORED_BY_MAINTENANCE: Final = f"{GROUP}/ignored-by-maintenance"
"""On a Node for which the other nodes of a maintenance are not to wait."""
DRAIN_POLICY: Final = f"{GROUP}/drain-policy"
DRAIN_POLICY_REBOOT: Final = f"{DRAIN_POLICY}.reboot"
DRAIN_POLICY_RETIRE: Final = f"{DRAIN_POLICY}.retire"
IN_SYNC_CONDITION: Final = f"{GROUP}/in-sync-condition"
"""On a StatefulSet: the type of the pods' condition that is True once a replica has all its data."""
HANDED_BACK: Final = f"{GROUP}/handed-back"
TRIED_BY: Final = f"{GROUP}/tried-by"
ACKNOWLEDGED: Final = f"{GROUP}/ack"

# on capacity objects: the physical pool that a figure is about, if somebody has written it there
POOL: Final = f"{GROUP}/pool"

# on nodes: marks of Kubernetes and of programs that drain
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
NODE_TAINTS: Final = "node.kubernetes.io/"
"""Taints that Kubernetes sets for a node's own state begin with this."""
SILENCE_TAINTS: Final = (f"{NODE_TAINTS}not-ready", f"{NODE_TAINTS}unreachable")
"""Of a node whose kubelet does not answer."""
CORDON_TAINT: Final = f"{NODE_TAINTS}unschedulable"
MIRROR_POD: Final = "kubernetes.io/config.mirror"
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
RETIRING_TAINTS: Final = ("karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler")
KURED_REBOOTS: Final = "weave.works/kured-reboot-in-progress"

# what a driver's sidecar writes on a node, each by `of_driver`: the state is a label, the others are annotations
EVACUATION_STATE: Final = "evacuation-state"
DRAIN_RECORD: Final = "drain-record"
AUTOSCALER_MARKER: Final = "autoscaler-annotations"
MAINTENANCE_RECORD: Final = "maintenance-record"

# labels of a gate's objects (the node's uid, and the driver) and of the leases by which nodes take turns (the driver)
GUARDED_NODE: Final = f"{GROUP}/guarded-node"
GUARDED_FOR: Final = f"{GROUP}/guarded-for"
SLOT_FOR: Final = f"{GROUP}/evacuation-slot-for"
# label of the lease by which one sidecar looks after what gone nodes have left, and of the reports on these nodes (the driver)
NODE_LOSS_FOR: Final = f"{GROUP}/node-loss-for"
REPROVISION_FOR: Final = f"{GROUP}/reprovision-for"
"""Of the leases by which a workload's replicas are made anew (the driver)."""
REPROVISION_RECORD: Final = f"{GROUP}/reprovision"
"""An annotation of such a lease: what is made anew, and how far that is."""

LIES_ON: Final = f"{GROUP}/lies-on"
"""On volumes, `node/uid`: the machine that has the volume's bytes."""
# on claims: by which machine's evacuation the claim is made anew, or with which machine its data was lost, `node/uid` both
REPROVISIONED_BY: Final = f"{GROUP}/reprovisioned-by"
LOST_WITH: Final = f"{GROUP}/lost-with"
# what people say about that on claims
ALLOW_CLAIM_DELETION: Final = f"{GROUP}/allow-pvc-delete"
REPROVISION_PEERS: Final = f"{GROUP}/reprovision-peers"

# the finalizer that keeps a claim while a pod uses it, and the label by which a StatefulSet says of which revision a pod is
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
POD_REVISION: Final = "controller-revision-hash"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"

# types and reasons of events
NORMAL: Final = "Normal"
WARNING: Final = "Warning"
PROVISIONING: Final = "Provisioning"
PROVISIONING_SUCCEEDED: Final = "ProvisioningSucceeded"
PROVISIONING_FAILED: Final = "ProvisioningFailed"
NO_NODE_TAKES_IT: Final = "NoNodeTakesClaim"
CLAIM_LABEL_WRONG: Final = "ClaimLabelWrong"
LEAK_SUSPECTED: Final = "VolumeLeakSuspected"
VOLUME_FAILED_DELETE: Final = "VolumeFailedDelete"
GUEST_DRAIN: Final = "GuestDrain"
MAINTENANCE_DRAINING: Final = "MaintenanceDraining"
MAINTENANCE_DRAINED: Final = "MaintenanceDrained"
MAINTENANCE_LATE: Final = "MaintenanceDeadlineExceeded"
MAINTENANCE_OVER: Final = "MaintenanceOver"
MAINTENANCE_FAST_FORWARDED: Final = "MaintenanceFastForwarded"
CORDON_UNDONE: Final = "CordonUndone"
POD_UNDRAINABLE: Final = "PodUndrainable"
STORAGE_LOST_HERE: Final = "StorageLost"
STORAGE_BACK: Final = "StorageRegained"
POD_FAILED_OVER: Final = "PodFailedOver"
VOLUME_DETACHED: Final = "VolumeDetachedByFailover"
FAILOVER_BLOCKED: Final = "FailoverBlocked"
VOLUME_RELEASED: Final = "VolumeReleased"
EVACUATION_STARTED: Final = "EvacuationStarted"
EVACUATION_SUCCEEDED: Final = "EvacuationSucceeded"
EVACUATION_DEADLINE_EXCEEDED: Final = "EvacuationDeadlineExceeded"
EVACUATION_OVERRIDDEN: Final = "EvacuationOverridden"
EVACUATION_UNDONE: Final = "EvacuationUndone"
POD_EVICTED: Final = "PodEvictedForEvacuation"
CLAIM_REPROVISIONED: Final = "ClaimReprovisioned"
REPLICA_READY: Final = "ReplicaReady"
NODE_GONE: Final = "NodeGone"
DRAIN_HELD: Final = "DrainHeld"
DRAIN_LET_GO: Final = "DrainLetGo"
NODE_MARKS_WRONG: Final = "NodeMarksWrong"
BLOCKS_NODE_DRAIN: Final = "BlocksNodeDrain"

# the report on a node, and the types of its conditions; on the Node itself these bear the driver's name (`condition`)
REPORT_VERSION: Final = f"{GROUP}/v1alpha1"
REPORT_KIND: Final = "NodeDrainReport"
MAINTENANCE_KIND: Final = "PlannedMaintenance"
DRAIN_RULE_KIND: Final = "DrainRule"
# Conditions of Nodes, as Kubernetes' own proposal names them.
MAINTENANCE_PLANNED: Final = "MaintenancePlanned"
MAINTENANCE_IN_PROGRESS: Final = "MaintenanceInProgress"
DRAIN_IN_PROGRESS: Final = "DrainInProgress"
DRAINED: Final = "Drained"
LIFECYCLE_CONDITIONS: Final = (MAINTENANCE_PLANNED, MAINTENANCE_IN_PROGRESS, DRAIN_IN_PROGRESS, DRAINED)
DRAIN_READY: Final = "DrainReady"
RETIRE_READY: Final = "RetireReady"

_NODE_PREFIX: Final = "node."
_OPEN_PREFIX: Final = "open."
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_UID_END: Final = re.compile(r"[0-9a-f]{2}")
_HASH: Final = re.compile(r"[0-9a-f]{8}")
PEER: Final = "external-provisioner"
"""The program whose place this one takes. Marks of objects that both adopt begin with its name."""
_LABEL_LIMIT: Final = 63
_NAME_LIMIT: Final = 253
GUARDS: Final = "drain-held-see-events-of-node-"
"""How the names of gates begin."""


def volume_name(prefix: str, uid: str, uuid_length: int) -> str:
    """The name of the volume for a claim, and of its PersistentVolume: the whole uid, or its first `uuid_length` digits."""
    return f"{prefix}-{uid}" if uuid_length == -1 else f"{prefix}-{uid.replace('-', '')[:uuid_length]}"


def shared_event(name: str, uid: str, what: str) -> str:
    """The name of an Event about that object which every node would write. What is too long is cut, as a name may not end in a dot."""
    suffix = f".{uid[:8]}.{what}"
    return name[: _NAME_LIMIT - len(suffix)].rstrip(".-") + suffix


def is_volume_name(name: str, uid: str) -> bool:
    """Whether `volume_name` gives it for that uid, with whatever prefix and length."""
    prefix, _, digits = name.rpartition("-")
    return name.endswith(f"-{uid}") or bool(prefix and digits and uid.replace("-", "").startswith(digits))


def node_value(node: str) -> str:
    """A node's name as the value of a label, which has at most 63 characters: of a longer name the first ones, and a hash of the whole."""
    if len(node) <= _LABEL_LIMIT:
        return node
    return f"{node[: _LABEL_LIMIT - 9].rstrip('.-')}-{_fnv1a(node)}"


def claim_label(*, selected_node: str, provisioner: str, volume_name: str, uid: str) -> str:
    """The value of `CLAIM_LABEL`: the twin of the expression in deploy/components/scoped-watches/policy.yaml, letter by letter.

    `uid` is that of the stored object, so it is empty while the claim is made. What is no node's name selects nobody.
    """
    if selected_node:
        return claims_of_node(selected_node) or WAITING_CLAIM
    return open_claims(uid) if provisioner and not volume_name else WAITING_CLAIM


def claims_of_node(node: str) -> str:
    """The value of `CLAIM_LABEL` on claims that have selected this node; empty for what can be no node's name.

    A label's value has at most 63 characters, and the policy's language has no hash: of a name with more than 58 characters both ends
    stand there, with a sign between them that no name has. Two long names may have one value, and each of those nodes hears of both.
    """
    if len(node) > _NAME_LIMIT or not _NODE_NAME.fullmatch(node):
        return ""
    if len(node) <= _LABEL_LIMIT - len(_NODE_PREFIX):
        return f"{_NODE_PREFIX}{node}"
    return f"{_NODE_PREFIX}{node[:29]}_{node[-28:]}"


def open_claims(uid: str) -> str:
    """The value of `CLAIM_LABEL` on an Immediate claim that no node has: its shard, of which there are 256.

    The last two digits of a uid are random in version 4, which Kubernetes makes, and in version 7, whose first ones are the time. Without
    such digits the shard is 00: a claim may be made with the annotation that opens it, before it has a uid.
    """
    shard = uid[-2:]
    return f"{_OPEN_PREFIX}{shard if _UID_END.fullmatch(shard) else '00'}"


SHARDS: Final = tuple(f"{_OPEN_PREFIX}{number:02x}" for number in range(256))
"""Every value that `open_claims` has."""
_SHARDS: Final = frozenset(SHARDS)


def shard_of(label: str, uid: str) -> str:
    """Those who hear of an open claim go by its label; one that was made open has another one than its uid says. Without a label that says
    so, by its uid."""
    return label if label in _SHARDS else open_claims(uid)


def capacity_manager(node: str, base: str = PEER) -> str:
    """The managed-by label of this node's capacity objects: upstream's value, so that each program adopts the other's objects.

    A label value has at most 63 characters, so with a long node name the base is shortened to a hash, as upstream does.
    """
    full = f"{base}-{node}" if base else node
    if len(full) <= _LABEL_LIMIT:
        return full
    keep = _LABEL_LIMIT - 10 - len(node)
    if keep >= 1:
        return f"{base[:keep]}-{_fnv1a(base)}-{node}"
    return f"{base}-{_fnv1a(full)}" if base else _fnv1a(full)


def manager_node(manager: str) -> str:
    """The node whose objects that label marks; empty if it does not say so, or says what may be the hash of a longer name."""
    node = manager.removeprefix(f"{PEER}-")
    return node if node and manager == f"{PEER}-{node}" and not _HASH.fullmatch(node) else ""


def of_driver(driver: str, name: str) -> str:
    """A label or annotation on nodes that only this driver's sidecar writes: several drivers' sidecars share a node."""
    return f"{driver.lower()}.{GROUP}/{name}"


def condition(driver: str, kind: str) -> str:
    """The type of a condition on Nodes that only this driver's sidecar writes."""
    return f"{driver.lower()}/{kind}"


def drain_report(node: str, driver: str) -> str:
    """The name of the report on one node by one driver's sidecar."""
    return f"{node}.{driver.lower()}"


def evacuation_slot(index: int, driver: str) -> str:
    """The name of one of the leases that limit how many nodes are evacuated at a time. Each driver has its own."""
    return f"evacuation-slot-{index}.{driver.lower()}"


def reprovision(workload_uid: str, driver: str) -> str:
    """The name of the lease by which a workload's replicas are made anew one after the other."""
    return f"reprovision-{workload_uid}.{driver.lower()}"


def watch(driver: str) -> str:
    """The name of the lease of the one sidecar that looks after silent sidecars and gone nodes."""
    return f"watch.{driver.lower()}"


def failover(driver: str) -> str:
    """The name of the lease by which one sidecar at a time fails pods over."""
    return f"failover.{driver.lower()}"


def guard(node: str, node_uid: str, driver: str) -> str:
    """The name of a gate's objects. By the node's uid: another machine under the same node name must not get an old gate.

    A drainer shows the name of the guard's pod and nothing else, so the name says what to do. That of the ReplicaSet is this one and eleven
    characters more, and of that name the API server leaves the pod the first 58, with five of its own: the node's name comes first.
    """
    rest = f"-{_fnv1a(driver)}-{node_uid}"
    most = _NAME_LIMIT - 11 - len(GUARDS) - len(rest)
    return f"{GUARDS}{node[:most].rstrip('.-')}{rest}"


def _fnv1a(text: str) -> str:
    digest = 0x811C9DC5
    for byte in text.encode():
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{digest:08x}"
