"""What is special about claims, volumes, classes, capacities and attachments: defaults, what they must say, what may not change."""

from typing import Any, Final

from hack.sim.cluster.kinds import checks, claim_policy
from hack.sim.cluster.kinds.checks import Causes, inside
from hack.sim.cluster.kinds.kind import Others
from hack.sim.cluster.kinds.quantities import value_of
from hack.sim.cluster.kinds.schema import QUANTITIES, WORDS
from hack.sim.cluster.refusals import forbidden, immutable, not_allowed, required, unsupported, wrong
from sidecar.kube.api import CLAIMS, CLASSES
from sidecar.model.objects import Json

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_SOURCES: Final = (
    "csi", "hostPath", "local", "nfs", "iscsi", "fc", "rbd", "cephfs", "cinder", "glusterfs", "gcePersistentDisk",
    "awsElasticBlockStore", "azureDisk", "azureFile", "vsphereVolume", "portworxVolume", "scaleIO", "flexVolume", "storageos",
)  # fmt: skip
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_CLAIM_IMMUTABLE: Final = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"

CLAIM_FIELDS: Final = {
    "spec": {
        "accessModes": [str], "storageClassName": str, "volumeName": str, "volumeMode": str, "selector": dict, "dataSource": dict,
        "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    },
    "status": {"phase": str, "capacity": QUANTITIES, "accessModes": [str], "conditions": [dict]},
}  # fmt: skip
VOLUME_FIELDS: Final = {
    "spec": {
        "accessModes": [str], "capacity": QUANTITIES, "storageClassName": str, "volumeMode": str, "mountOptions": [str],
        "persistentVolumeReclaimPolicy": str, "claimRef": {"name": str, "namespace": str, "uid": str},
        "csi": {"driver": str, "volumeHandle": str, "fsType": str, "volumeAttributes": WORDS},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [dict]}},
    },
    "status": {"phase": str, "message": str, "reason": str},
}  # fmt: skip


def claim_defaults(claim: Json) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim["spec"].setdefault("resources", {})


def claim_born(claim: Json, _now: str) -> None:
    claim["status"] = {"phase": "Pending"}
    _protect(claim, "kubernetes.io/pvc-protection")


def claim_admit(claim: Json, old: Json | None, others: Others) -> None:
    if old is None:
        _give_default_class(claim, others)
    elif _storage(claim) != _storage(old) and value_of(_storage(claim)) > value_of(_storage(old)):
        name = claim["spec"].get("storageClassName") or ""
        if not (others.find(CLASSES, name) or {}).get("allowVolumeExpansion"):
            why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            raise forbidden(CLAIMS, claim["metadata"]["name"], why)
    claim_policy.label(claim, old, others)


def check_claim(claim: Json) -> Causes:
    spec = claim["spec"]
    found: Causes = []
    if not spec.get("accessModes"):
        found.append(required("spec.accessModes", "at least 1 access mode is required"))
    found += checks.all_of(spec.get("accessModes") or (), "spec.accessModes", _MODES)
    storage = inside(spec, "resources.requests.storage")
    if storage is None:
        found.append(required("spec.resources[storage]"))
    elif value_of(storage) <= 0:
        found.append(wrong("spec.resources[storage]", storage, "must be greater than zero"))
    if spec.get("storageClassName") and (why := checks.subdomain(spec["storageClassName"])):
        found.append(wrong("spec.storageClassName", spec["storageClassName"], why))
    found += checks.label_selector(spec.get("selector"), "spec.selector")
    return found + checks.one_of(spec["volumeMode"], "spec.volumeMode", _VOLUME_MODES)


def check_claim_change(claim: Json, old: Json) -> Causes:
    new, before = dict(claim["spec"]), dict(old["spec"])
    if not before.get("volumeName"):
        new.pop("volumeName", None)
        before.pop("volumeName", None)
    if "storageClassName" not in before:
        new.pop("storageClassName", None)
    if inside(old, "status.phase") == "Bound":
        for free in ("resources", "volumeAttributesClassName"):
            new.pop(free, None)
            before.pop(free, None)
    if new != before:
        return [not_allowed("spec", _CLAIM_IMMUTABLE)]
    smallest = inside(old, "status.capacity.storage")
    shrinks = _storage(claim) != _storage(old) and value_of(_storage(claim)) < value_of(_storage(old))
    if shrinks and (smallest is None or value_of(_storage(claim)) <= value_of(smallest)):
        return [not_allowed("spec.resources.requests.storage", "field can not be less than status.capacity")]
    return []


def volume_defaults(volume: Json) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def volume_born(volume: Json, now: str) -> None:
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
    _protect(volume, "kubernetes.io/pv-protection")


def check_volume(volume: Json) -> Causes:
    spec = volume["spec"]
    found: Causes = [] if spec.get("accessModes") else [required("spec.accessModes")]
    found += checks.all_of(spec.get("accessModes") or (), "spec.accessModes", _MODES)
    capacity = spec.get("capacity") or {}
    if not capacity:
        found.append(required("spec.capacity"))
    if set(capacity) != {"storage"}:
        found.append(unsupported("spec.capacity", spec.get("capacity"), ("storage",)))
    elif value_of(capacity["storage"]) <= 0:
        found.append(wrong("spec.capacity[storage]", capacity["storage"], "must be greater than zero"))
    found += _check_sources(spec) + _check_affinity(spec.get("nodeAffinity"))
    found += checks.one_of(spec["persistentVolumeReclaimPolicy"], "spec.persistentVolumeReclaimPolicy", ("Delete", "Recycle", "Retain"))
    if spec.get("storageClassName") and (why := checks.subdomain(spec["storageClassName"])):
        found.append(wrong("spec.storageClassName", spec["storageClassName"], why))
    return found + checks.one_of(spec["volumeMode"], "spec.volumeMode", _VOLUME_MODES)


