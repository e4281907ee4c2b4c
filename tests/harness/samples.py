"""Objects for tests, as the API server sends them. The fixture of the acceptance cases; a test changes what it is about."""

import copy
import json
from typing import Any

from sidecar.csi.api import CONTROLLER_SERVICE, CREATE_DELETE_VOLUME, TOPOLOGY, DriverInfo
from sidecar.local.here import Here, Options
from sidecar.model.objects import Claim, Class, Volume
from sidecar.model.packed import PackedVolume
from sidecar.model.topology import Segment

DRIVER, NODE, KEY = "test-driver", "foo", "topology.test-driver/node"
Json = dict[str, Any]

_CLAIM: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "fake-pvc",
        "namespace": "fake-ns",
        "uid": "testid",
        "resourceVersion": "7",
        "annotations": {"volume.beta.kubernetes.io/storage-provisioner": DRIVER},
        "managedFields": [{"manager": "somebody"}],
    },
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "100"}},
        "storageClassName": "fake-class",
    },
    "status": {"phase": "Pending"},
}
_CLASS: Json = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fake-class", "uid": "class-uid"},
    "provisioner": DRIVER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
}
_VOLUME: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {
        "name": "test-testi",
        "uid": "volume-uid",
        "resourceVersion": "9",
        "annotations": {
            "pv.kubernetes.io/provisioned-by": DRIVER,
            "volume.kubernetes.io/provisioner-deletion-secret-name": "",
            "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
        },
        "finalizers": ["kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"],
    },
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "100"},
        "claimRef": {"uid": "testid", "namespace": "fake-ns", "name": "fake-pvc"},
        "csi": {"driver": DRIVER, "volumeHandle": "test-volume-id", "volumeAttributes": {}},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": KEY, "operator": "In", "values": [NODE]}]}]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "fake-class",
    },
    "status": {"phase": "Released"},
}

PACKED = PackedVolume(_VOLUME)


def claim_json(*, annotations: dict[str, str | None] | None = None, meta: Json | None = None, **spec: Any) -> Json:
    obj = copy.deepcopy(_CLAIM)
    obj["metadata"] |= meta or {}
    for key, value in (annotations or {}).items():
        if value is None:
            obj["metadata"]["annotations"].pop(key, None)
        else:
            obj["metadata"]["annotations"][key] = value
    obj["spec"] |= spec
    return obj


def claim(*, selected: str = "", **changes: Any) -> Claim:
    if selected:
        changes["annotations"] = {"volume.kubernetes.io/selected-node": selected, **(changes.get("annotations") or {})}
    return Claim.of(claim_json(**changes), keep_whole=True)


def class_json(**changes: Any) -> Json:
    return copy.deepcopy(_CLASS) | changes


def class_(**changes: Any) -> Class:
    return Class.of(class_json(**changes))


def placed(*nodes: str, key: str = KEY) -> Json:
    """A node affinity with a term for each of these nodes."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [node]}]} for node in nodes]
    return {"required": {"nodeSelectorTerms": terms}}


def volume_json(*, meta: Json | None = None, spec: Json | None = None, status: Json | None = None, annotations: Json | None = None) -> Json:
    obj = copy.deepcopy(_VOLUME)
    obj["metadata"] |= meta or {}
    obj["metadata"]["annotations"] |= annotations or {}
    for key, value in (spec or {}).items():
        if value is None:
            obj["spec"].pop(key, None)
        else:
            obj["spec"][key] = value
    obj["status"] |= status or {}
    return obj


def volume_without_notes(**changes: Any) -> Json:
    """It does not say which secret its deletion takes."""
    obj = volume_json(**changes)
    for half in ("name", "namespace"):
        del obj["metadata"]["annotations"][f"volume.kubernetes.io/provisioner-deletion-secret-{half}"]
    return obj


def volume(**changes: Any) -> Volume:
    return Volume.of(volume_json(**changes))


def info(
    *, topology: bool = True, segment: dict[str, str] | None = None, controller: tuple[str, ...] = (CREATE_DELETE_VOLUME,)
) -> DriverInfo:
    labels = {KEY: NODE} if segment is None else segment
    plugin = {CONTROLLER_SERVICE, TOPOLOGY} if topology else {CONTROLLER_SERVICE}
    return DriverInfo(DRIVER, "1", frozenset(plugin), frozenset(controller), NODE, Segment.of(labels))


def here(driver: DriverInfo | None = None, **options: Any) -> Here:
    given: Json = {"volume_name_prefix": "test", "volume_name_uuid_length": 5, "default_fstype": "ext4"} | options
    return Here(NODE, driver or info(), Options(**given), "test-provisioner")


def whole(obj: Claim) -> Json:
    body: Json = json.loads(obj.whole)
    return body
