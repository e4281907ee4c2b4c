"""What objects must say and what may not change, for all kinds and for single ones; and what single kinds have from their beginning.

The rules are those that a request of the product, or of its users' manifests, can break. Each answers with the sentences it found.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hack.sim.cluster.refusals import not_allowed, required, wrong
from hack.sim.cluster.schema import value_of
from sidecar.model.objects import Json

IMMUTABLE: Final = "field is immutable"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_MOST_ANNOTATIONS: Final = 256 * 1024
# What a client sends back of these must be what it was given.
_GIVEN_BY_SERVER: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace")
_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_CLAIM_IMMUTABLE: Final = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def subdomain(name: str) -> str:
    """Why this cannot be a name; empty if it can. The rule of most kinds."""
    return _why_not(name, _SUBDOMAIN, _LONGEST_NAME, "a lowercase RFC 1123 subdomain")


def _why_not(text: str, pattern: str, longest: int, what: str) -> str:
    if len(text) > longest:
        return f"must be no more than {longest} bytes"
    return "" if re.fullmatch(pattern, text) else f"{what} must match, as the regex used for validation is '{pattern}'"


def metadata(meta: Json, *, name_rule: Callable[[str], str]) -> list[str]:
    found: list[str] = []
    if not meta.get("name"):
        found.append(required("metadata.name", "name or generateName is required"))
    elif why := name_rule(meta["name"]):
        found.append(wrong("metadata.name", meta["name"], why))
    found += labels(meta.get("labels"), "metadata.labels")
    found += _annotations(meta.get("annotations") or {})
    for owner in meta.get("ownerReferences") or ():
        lacking = [key for key in ("apiVersion", "kind", "name", "uid") if not owner.get(key)]
        found += [wrong(f"metadata.ownerReferences.{key}", "", "must not be empty") for key in lacking]
    found += [wrong("metadata.finalizers", word, why) for word in meta.get("finalizers") or () if (why := qualified_name(word))]
    return found


def metadata_change(new: Json, old: Json) -> list[str]:
    found = [wrong(f"metadata.{key}", new[key], IMMUTABLE) for key in _GIVEN_BY_SERVER if key in new and new[key] != old.get(key)]
    late = [word for word in new.get("finalizers") or () if word not in (old.get("finalizers") or ())]
    if old.get("deletionTimestamp") and late:
        detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {late}"
        found.append(not_allowed("metadata.finalizers", detail))
    return found


def labels(values: Mapping[str, str] | None, field: str) -> list[str]:
    found: list[str] = []
    for key, value in (values or {}).items():
        if why := qualified_name(key):
            found.append(wrong(field, key, why))
        found += _label_value(value, field)
    return found


def _label_value(value: str, field: str) -> list[str]:
    why = _why_not(value, _VALUE, _LONGEST_LABEL, "a valid label")
    return [wrong(field, value, why)] if why else []


def qualified_name(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and (why := subdomain(prefix)):
        return f"prefix part {why}"
    return _why_not(name, _QUALIFIED, _LONGEST_LABEL, "name part") if name else "name part must be non-empty"


def expressions(items: Sequence[Json], field: str) -> list[str]:
    found: list[str] = []
    for number, item in enumerate(items):
        key, place = str(item.get("key") or ""), f"{field}[{number}]"
        if why := qualified_name(key):
            found.append(wrong(f"{place}.key", key, why))
        for value in item.get("values") or ():
            found += _label_value(value, f"{place}.values")
    return found


def all_of(values: Iterable[Any], field: str, allowed: Sequence[str]) -> list[str]:
    words = ", ".join(f'"{word}"' for word in allowed)
    return [f'{field}: Unsupported value: "{value}": supported values: {words}' for value in values if value not in allowed]


def changed(new: Json, old: Json, fields: Iterable[str]) -> list[str]:
    """These may not change. Dots lead inwards."""
    return [wrong(field, inside(new, field), IMMUTABLE) for field in fields if inside(new, field) != inside(old, field)]


def inside(obj: Any, field: str) -> Any:
    for key in field.split("."):
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj


def _annotations(values: Mapping[str, str]) -> list[str]:
    found = [wrong("metadata.annotations", key, why) for key in values if (why := qualified_name(key.lower()))]
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > _MOST_ANNOTATIONS:
        found.append(f"metadata.annotations: Too long: may not be more than {_MOST_ANNOTATIONS} bytes")
    return found


# --- single kinds ------------------------------------------------------------------------------------------------------------


def check_claim(claim: Json) -> list[str]:
    found = check_modes(claim)
    storage = inside(claim, "spec.resources.requests.storage")
    return found if storage is not None else [*found, required("spec.resources[storage]")]


def check_claim_change(claim: Json, old: Json) -> list[str]:
    new, before = dict(claim["spec"]), dict(old["spec"])
    free = ["resources", "volumeAttributesClassName"] if inside(old, "status.phase") == "Bound" else []
    free += [] if before.get("volumeName") else ["volumeName"]
    free += [] if "storageClassName" in before else ["storageClassName"]
    for key in free:
        new.pop(key, None)
        before.pop(key, None)
    return [] if new == before else [not_allowed("spec", _CLAIM_IMMUTABLE)]


def check_volume(volume: Json) -> list[str]:
    spec, found = volume["spec"], check_modes(volume)
    needed = ("capacity.storage", *(("csi.driver", "csi.volumeHandle") if "csi" in spec else ()))
    found += [required(f"spec.{field}") for field in needed if not inside(spec, field)]
    if (affinity := spec.get("nodeAffinity")) is not None:
        terms = inside(affinity, "required.nodeSelectorTerms")
        place = "spec.nodeAffinity.required.nodeSelectorTerms"
        found += [] if terms else [required(place, "must have at least one node selector term")]
        for term in terms or ():
            found += expressions(term.get("matchExpressions") or (), f"{place}.matchExpressions")
    return found + all_of([spec["persistentVolumeReclaimPolicy"]], "spec.persistentVolumeReclaimPolicy", ("Delete", "Retain"))


def check_volume_change(volume: Json, old: Json) -> list[str]:
    new, before = volume["spec"], old["spec"]
    moved = before.get("nodeAffinity") and new.get("nodeAffinity") != before["nodeAffinity"]
    return [wrong("nodeAffinity", new.get("nodeAffinity"), IMMUTABLE)] if moved else []


def check_capacity(capacity: Json) -> list[str]:
    found = labels(inside(capacity, "nodeTopology.matchLabels"), "nodeTopology.matchLabels")
    name = capacity.get("storageClassName") or ""
    if why := subdomain(name):
        found.append(wrong("storageClassName", name, why))
    for field in ("capacity", "maximumVolumeSize"):
        if field in capacity and value_of(capacity[field]) < 0:
            found.append(wrong(field, capacity[field], "must be greater than or equal to 0"))
    return found


def check_modes(obj: Json) -> list[str]:
    """What claims and volumes have in common."""
    spec = obj["spec"]
    found: list[str] = [] if spec.get("accessModes") else [required("spec.accessModes")]
    found += all_of(spec.get("accessModes") or (), "spec.accessModes", _MODES)
    if spec.get("storageClassName") and (why := subdomain(spec["storageClassName"])):
        found.append(wrong("spec.storageClassName", spec["storageClassName"], why))
    return found + all_of([spec["volumeMode"]], "spec.volumeMode", _VOLUME_MODES)


def pod_born(pod: Json) -> None:
    tolerations = pod["spec"].setdefault("tolerations", [])
    tolerated = {toleration.get("key") for toleration in tolerations}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if key not in tolerated:
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def check_pod(pod: Json) -> list[str]:
    containers = pod["spec"].get("containers") or []
    found: list[str] = [] if containers else [required("spec.containers")]
    for number, container in enumerate(containers):
        found += [required(f"spec.containers[{number}].{key}") for key in ("name", "image") if not container.get(key)]
    return found


def node_born(node: Json) -> None:
    """Nobody shall be scheduled before a kubelet has spoken; the node lifecycle controller takes the taint away."""
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    if not any(taint.get("key") == "node.kubernetes.io/not-ready" for taint in taints):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})


def check_node(node: Json) -> list[str]:
    taints = inside(node, "spec.taints") or ()
    keys = [str(taint.get("key") or "") for taint in taints]
    found = [wrong("metadata.taints.key", key, why) for key in keys if (why := qualified_name(key))]
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    return found + all_of([taint.get("effect") for taint in taints], "metadata.taints.effect", effects)


def namespace_born(namespace: Json) -> None:
    meta = namespace["metadata"]
    meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}


def check_event(event: Json) -> list[str]:
    """An event lives where its object does; those of objects without a namespace live in `default`."""
    about, own = inside(event, "involvedObject.namespace") or "", event["metadata"].get("namespace") or ""
    if about == own or (not about and own == "default"):
        return []
    return [wrong("involvedObject.namespace", about, "does not match event.namespace")]
