"""What is special about single kinds: defaults, what a new object has, what it must say, and what may not change.

The rules are those that a request of the product, or of its users' manifests, can break.
"""

from typing import Any, Final

from hack.sim.cluster import checks, claim_policy
from hack.sim.cluster.checks import Causes, inside
from hack.sim.cluster.claim_policy import Others
from hack.sim.cluster.refusals import forbidden, immutable, not_allowed, required, wrong
from hack.sim.cluster.schema import value_of
from sidecar.kube.api import CLAIMS, CLASSES
from sidecar.model.objects import Json

# ---- claims ----

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_CLAIM_IMMUTABLE: Final = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def claim_defaults(claim: Json) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim["spec"].setdefault("resources", {})


def claim_born(claim: Json, _now: str) -> None:
    claim["status"] = {"phase": "Pending"}
    _protect(claim, "kubernetes.io/pvc-protection")


def claim_admit(claim: Json, old: Json | None, others: Others) -> None:
    if old is None:
        _give_default_class(claim, others)
    elif value_of(_storage(claim)) > value_of(_storage(old)):
        name = claim["spec"].get("storageClassName") or ""
        if not (others.find(CLASSES, name) or {}).get("allowVolumeExpansion"):
            why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            raise forbidden(CLAIMS, claim["metadata"]["name"], why)
    claim_policy.label(claim, old, others)


def check_claim(claim: Json) -> Causes:
    spec = claim["spec"]
    found = _check_modes(spec, "at least 1 access mode is required")
    storage = inside(spec, "resources.requests.storage")
    if storage is None:
        found.append(required("spec.resources[storage]"))
    elif value_of(storage) <= 0:
        found.append(wrong("spec.resources[storage]", storage, "must be greater than zero"))
    return found


def check_claim_change(claim: Json, old: Json) -> Causes:
    new, before = dict(claim["spec"]), dict(old["spec"])
    free = ["resources", "volumeAttributesClassName"] if inside(old, "status.phase") == "Bound" else []
    free += [] if before.get("volumeName") else ["volumeName"]
    free += [] if "storageClassName" in before else ["storageClassName"]
    for key in free:
        new.pop(key, None)
        before.pop(key, None)
    return [] if new == before else [not_allowed("spec", _CLAIM_IMMUTABLE)]


def _storage(claim: Json) -> Any:
    return inside(claim, "spec.resources.requests.storage") or "0"


