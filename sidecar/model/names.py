"""Every label, annotation, finalizer, event reason and derived name, once. A string that another program can see is born here."""

from typing import Final

GROUP: Final = "csi-node-sidecar.io"

# annotations on claims
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
STORAGE_PROVISIONER_BETA: Final = "volume.beta.kubernetes.io/storage-provisioner"
STORAGE_CLASS_BETA: Final = "volume.beta.kubernetes.io/storage-class"
MIGRATED_TO: Final = "pv.kubernetes.io/migrated-to"

# finalizers of what volumes are filled from
CLONE_FINALIZER: Final = "provisioner.storage.kubernetes.io/cloning-protection"
SNAPSHOT_FINALIZER: Final = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

# on snapshots
SNAPSHOT_GROUP: Final = "snapshot.storage.k8s.io"
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

# reasons of events
PROVISIONING: Final = "Provisioning"
PROVISIONING_SUCCEEDED: Final = "ProvisioningSucceeded"
PROVISIONING_FAILED: Final = "ProvisioningFailed"
NO_NODE_TAKES_IT: Final = "NoNodeTakesClaim"
VOLUME_FAILED_DELETE: Final = "VolumeFailedDelete"

_MANAGER: Final = "external-provisioner"
_LABEL_LIMIT: Final = 63


def volume_name(prefix: str, uid: str, uuid_length: int) -> str:
    """The name of the volume for a claim, and of its PersistentVolume: the whole uid, or its first `uuid_length` digits."""
    return f"{prefix}-{uid}" if uuid_length == -1 else f"{prefix}-{uid.replace('-', '')[:uuid_length]}"


def capacity_manager(node: str, base: str = _MANAGER) -> str:
    """The managed-by label of this node's capacity objects: upstream's value, so that each program adopts the other's objects.

    A label value holds 63 characters; a long node name keeps its own characters and the base is shortened to a hash.
    """
    full = f"{base}-{node}" if base else node
    if len(full) <= _LABEL_LIMIT:
        return full
    keep = _LABEL_LIMIT - 10 - len(node)
    if keep >= 1:
        return f"{base[:keep]}-{_fnv1a(base)}-{node}"
    return f"{base}-{_fnv1a(full)}" if base else _fnv1a(full)


def _fnv1a(text: str) -> str:
    digest = 0x811C9DC5
    for byte in text.encode():
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{digest:08x}"