def check_volume_change(volume: Json, old: Json) -> Causes:
    new, before = volume["spec"], old["spec"]
    found: Causes = []
    if _sources(new) != _sources(before):
        found.append(not_allowed("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
    if new.get("volumeMode") != before.get("volumeMode"):
        found.append(immutable("volumeMode", new.get("volumeMode")))
    if before.get("nodeAffinity") and new.get("nodeAffinity") != before["nodeAffinity"]:
        found.append(wrong("nodeAffinity", new.get("nodeAffinity"), "field is immutable, except for updating from beta label to GA"))
    return found


def class_defaults(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def check_class(storage_class: Json) -> Causes:
    found: Causes = [] if storage_class.get("provisioner") else [required("provisioner")]
    found += checks.one_of(storage_class["reclaimPolicy"], "reclaimPolicy", ("Delete", "Retain"))
    return found + checks.one_of(storage_class["volumeBindingMode"], "volumeBindingMode", ("Immediate", "WaitForFirstConsumer"))


def check_class_change(new: Json, old: Json) -> Causes:
    return checks.changed(new, old, "parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


def check_capacity(capacity: Json) -> Causes:
    found = checks.label_selector(capacity.get("nodeTopology"), "nodeTopology")
    name = capacity.get("storageClassName") or ""
    if why := checks.subdomain(name):
        found.append(wrong("storageClassName", name, why))
    for field in ("capacity", "maximumVolumeSize"):
        if field in capacity and value_of(capacity[field]) < 0:
            found.append(wrong(field, capacity[field], "must be greater than or equal to 0"))
    return found


def check_capacity_change(new: Json, old: Json) -> Causes:
    return checks.changed(new, old, "nodeTopology", "storageClassName")


def attachment_born(attachment: Json, _now: str) -> None:
    attachment["status"] = {"attached": False}


def check_attachment(attachment: Json) -> Causes:
    spec = attachment.get("spec") or {}
    found: Causes = [] if spec.get("attacher") else [required("spec.attacher")]
    if len({"persistentVolumeName", "inlineVolumeSpec"} & (spec.get("source") or {}).keys()) != 1:
        found.append(required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
    if why := checks.subdomain(spec.get("nodeName") or ""):
        found.append(wrong("spec.nodeName", spec.get("nodeName") or "", why))
    return found


def check_attachment_change(new: Json, old: Json) -> Causes:
    return checks.changed(new, old, "spec")


def check_csi_node(node: Json) -> Causes:
    found: Causes = []
    drivers = inside(node, "spec.drivers") or []
    for number, driver in enumerate(drivers):
        found += [required(f"spec.drivers[{number}].{key}") for key in ("name", "nodeID") if not driver.get(key)]
    names = [driver.get("name") for driver in drivers]
    return found + [wrong("spec.drivers", name, "duplicate driver") for name in {name for name in names if names.count(name) > 1}]


def csi_driver_defaults(driver: Json) -> None:
    driver["spec"] = {
        "attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"], "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False, "seLinuxMount": False,
    } | (driver.get("spec") or {})  # fmt: skip


def _protect(obj: Json, finalizer: str) -> None:
    words = obj["metadata"].get("finalizers") or []
    obj["metadata"]["finalizers"] = words if finalizer in words else [*words, finalizer]


def _storage(claim: Json) -> Any:
    return inside(claim, "spec.resources.requests.storage") or "0"


def _give_default_class(claim: Json, others: Others) -> None:
    """The youngest of the classes that say they are the default."""
    meant = [
        item["metadata"] for item in others.all_of(CLASSES) if (item["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    if meant and "storageClassName" not in claim["spec"]:
        claim["spec"]["storageClassName"] = max(meant, key=lambda meta: (meta["creationTimestamp"], meta["name"]))["name"]


def _sources(spec: Json) -> Json:
    return {key: spec[key] for key in _SOURCES if key in spec}


def _check_sources(spec: Json) -> Causes:
    found = list(_sources(spec))
    if not found:
        return [required("spec", "must specify a volume type")]
    if len(found) > 1:
        return [not_allowed(f"spec.{found[0]}", "may not specify more than 1 volume type")]
    return [required(f"spec.csi.{key}") for key in ("driver", "volumeHandle") if "csi" in spec and not spec["csi"].get(key)]


def _check_affinity(affinity: Json | None) -> Causes:
    if affinity is None:
        return []
    if affinity.get("required") is None:
        return [required("spec.nodeAffinity.required", "must specify required node constraints")]
    terms = affinity["required"].get("nodeSelectorTerms") or []
    if not terms:
        return [required("spec.nodeAffinity.required.nodeSelectorTerms", "must have at least one node selector term")]
    return checks.node_selector_terms(terms, "spec.nodeAffinity.required.nodeSelectorTerms")
