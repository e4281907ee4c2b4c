"""What tenants write: by the name of a fill, the objects that stand in the API server when the program starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hack.lib.programs import IMMEDIATE, LATE, Json, claim, storage_class
from sidecar.kube.api import CLAIMS, CLASSES, NAMESPACES
from sidecar.model import names
from sidecar.simulation.cluster import Cluster

DRIVER: Final = "ours.csi-node-sidecar.io"
NODE: Final = "bench-node"
OTHERS: Final = "others"
CROWD: Final = "crowd"

# The API server allows 256 KiB of annotations, keys included.
_LARGE: Final = 250 * 1024

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
}


def fill(cluster: Cluster, name: str, count: int) -> None:
    for namespace in (OTHERS, CROWD):
        cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
    cluster.create(CLASSES, storage_class("late", DRIVER, LATE))
    cluster.create(CLASSES, storage_class("now", DRIVER, IMMEDIATE))
    cluster.create(CLASSES, storage_class("theirs", "theirs.example.com", LATE))
    for body in FILLS[name](count):
        cluster.create(CLAIMS, body, namespace=body["metadata"]["namespace"])


def waiting_claim(name: str) -> Json:
    """A claim for this node that can be made."""
    body: dict[str, Any] = claim(name, "late", annotations={names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: NODE})
    body["metadata"]["namespace"] = OTHERS
    return body
