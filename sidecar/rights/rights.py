"""Says what follows from what the role allows: how our finalizer on PersistentVolumes is written, if at all, and what to ask next.

What is not known counts as allowed, and then a write is tried as if nobody had asked.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sidecar.kube.api import VOLUMES, Resource


@dataclass(frozen=True, slots=True)
class Right:
    """To do one thing with one kind of object."""

    verb: str
    resource: Resource
    subresource: str = ""
    own_namespace: bool = False
    """Needed in the program's own namespace alone, so that a Role can grant it. Else it takes a ClusterRole."""

    def __str__(self) -> str:
        """As `kubectl auth can-i` takes it, but for the namespace."""
        return f"{self.verb} {self.resource}{f'/{self.subresource}' if self.subresource else ''}"


@dataclass(frozen=True, slots=True)
class Account:
    """A service account."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> tuple[str, ...]:
        return "system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"


@dataclass(frozen=True, slots=True)
class Rights:
    """What was answered. Of a right in neither set nothing is known."""

    allowed: frozenset[Right] = frozenset()
    refused: frozenset[Right] = frozenset()

    def may(self, right: Right) -> bool | None:
        """None: it is not known."""
        return True if right in self.allowed else False if right in self.refused else None

    def joined(self, other: "Rights") -> "Rights":
        return Rights(self.allowed | other.allowed, self.refused | other.refused)


NOT_KNOWN: Final = Rights()
PATCH_VOLUMES: Final = Right("patch", VOLUMES)
UPDATE_VOLUMES: Final = Right("update", VOLUMES)


class FinalizerWrites(Enum):
    """How our finalizer is put on PersistentVolumes and taken off them."""

    BY_PATCH = "patch"
    BY_UPDATE = "update"
    NEVER = ""


def finalizer_writes(rights: Rights) -> FinalizerWrites:
    """By `update` only where `patch` is refused. Where neither is known to be allowed, no volume is given a finalizer that might stay."""
    if rights.may(PATCH_VOLUMES) is not False:
        return FinalizerWrites.BY_PATCH
    return FinalizerWrites.BY_UPDATE if rights.may(UPDATE_VOLUMES) else FinalizerWrites.NEVER


def asked_next(known: Rights) -> tuple[Right, ...]:
    """Of the rights without which something would be left behind. `update` counts only where `patch` is missing."""
    if known.may(PATCH_VOLUMES) is None:
        return (PATCH_VOLUMES,)
    return (UPDATE_VOLUMES,) if known.may(PATCH_VOLUMES) is False and known.may(UPDATE_VOLUMES) is None else ()


FINALIZER_OFF: Final = (
    "PersistentVolumes made here get no finalizer: the data of one that is deleted before its claim stays on the node."
    " One that has the finalizer already stays Terminating when it is deleted"
)
FINALIZER_REMEDY: Final = "grant patch on persistentvolumes (or update) in the ClusterRole of this program's service account"
