"""Decides what a claim's volume is filled from: a snapshot (`restoring`), another claim (`cloning`), or nothing.

A name alone proves nothing: each object must refer back to the one that led to it. When an object cannot be read or is unsuitable,
the result is an `Unfit` that names the source and says what to do.
"""

from collections.abc import Mapping
from typing import Any

from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_SNAPSHOT
from sidecar.local.here import Here
from sidecar.model.names import SNAPSHOT_GROUP
from sidecar.model.objects import Claim
from sidecar.provisioning.needs import CLAIM, GRANTS, SNAPSHOT, Facts, Need, Ref, items, text
from sidecar.provisioning.requests.cloning import from_claim, other_place
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.restoring import from_snapshot
from sidecar.provisioning.requests.source_facts import Asked, Content, Elsewhere, LeftToPopulator, asked_of, fact, lacking


def content_of(
    here: Here, claim: Claim, facts: Facts, *, cross_namespace: bool = False, keep_mode: bool = True
) -> Content | Need | Unfit | Elsewhere | LeftToPopulator | None:
    """What to fill the claim's volume from; None when the claim asks for an empty volume.

    `cross_namespace` is the gate CrossNamespaceVolumeDataSource, `keep_mode` the flag --prevent-volume-mode-conversion.
    """
    asked = asked_of(claim)
    if asked is None:
        return None
    if unfit := _malformed(asked, cross_namespace=cross_namespace):
        return unfit
    if asked.kind not in (SNAPSHOT, CLAIM):
        return LeftToPopulator(
            f"{asked} (API group {asked.group or 'core'}) is of no kind that CSI drivers know; a volume populator fills it"
        )
    # Checked before anything is looked up: if the driver cannot do it, no object that could be read changes the answer.
    if unable := lacking(here, CREATE_DELETE_SNAPSHOT if asked.kind == SNAPSHOT else CLONE_VOLUME, str(asked)):
        return unable
    if refused := _ungranted(claim, asked, facts):
        return refused
    if asked.kind == SNAPSHOT:
        return from_snapshot(here, claim, asked, facts, keep_mode=keep_mode)
    return from_claim(here, claim, asked, facts)


def with_another_node(here: Here, claim: Claim, facts: Facts) -> str:
    """Why it is not for this node to clone what the claim names, although nothing forbids it; empty: it may."""
    asked = asked_of(claim)
    return other_place(here, asked, facts) if asked is not None and asked.kind == CLAIM else ""


def wants_source(claim: Claim, *, cross_namespace: bool = False) -> bool:
    """Whether the driver's answer must name the source. A driver whose answer does not name it has created an empty volume."""
    asked = asked_of(claim)
    return asked is not None and (asked.in_data_source or (cross_namespace and bool(asked.explicit)))


def to_release(claim: Claim) -> Ref | None:
    """The snapshot that may lose our finalizer once the claim's PersistentVolume is stored.

    Only a snapshot: a claim that was cloned keeps its finalizer until it is deleted.
    """
    asked = asked_of(claim)
    return asked.ref if asked is not None and (asked.kind, asked.group) == (SNAPSHOT, SNAPSHOT_GROUP) else None


def _malformed(asked: Asked, *, cross_namespace: bool) -> Unfit | None:
    if asked.explicit is not None and not cross_namespace:
        return Unfit(
            f"{asked}: spec.dataSourceRef.namespace needs the feature gate CrossNamespaceVolumeDataSource, which is off;"
            " use a source in the claim's namespace, or have the administrator enable the gate"
        )
    if asked.explicit == "":
        return Unfit(f"{asked}: spec.dataSourceRef.namespace is empty; name the source's namespace, or leave the field out")
    if not asked.name:
        field = "dataSource" if asked.in_data_source else "dataSourceRef"
        return Unfit(f"{asked}: spec.{field} has no name; name the object to fill the volume from, or leave the field out")
    if asked.kind == SNAPSHOT and asked.group != SNAPSHOT_GROUP:
        return Unfit(f"{asked} has API group {asked.group!r}; a VolumeSnapshot's is {SNAPSHOT_GROUP}")
    return None


def _ungranted(claim: Claim, asked: Asked, facts: Facts) -> Need | Unfit | None:
    """Why the claim may not use a source of another namespace: a ReferenceGrant there must allow it.

    Nothing else in that namespace is read before, so that no answer reveals whether an object exists there.
    """
    if asked.namespace == claim.namespace:
        return None
    grants = fact(facts, Ref(GRANTS, "", asked.namespace), of=asked, otherwise="use a source in the claim's namespace")
    if isinstance(grants, Need | Unfit):
        return grants
    if any(_grants(grant, claim, asked) for grant in items(grants, "items")):
        return None
    return Unfit(
        f"{asked}: no ReferenceGrant in namespace {asked.namespace!r} lets PersistentVolumeClaims of namespace {claim.namespace!r} use it;"
        " have the owner of that namespace create one"
    )


def _grants(grant: Any, claim: Claim, asked: Asked) -> bool:
    if text(grant, "metadata", "namespace") != asked.namespace:
        return False
    to_us = any(_says(entry, group="", kind=CLAIM, namespace=claim.namespace) for entry in items(grant, "spec", "from"))
    of_it = (entry for entry in items(grant, "spec", "to") if _says(entry, group=asked.group, kind=asked.kind))
    return to_us and any(_says(entry, name="") or _says(entry, name=asked.name) for entry in of_it)


def _says(entry: Any, **wanted: str) -> bool:
    """Whether the entry has these values. An absent field counts as empty; a value that is not text never matches: no grant is guessed."""
    return isinstance(entry, Mapping) and all(("" if (said := entry.get(key)) is None else said) == value for key, value in wanted.items())
