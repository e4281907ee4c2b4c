"""What a decision still has to know: objects to be fetched, what was found, and how to read that. Nothing here fetches.

What was found is plain JSON that others wrote: `part`, `text` and `items` read it without trusting its shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

Json = dict[str, Any]

SNAPSHOT, CONTENT, GRANTS = "VolumeSnapshot", "VolumeSnapshotContent", "ReferenceGrants"
CLAIM, VOLUME, ATTRIBUTES_CLASS = "PersistentVolumeClaim", "PersistentVolume", "VolumeAttributesClass"
PODS, CLAIMS = "Pods", "PersistentVolumeClaims"

_RESOURCES: Final[Mapping[str, str]] = {
    SNAPSHOT: "volumesnapshots.snapshot.storage.k8s.io",
    CONTENT: "volumesnapshotcontents.snapshot.storage.k8s.io",
    GRANTS: "referencegrants.gateway.networking.k8s.io",
    CLAIM: "persistentvolumeclaims",
    VOLUME: "persistentvolumes",
    ATTRIBUTES_CLASS: "volumeattributesclasses.storage.k8s.io",
    PODS: "pods",
    CLAIMS: "persistentvolumeclaims",
}


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """One object; for grants, pods and claims in the plural, all of a namespace, as a list object with `items`."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        if not self.name:
            return f"{self.kind} of namespace {self.namespace!r}"
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class Absent:
    """It could not be had; `why` is the API server's word."""

    why: str
    exists: bool | None = None
    """False: there is none. None: not known, e.g. because reading it is forbidden."""

    def said_of(self, ref: Ref) -> str:
        """For whoever has to mend it: that there is none, or what may keep this program from reading it."""
        if self.exists is False:
            return f"{ref} does not exist" if ref.name else f"this cluster knows no {ref.kind}"
        right = f"{'get' if ref.name else 'list'} on {_RESOURCES.get(ref.kind, ref.kind)}"
        return f"{ref} could not be read: {self.why}; where that is forbidden, grant this program {right}"


@dataclass(frozen=True, slots=True)
class Need:
    """Fetch these and ask again."""

    refs: frozenset[Ref]


Facts = Mapping[Ref, Json | Absent]
NO_FACTS: Facts = MappingProxyType({})


def part(obj: Any, *path: str) -> Any:
    """What lies at the end of that way; None where it leads nowhere."""
    for step in path:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    return obj


def text(obj: Any, *path: str) -> str:
    """The text there; empty where there is none."""
    value = part(obj, *path)
    return value if isinstance(value, str) else ""


def items(obj: Any, *path: str) -> list[Any]:
    """The list there; empty where there is none."""
    value = part(obj, *path)
    return value if isinstance(value, list) else []