def _give_default_class(claim: Json, others: Others) -> None:
    """The youngest of the classes that say they are the default."""
    meant = [
        item["metadata"] for item in others.all_of(CLASSES) if (item["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    if meant and "storageClassName" not in claim["spec"]:
        claim["spec"]["storageClassName"] = max(meant, key=lambda meta: (meta["creationTimestamp"], meta["name"]))["name"]


# ---- volumes, classes and capacities ----


def volume_defaults(volume: Json) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def volume_born(volume: Json, now: str) -> None:
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
    _protect(volume, "kubernetes.io/pv-protection")


def check_volume(volume: Json) -> Causes:
    spec = volume["spec"]
    found = _check_modes(spec)
    storage = inside(spec, "capacity.storage")
    if storage is None:
        found.append(required("spec.capacity"))
    elif value_of(storage) <= 0:
        found.append(wrong("spec.capacity[storage]", storage, "must be greater than zero"))
    sources = _sources(spec)
    if len(sources) != 1:
        found.append(required("spec", f"must specify one volume type, and has {len(sources)}"))
    found += [required(f"spec.csi.{key}") for key in ("driver", "volumeHandle") if "csi" in spec and not spec["csi"].get(key)]
    if (affinity := spec.get("nodeAffinity")) is not None:
        terms = inside(affinity, "required.nodeSelectorTerms")
        place = "spec.nodeAffinity.required.nodeSelectorTerms"
        found += checks.node_selector_terms(terms, place) if terms else [required(place, "must have at least one node selector term")]
    return found + checks.all_of([spec["persistentVolumeReclaimPolicy"]], "spec.persistentVolumeReclaimPolicy", ("Delete", "Retain"))


def check_volume_change(volume: Json, old: Json) -> Causes:
    new, before = volume["spec"], old["spec"]
    found: Causes = []
    if _sources(new) != _sources(before):
        found.append(not_allowed("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
    if new.get("volumeMode") != before.get("volumeMode"):
        found.append(immutable("volumeMode", new.get("volumeMode")))
    if before.get("nodeAffinity") and new.get("nodeAffinity") != before["nodeAffinity"]:
        found.append(immutable("nodeAffinity", new.get("nodeAffinity")))
    return found


def class_defaults(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def check_capacity(capacity: Json) -> Causes:
    found = checks.label_selector(capacity.get("nodeTopology"), "nodeTopology")
    name = capacity.get("storageClassName") or ""
    if why := checks.subdomain(name):
        found.append(wrong("storageClassName", name, why))
    for field in ("capacity", "maximumVolumeSize"):
        if field in capacity and value_of(capacity[field]) < 0:
            found.append(wrong(field, capacity[field], "must be greater than or equal to 0"))
    return found


def csi_driver_defaults(driver: Json) -> None:
    driver["spec"] = {
        "attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"], "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False, "seLinuxMount": False,
    } | (driver.get("spec") or {})  # fmt: skip


def _protect(obj: Json, finalizer: str) -> None:
    words = obj["metadata"].get("finalizers") or []
    obj["metadata"]["finalizers"] = words if finalizer in words else [*words, finalizer]


def _check_modes(spec: Json, why: str = "") -> Causes:
    """What claims and volumes have in common."""
    found: Causes = [] if spec.get("accessModes") else [required("spec.accessModes", why)]
    found += checks.all_of(spec.get("accessModes") or (), "spec.accessModes", _MODES)
    if spec.get("storageClassName") and (why := checks.subdomain(spec["storageClassName"])):
        found.append(wrong("spec.storageClassName", spec["storageClassName"], why))
    return found + checks.all_of([spec["volumeMode"]], "spec.volumeMode", _VOLUME_MODES)


def _sources(spec: Json) -> Json:
    return {key: spec[key] for key in ("csi", "hostPath", "local", "nfs") if key in spec}


# ---- pods and nodes ----


def pod_defaults(pod: Json) -> None:
    spec = pod.setdefault("spec", {})
    for container in spec.get("containers") or ():
        container.setdefault("resources", {})
    values = {
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
        "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
    }  # fmt: skip
    pod["spec"] = values | spec


def pod_born(pod: Json, _now: str) -> None:
    tolerations = pod["spec"].setdefault("tolerations", [])
    tolerated = {toleration.get("key") for toleration in tolerations}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if key not in tolerated:
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    pod["status"] = {"phase": "Pending"}


def check_pod(pod: Json) -> Causes:
    containers = pod["spec"].get("containers") or []
    found: Causes = [] if containers else [required("spec.containers")]
    for number, container in enumerate(containers):
        found += [required(f"spec.containers[{number}].{key}") for key in ("name", "image") if not container.get(key)]
    return found


def check_pod_change(pod: Json, old: Json) -> Causes:
    same = inside(pod, "spec.nodeName") == inside(old, "spec.nodeName")
    return [] if same else [not_allowed("spec", "pod updates may not change fields other than those of its containers")]


def node_born(node: Json, _now: str) -> None:
    """Nobody shall be scheduled before a kubelet has spoken; the node lifecycle controller takes the taint away."""
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    if not any(taint.get("key") == "node.kubernetes.io/not-ready" for taint in taints):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})


def check_node(node: Json) -> Causes:
    taints = inside(node, "spec.taints") or ()
    keys = [str(taint.get("key") or "") for taint in taints]
    found = [wrong("metadata.taints.key", key, why) for key in keys if (why := checks.qualified_name(key))]
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    return found + checks.all_of([taint.get("effect") for taint in taints], "metadata.taints.effect", effects)


# ---- the rest ----


def namespace_born(namespace: Json, _now: str) -> None:
    meta = namespace["metadata"]
    meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def check_event(event: Json) -> Causes:
    """An event lives where its object does; those of objects without a namespace live in `default`."""
    about, own = inside(event, "involvedObject.namespace") or "", event["metadata"].get("namespace") or ""
    if about == own or (not about and own == "default"):
        return []
    return [wrong("involvedObject.namespace", about, "does not match event.namespace")]


def budget_born(budget: Json, _now: str) -> None:
    budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


def workload_born(workload: Json, _now: str) -> None:
    workload["status"] = {}
