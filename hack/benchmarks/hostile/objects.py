"""What tenants write: by the name of a fill, the objects that stand in the API server when the program starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from hack.lib.programs import IMMEDIATE, LATE, Json, claim, storage_class
from hack.sim.cluster import Cluster
from sidecar.kube.api import CLAIMS, CLASSES, MERGE_PATCH, NAMESPACES, VOLUMES
from sidecar.model import names

DRIVER: Final = "ours.csi-node-sidecar.io"
NODE: Final = "bench-node"
OTHERS: Final = "others"
CROWD: Final = "crowd"

# The API server allows 256 KiB of annotations, keys included.
_LARGE: Final = 250 * 1024

# etcd takes 1.5 MiB. Labels are the one part of a claim without a bound of its own; for each the API server adds half as much again.
LARGEST: Final = 1_400_000
_LABELS: Final = {f"{number:06d}-{'k' * 50}": "v" * 63 for number in range(LARGEST * 2 // 3 // 127)}
_ATTRIBUTE: Final = "x" * LARGEST
_SMALL: Final = 10_000
_FEW: Final = 10

Fill = Callable[[int], Iterator[Json]]


def large(count: int) -> Iterator[Json]:
    """Claims of somebody else's driver, as large as the API server allows."""
    for number in range(count):
        yield claim(f"large-{number}", "theirs", annotations={"note": _padding(number)})


def impossible(count: int) -> Iterator[Json]:
    """The same of this driver, for any node that has room, which none has."""
    for number in range(count):
        notes = {names.STORAGE_PROVISIONER: DRIVER, "note": _padding(number)}
        yield claim(f"impossible-{number}", "now", size="1Pi", annotations=notes)


def without_class(count: int) -> Iterator[Json]:
    """Each of another class that does not exist."""
    for number in range(count):
        notes = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: NODE}
        yield claim(f"missing-{number}", f"missing-{number}", annotations=notes)


def selected(count: int) -> Iterator[Json]:
    """Claims for this node, which the driver is asked to make."""
    for number in range(count):
        yield claim(f"selected-{number}", "late", annotations={names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: NODE})


def crowd(count: int) -> Iterator[Json]:
    """Claims for this node, in one namespace, that are too large for it."""
    for number in range(count):
        notes = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: NODE}
        body = claim(f"crowd-{number}", "late", size="1Pi", annotations=notes)
        body["metadata"]["namespace"] = CROWD
        yield body


def largest_claims(count: int) -> Iterator[Json]:
    """Of this driver and for any node that has room, which none has: so they stay."""
    for number in range(count):
        body = claim(f"largest-{number}", "now", size="1Pi", annotations={names.STORAGE_PROVISIONER: DRIVER})
        body["metadata"]["labels"] = _LABELS
        yield body


def largest_volumes(count: int) -> Iterator[Json]:
    return (volume(f"largest-{number}", DRIVER, attributes={"note": _ATTRIBUTE}) for number in range(count))


def volume(name: str, driver: str, *, attributes: Mapping[str, str]) -> Json:
    """Bound, to a claim that nobody looks for."""
    claimed = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": f"uid-{name}"}
    source = {"driver": driver, "volumeHandle": name, "volumeAttributes": dict(attributes)}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": claimed,
        "csi": source,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "late",
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}


def _full_of_large(count: int) -> Iterator[Json]:
    """Ten of the large ones are claims, for each write of one costs the simulated API server 0.2 s, and of a volume nearly nothing."""
    few = min(count // 10, _FEW)
    yield from largest_claims(few)
    yield from (claim(f"small-{number}", "theirs") for number in range(_SMALL - few))
    yield from largest_volumes(count - few)
    yield from (volume(f"small-{number}", "theirs.example.com", attributes={}) for number in range(_SMALL - count + few))


def _padding(number: int) -> str:
    """Different texts, so that gzip does not make one of all."""
    return f"{number:06d} {number * 2654435761 % 2**32:08x} ".ljust(_LARGE // 16, "x") * 15


FILLS: Final[Mapping[str, Fill]] = {
    "nothing": lambda _: iter(()),
    "large": large,
    "impossible": impossible,
    "without-class": without_class,
    "selected": selected,
    "crowd": crowd,
    "largest": _full_of_large,
}


def fill(cluster: Cluster, name: str, count: int) -> None:
    for namespace in (OTHERS, CROWD):
        cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
    cluster.create(CLASSES, storage_class("late", DRIVER, LATE))
    cluster.create(CLASSES, storage_class("now", DRIVER, IMMEDIATE))
    cluster.create(CLASSES, storage_class("theirs", "theirs.example.com", LATE))
    create(cluster, FILLS[name](count))


def create(cluster: Cluster, bodies: Iterable[Json]) -> None:
    for body in bodies:
        resource = VOLUMES if body["kind"] == "PersistentVolume" else CLAIMS
        cluster.create(resource, body, namespace=body["metadata"].get("namespace", ""))


def change_largest(cluster: Cluster, mark: str) -> None:
    """All of them at once."""
    for resource in (CLAIMS, VOLUMES):
        for meta in [body["metadata"] for body in cluster.store.all_of(resource)]:
            if meta["name"].startswith("largest-"):
                patch = {"metadata": {"annotations": {"mark": mark}}}
                cluster.patch(resource, meta["name"], patch, content_type=MERGE_PATCH, namespace=meta.get("namespace", ""))


def compact(cluster: Cluster, mark: str) -> None:
    """Whoever goes on from a version of before is told that it is too old."""
    cluster.create(NAMESPACES, {"metadata": {"name": f"compacted-{mark}"}})
    cluster.compact()


def waiting_claim(name: str) -> Json:
    """A claim for this node that can be made."""
    body: dict[str, Any] = claim(name, "late", annotations={names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: NODE})
    body["metadata"]["namespace"] = OTHERS
    return body
