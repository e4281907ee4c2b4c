"""Decides what to do with a Lease, for everything of this room that keeps one; `lease_io` carries it out.

A Lease is what one process holds at a time, and what runs out by itself when its holder is gone. What it stands for, and when another
holder's may be taken, is decided where it is used: `gate/lease`, `gate/takeover`, `evacuation/slots`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from sidecar.kube.api import LEASES
from sidecar.model import names, timestamps
from sidecar.model.objects import Json, Owner

# Longer than nodes' clocks differ, and long enough for a few renewals to fail. It need not be short: a deleted node's are deleted with it.
DURATION: Final = 900
RENEWED_EVERY: Final = DURATION / 3


@dataclass(frozen=True, slots=True)
class Lease:
    """One as it is stored."""

    name: str
    uid: str
    resource_version: str
    holder: str
    node: str
    """The Node in its owner reference."""
    node_uid: str
    renewed: float
    """By the wall clock of the node that renewed it."""
    duration: float
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Lease":
        meta, spec = obj["metadata"], obj.get("spec") or {}
        owner: Mapping[str, str] = next((ref for ref in meta.get("ownerReferences") or () if ref.get("kind") == names.NODE), {})
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            holder=spec.get("holderIdentity") or "",
            node=owner.get("name", ""),
            node_uid=owner.get("uid", ""),
            renewed=timestamps.to_seconds(spec.get("renewTime") or "") or 0.0,
            duration=float(spec.get("leaseDurationSeconds") or DURATION),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
        )

    @property
    def term(self) -> float:
        """After so many seconds without a renewal it may be taken. Bounded: somebody may have written decades into it."""
        return min(max(self.duration, 1.0), float(DURATION))

    def is_fresh(self, now: float) -> bool:
        """Whether its holder need not renew it yet. A renewal in the future was dated by a clock that has been set back since."""
        return self.renewed <= now < self.renewed + RENEWED_EVERY


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lease of ours says, besides when it was renewed."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    node: str
    """The node it is about, whose deletion deletes it."""
    node_uid: str
    holder: str
    """As `identity` makes it."""
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def identity(node_uid: str, driver: str) -> str:
    """The holder of a lease: another machine under a node's name is another holder."""
    return f"{node_uid}/{driver}"


def body(terms: Terms, *, now: float, resource_version: str = "") -> Json:
    """The whole object. With a `resource_version` it replaces that one and no other."""
    meta: Json = {
        "name": terms.name,
        "namespace": terms.namespace,
        "labels": dict(terms.labels),
        "ownerReferences": [Owner("v1", names.NODE, terms.node, terms.node_uid).as_json()],
    }
    guard: Json = {"resourceVersion": resource_version} if resource_version else {}
    guard |= {"annotations": dict(terms.annotations)} if terms.annotations else {}
    spec = {"holderIdentity": terms.holder, "leaseDurationSeconds": DURATION, "renewTime": timestamps.to_micro_text(now)}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta | guard, "spec": spec}


# --- the rule -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaseView:
    """All that the rule looks at."""

    now: float
    """Wall clock: it is what a renewal is dated by."""
    terms: Terms
    """As this process would write it."""
    wanted: bool
    stored: Lease | None
    """Under the name of `terms`; None: there is none."""
    takeable: str = ""
    """Why it may be taken from another holder; empty: it may not. Whoever sets this has seen it run out by its own clock."""
    own: bool = False
    """It is this node's, whoever holds it meanwhile, and is taken back."""


@dataclass(frozen=True, slots=True)
class NotWanted:
    """This process neither needs it nor has it."""

    why: str = "it is neither needed nor held"


@dataclass(frozen=True, slots=True)
class Leave:
    """Another one has it."""

    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """This process has it. Look again at that time, to renew it."""

    name: str
    until: float
    why: str


@dataclass(frozen=True, slots=True)
class Take:
    """Create it, or replace the one that is stored, guarded by its resourceVersion. A conflict means that another one was faster."""

    name: str
    body: Json
    replaces: bool
    why: str


@dataclass(frozen=True, slots=True)
class Renew:
    """This process has it: replace it, guarded by its resourceVersion."""

    name: str
    body: Json
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Delete it, on condition of its uid, and of its resourceVersion unless that is empty."""

    name: str
    uid: str
    resource_version: str
    why: str


Decision = NotWanted | Leave | Hold | Take | Renew | Release


def decide(view: LeaseView) -> Decision:
    stored, terms = view.stored, view.terms
    if stored is None:
        return _take(view, "there is none yet") if view.wanted else NotWanted()
    if stored.holder != terms.holder:
        # Its own node takes it back even to give it up at once: the admission policy lets nobody but the holder delete one.
        why = f"it is this node's own, and {stored.holder or 'nobody'} had it" if view.own else view.takeable
        return _take(view, why) if why else Leave(f"{stored.holder or 'nobody'} has it")
    if not view.wanted:
        # What a lease of one's own stood for is gone, so nobody can need it, not even a neighbour that has just taken it.
        given_back = release(stored, "it is not needed any more")
        return replace(given_back, resource_version="") if view.own else given_back
    if stored.is_fresh(view.now):
        return Hold(stored.name, stored.renewed + RENEWED_EVERY, "it is held and was renewed lately")
    return renewal(view.terms, stored, now=view.now)


def renewal(terms: Terms, stored: Lease, *, now: float) -> Renew:
    """Whether fresh or not: if the write succeeds, this process is the holder at that moment, and may do what only the holder may."""
    return Renew(stored.name, body(terms, now=now, resource_version=stored.resource_version), "it is held, and renewed")


def release(stored: Lease, why: str) -> Release:
    """On condition that it is as it was seen: whoever has changed it since may need it."""
    return Release(stored.name, stored.uid, stored.resource_version, why)


def _take(view: LeaseView, why: str) -> Take:
    version = view.stored.resource_version if view.stored else ""
    return Take(view.terms.name, body(view.terms, now=view.now, resource_version=version), view.stored is not None, why)
