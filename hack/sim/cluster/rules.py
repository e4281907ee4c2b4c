"""What is special about single kinds: defaults, what a new object has, what it must say, and what may not change.

The rules are those that a request of the product, or of its users' manifests, can break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hack.sim.cluster import checks, claim_policy
from hack.sim.cluster.checks import Causes, inside
from hack.sim.cluster.refusals import forbidden, immutable, not_allowed, required, wrong
from hack.sim.cluster.schema import value_of
from sidecar.kube.api import CLAIMS, CLASSES
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.cluster.store import Store

# ---- claims ----

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_CLAIM_IMMUTABLE: Final = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def claim_admit(claim: Json, old: Json | None, others: Store) -> None:
    if old is None:
        _give_default_class(claim, others)
    elif value_of(_storage(claim)) > value_of(_storage(old)):
        name = claim["spec"].get("storageClassName") or ""
        if not (others.find(CLASSES, name) or {}).get("allowVolumeExpansion"):
            why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            raise forbidden(CLAIMS, claim["metadata"]["name"], why)
    claim_policy.label(claim, old, others)


def check_claim(claim: Json) -> Causes:
    found = check_modes(claim)
    storage = inside(claim, "spec.resources.requests.storage")
    return found if storage is not None else [*found, required("spec.resources[storage]")]


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


def _give_default_class(claim: Json, others: Store) -> None:
    """The youngest of the classes that say they are the default."""
    meant = [
        item["metadata"] for item in others.all_of(CLASSES) if (item["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    if meant and "storageClassName" not in claim["spec"]:
        claim["spec"]["storageClassName"] = max(meant, key=lambda meta: (meta["creationTimestamp"], meta["name"]))["name"]


# ---- volumes, classes and capacities ----


def check_volume(volume: Json) -> Causes:
    spec, found = volume["spec"], check_modes(volume)
    needed = ("capacity.storage", *(("csi.driver", "csi.volumeHandle") if "csi" in spec else ()))
    found += [required(f"spec.{field}") for field in needed if not inside(spec, field)]
    if (affinity := spec.get("nodeAffinity")) is not None:
        terms = inside(affinity, "required.nodeSelectorTerms")
        place = "spec.nodeAffinity.required.nodeSelectorTerms"
        found += [] if terms else [required(place, "must have at least one node selector term")]
        for term in terms or ():
            found += checks.expressions(term.get("matchExpressions") or (), f"{place}.matchExpressions")
    return found + checks.all_of([spec["persistentVolumeReclaimPolicy"]], "spec.persistentVolumeReclaimPolicy", ("Delete", "Retain"))


def check_volume_change(volume: Json, old: Json) -> Causes:
    new, before = volume["spec"], old["spec"]
    found = [immutable(key, new.get(key)) for key in ("csi", "volumeMode") if new.get(key) != before.get(key)]
    if before.get("nodeAffinity") and new.get("nodeAffinity") != before["nodeAffinity"]:
        found.append(immutable("nodeAffinity", new.get("nodeAffinity")))
    return found


def check_capacity(capacity: Json) -> Causes:
    found = checks.label_selector(capacity.get("nodeTopology"), "nodeTopology")
    name = capacity.get("storageClassName") or ""
    if why := checks.subdomain(name):
        found.append(wrong("storageClassName", name, why))
    for field in ("capacity", "maximumVolumeSize"):
        if field in capacity and value_of(capacity[field]) < 0:
            found.append(wrong(field, capacity[field], "must be greater than or equal to 0"))
    return found


def check_modes(obj: Json) -> Causes:
    """What claims and volumes have in common."""
    spec = obj["spec"]
    found: Causes = [] if spec.get("accessModes") else [required("spec.accessModes")]
    found += checks.all_of(spec.get("accessModes") or (), "spec.accessModes", _MODES)
    if spec.get("storageClassName") and (why := checks.subdomain(spec["storageClassName"])):
        found.append(wrong("spec.storageClassName", spec["storageClassName"], why))
    return found + checks.all_of([spec["volumeMode"]], "spec.volumeMode", _VOLUME_MODES)


# ---- pods and nodes ----


def pod_born(pod: Json) -> None:
    tolerations = pod["spec"].setdefault("tolerations", [])
    tolerated = {toleration.get("key") for toleration in tolerations}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if key not in tolerated:
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def check_pod(pod: Json) -> Causes:
    containers = pod["spec"].get("containers") or []
    found: Causes = [] if containers else [required("spec.containers")]
    for number, container in enumerate(containers):
        found += [required(f"spec.containers[{number}].{key}") for key in ("name", "image") if not container.get(key)]
    return found


def check_pod_change(pod: Json, old: Json) -> Causes:
    same = inside(pod, "spec.nodeName") == inside(old, "spec.nodeName")
    return [] if same else [not_allowed("spec", "pod updates may not change fields other than those of its containers")]


def node_born(node: Json) -> None:
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


def namespace_born(namespace: Json) -> None:
    meta = namespace["metadata"]
    meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}


def check_event(event: Json) -> Causes:
    """An event lives where its object does; those of objects without a namespace live in `default`."""
    about, own = inside(event, "involvedObject.namespace") or "", event["metadata"].get("namespace") or ""
    if about == own or (not about and own == "default"):
        return []
    return [wrong("involvedObject.namespace", about, "does not match event.namespace")]
