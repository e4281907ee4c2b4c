"""Tables, the form in which kubectl prints objects: one row each. A kind without columns of its own has name and age."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from hack.sim.cluster.kinds.checks import inside
from hack.sim.cluster.storage.reading import Told
from sidecar.kube import api
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

Cell = Callable[[Json], Any]
_SHORT_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _at(path: str, absent: str = "") -> Cell:
    return lambda obj: absent if (value := inside(obj, path)) is None else str(value)


def _modes(obj: Json) -> str:
    return ",".join(_SHORT_MODES.get(mode, mode) for mode in inside(obj, "spec.accessModes") or ())


def _ready(pod: Json) -> str:
    total = len(inside(pod, "spec.containers") or ())
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in inside(pod, "status.conditions") or ())
    return f"{total if ready else 0}/{total}"


def _claim_of(volume: Json) -> str:
    reference = inside(volume, "spec.claimRef")
    return f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""


def _phase(obj: Json) -> str:
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else inside(obj, "status.phase") or ""


def _node_status(node: Json) -> str:
    ready = next((item.get("status") for item in inside(node, "status.conditions") or () if item.get("type") == "Ready"), "Unknown")
    words = ["Ready" if ready == "True" else "NotReady"] + (["SchedulingDisabled"] if inside(node, "spec.unschedulable") else [])
    return ",".join(words)


def _about(event: Json) -> str:
    return f"{(inside(event, 'involvedObject.kind') or '').lower()}/{inside(event, 'involvedObject.name') or ''}"


_COLUMNS: Final[Mapping[Resource, Mapping[str, Cell]]] = {
    api.PODS: {"Ready": _ready, "Status": _phase, "Node": _at("spec.nodeName", "<none>")},
    api.NODES: {"Status": _node_status},
    api.NAMESPACES: {"Status": _phase},
    api.CLAIMS: {
        "Status": _phase,
        "Volume": _at("spec.volumeName"),
        "Capacity": _at("status.capacity.storage"),
        "Access Modes": _modes,
        "StorageClass": _at("spec.storageClassName"),
    },
    api.VOLUMES: {
        "Capacity": _at("spec.capacity.storage"),
        "Access Modes": _modes,
        "Reclaim Policy": _at("spec.persistentVolumeReclaimPolicy"),
        "Status": _phase,
        "Claim": _claim_of,
        "StorageClass": _at("spec.storageClassName"),
    },
    api.CLASSES: {
        "Provisioner": _at("provisioner"),
        "ReclaimPolicy": _at("reclaimPolicy"),
        "VolumeBindingMode": _at("volumeBindingMode"),
        "AllowVolumeExpansion": _at("allowVolumeExpansion", "false"),
    },
    api.CAPACITIES: {"StorageClassName": _at("storageClassName"), "Capacity": _at("capacity")},
    api.EVENTS: {"Type": _at("type"), "Reason": _at("reason"), "Object": _about, "Message": _at("message")},
}


def table(resource: Resource, objects: Sequence[Json], meta: Json, *, now: str) -> bytes:
    return json.dumps(_table(_COLUMNS.get(resource, {}), objects, meta, now=now)).encode()


def event(told: Told, *, now: str) -> bytes:
    """One line of a watch whose objects are tables of one row."""
    obj = told.stored.obj
    if told.type == "BOOKMARK":
        return told.line
    shown = _table(_columns_of(obj), [obj], {"resourceVersion": obj["metadata"]["resourceVersion"]}, now=now)
    return json.dumps({"type": told.type, "object": shown}).encode() + b"\n"


def _columns_of(obj: Json) -> Mapping[str, Cell]:
    kind = (obj["apiVersion"], obj["kind"])
    return next((columns for resource, columns in _COLUMNS.items() if (resource.api_version, resource.kind) == kind), {})


def _table(columns: Mapping[str, Cell], objects: Iterable[Json], meta: Json, *, now: str) -> Json:
    names = ["Name", *columns, "Age"]
    definitions = [
        {"name": name, "type": "string", "format": "name" if name == "Name" else "", "description": "", "priority": 0} for name in names
    ]
    rows = [{"cells": _cells(columns, obj, now), "object": _partial(obj)} for obj in objects]
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": definitions, "rows": rows}


def _cells(columns: Mapping[str, Cell], obj: Json, now: str) -> list[Any]:
    return [obj["metadata"]["name"], *(cell(obj) for cell in columns.values()), _age(obj["metadata"]["creationTimestamp"], now)]


def _partial(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _age(since: str, now: str) -> str:
    seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(0, seconds)}s"
