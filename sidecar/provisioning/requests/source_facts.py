"""Describes the source that a claim names and what can come of it, and reads what was fetched of one.

When an object cannot be read or is unsuitable, the result is an `Unfit` that names the source and says what to do.
"""

from dataclasses import dataclass
from typing import Any, Final

from sidecar.local.here import Here
from sidecar.model.objects import Claim
from sidecar.model.quantity import parse_bytes
from sidecar.provisioning.needs import Absent, Facts, Json, Need, Ref, part, text
from sidecar.provisioning.requests.request import Unfit

_IMPOSSIBLE_SIZE: Final = 2**63


@dataclass(frozen=True, slots=True)
class Asked:
    """The source that the claim names, and how it names it."""

    kind: str
    group: str
    name: str
    namespace: str
    """The namespace of the source: the claim's own, unless `explicit` names another."""
    explicit: str | None = None
    """dataSourceRef.namespace as written. None means absent: the claim's own namespace. An empty text is a mistake and is refused."""
    in_data_source: bool = True
    """True: spec.dataSource names it. False: only spec.dataSourceRef does."""

    def __str__(self) -> str:
        return f"source {self.ref}"

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.name, self.namespace)


@dataclass(frozen=True, slots=True)
class Content:
    """The handle that CreateVolume is given as the source: that of a snapshot or that of a volume."""

    snapshot: str = ""
    volume: str = ""
    protect: Ref | None = None
    """The source, when it must get our finalizer before CreateVolume is called; None when it has the finalizer already."""

    @property
    def protection_optional(self) -> bool:
        """Whether to go on when writing the finalizer is forbidden. Only for snapshots: older roles do not grant their update."""
        return bool(self.snapshot)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The source is on another node, and only the driver there can read it. A retry on this node cannot succeed."""

    why: str


@dataclass(frozen=True, slots=True)
class LeftToPopulator:
    """The source is of another kind: a volume populator fills the volume, and the driver is not called for this claim."""

    why: str


def asked_of(claim: Claim) -> Asked | None:
    """The source that the claim names."""
    source = claim.source
    return (
        None if source is None else Asked(source.kind, source.group, source.name, source.namespace, source.explicit, source.in_data_source)
    )


def fact(facts: Facts, ref: Ref, *, of: Asked | None = None, otherwise: str) -> Json | Need | Unfit:
    """The object; or a `Need` when it has not been fetched yet; or an `Unfit` that says why it cannot be had.

    `otherwise` is what the user can do when the object does not exist. It is left out when reading failed: then it may well exist.
    """
    if ref not in facts:
        return Need(frozenset({ref}))
    found = facts[ref]
    if not isinstance(found, Absent):
        return found
    said = found.said_of(ref) + (f"; {otherwise}" if found.exists is False else "")
    return Unfit(f"{of}: {said}" if of else said)


def lacking(here: Here, capability: str, what: str) -> Unfit | None:
    if capability in here.driver.controller:
        return None
    return Unfit(f"{what}: CSI driver {here.driver.name} does not support it: it reports no {capability} capability")


def elsewhere(here: Here, asked: Asked, place: str) -> Elsewhere:
    return Elsewhere(f"{asked} lies on {place}, not on this node ({here.node}); schedule the pod that uses the claim there")


def too_small(claim: Claim, asked: Asked, size: Any, verb: str) -> Unfit | None:
    if size is None:
        return None
    needed, wanted = _bytes(size), max(claim.requested or 0, 0)
    if needed is None:
        return Unfit(f"{asked} tells its size in a way that cannot be read; use another source")
    if wanted < needed:
        return Unfit(f"{asked} {verb} {needed} bytes, the claim asks for {wanted} only; ask for at least {needed}")
    return None


def _bytes(size: Any) -> int | None:
    try:
        count = parse_bytes(size)
    except ValueError:
        return None
    return count if count < _IMPOSSIBLE_SIZE else None


def leaves(obj: Json) -> bool:
    return part(obj, "metadata", "deletionTimestamp") is not None


def reference(obj: Json, *path: str) -> tuple[str, str, str]:
    ref = part(obj, *path)
    return text(ref, "uid"), text(ref, "namespace"), text(ref, "name")
