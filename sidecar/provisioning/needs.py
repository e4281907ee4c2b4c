"""Describes what a decision still has to know: the objects to fetch, and what was found. `lookups` fetches them.

What was found is plain JSON that others wrote, so `part`, `text` and `items` read it without trusting its shape: a malformed object must
not break the look at a claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sidecar.kube import api
from sidecar.model import names

Json = dict[str, Any]

SNAPSHOT, CONTENT, GRANTS = names.SNAPSHOT, names.SNAPSHOT_CONTENT, "ReferenceGrants"
CLAIM, VOLUME, ATTRIBUTES_CLASS = names.CLAIM, names.VOLUME, names.ATTRIBUTES_CLASS
PODS, CLAIMS = "Pods", "PersistentVolumeClaims"

_RESOURCES: Final[Mapping[str, str]] = {
    SNAPSHOT: str(api.SNAPSHOTS),
    CONTENT: str(api.SNAPSHOT_CONTENTS),
    GRANTS: str(api.REFERENCE_GRANTS),
    CLAIM: str(api.CLAIMS),
    VOLUME: str(api.VOLUMES),
    ATTRIBUTES_CLASS: str(api.ATTRIBUTES_CLASSES),
    PODS: str(api.PODS),
    CLAIMS: str(api.CLAIMS),
}


@dataclass(frozen=True, slots=True)
class Ref:
    """One object. If the name is empty: all objects of the kind in a namespace, or in all of them, as one list object with `items`."""

    kind: str
    name: str
    namespace: str = ""

    def __lt__(self, other: "Ref") -> bool:
        return (self.kind, self.name, self.namespace) < (other.kind, other.name, other.namespace)

    def __str__(self) -> str:
        if not self.name:
            return f"{self.kind} of {f'namespace {self.namespace!r}' if self.namespace else 'all namespaces'}"
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class Absent:
    """The object could not be read; `why` is the API server's answer."""

    why: str
    exists: bool | None = None
    """False: there is no such object. None: that is not known, for example because reading it is forbidden."""

    def said_of(self, ref: Ref) -> str:
        """A sentence for the person who has to mend it: the object does not exist, or which right this program may lack to read it."""
        if self.exists is False:
            return f"{ref} does not exist" if ref.name else f"this cluster knows no {ref.kind}"
        right = f"{'get' if ref.name else 'list'} on {_RESOURCES.get(ref.kind, ref.kind)}"
        return f"{ref} could not be read: {self.why}; where that is forbidden, grant this program {right}"


@dataclass(frozen=True, slots=True)
class Need:
    """Fetch these objects, then decide again."""

    refs: frozenset[Ref]


Facts = Mapping[Ref, Json | Absent]
NO_FACTS: Facts = MappingProxyType({})


def part(obj: Any, *path: str) -> Any:
    """The value at that path; None if the path leads nowhere."""
    for step in path:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    return obj


def text(obj: Any, *path: str) -> str:
    """The text at that path; empty if there is none."""
    value = part(obj, *path)
    return value if isinstance(value, str) else ""


def items(obj: Any, *path: str) -> list[Any]:
    """The list at that path; empty if there is none."""
    value = part(obj, *path)
    return value if isinstance(value, list) else []
