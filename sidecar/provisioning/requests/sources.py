"""Decides what a claim's volume is filled from (a snapshot, another claim, or nothing), and reads its VolumeAttributesClass.

A name alone proves nothing: each object must refer back to the one that led to it. When an object cannot be read or is unsuitable,
the result is an `Unfit` that names the source and says what to do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_SNAPSHOT, MODIFY_VOLUME
from sidecar.local.here import Here
from sidecar.model.names import ALLOW_MODE_CHANGE, CLONE_FINALIZER, CONTENT_MANAGED_BY, SNAPSHOT_FINALIZER, SNAPSHOT_GROUP
from sidecar.model.objects import Claim
from sidecar.model.quantity import parse_bytes
from sidecar.model.topology import Requirement, Term
from sidecar.provisioning.needs import (
    ATTRIBUTES_CLASS,
    CLAIM,
    CLAIMS,
    CONTENT,
    GRANTS,
    SNAPSHOT,
    VOLUME,
    Absent,
    Facts,
    Json,
    Need,
    Ref,
    items,
    part,
    text,
)
from sidecar.provisioning.requests.request import Unfit

# The texts that Go parses as true; external-provisioner parses the annotation.
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_IMPOSSIBLE_SIZE: Final = 2**63
_SOURCE_FIELDS: Final = ("dataSource", "dataSourceRef")


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
    if lacking := _lacking(here, CREATE_DELETE_SNAPSHOT if asked.kind == SNAPSHOT else CLONE_VOLUME, str(asked)):
        return lacking
    if refused := _ungranted(claim, asked, facts):
        return refused
    if asked.kind == SNAPSHOT:
        return _from_snapshot(here, claim, asked, facts, keep_mode=keep_mode)
    return _from_claim(here, claim, asked, facts)


def attributes_of(here: Here, claim: Claim, facts: Facts, *, enabled: bool = True) -> Mapping[str, str] | Need | Unfit | None:
    """The mutable parameters of the claim's VolumeAttributesClass; None when the claim names none or the feature gate is off."""
    if not enabled or not claim.attributes_class:
        return None
    ref = Ref(ATTRIBUTES_CLASS, claim.attributes_class)
    if lacking := _lacking(here, MODIFY_VOLUME, str(ref)):
        return lacking
    found = _fact(facts, ref, otherwise="create it, or name another one")
    if isinstance(found, Need | Unfit):
        return found
    if (driver := text(found, "driverName")) != here.driver.name:
        return Unfit(f"{ref} is for driver {driver!r}, the claim's StorageClass for {here.driver.name!r}; name one of that driver")
    parameters = {} if (given := part(found, "parameters")) is None else given
    if not isinstance(parameters, Mapping) or not all(isinstance(word, str) for pair in parameters.items() for word in pair):
        return Unfit(f"{ref} has parameters that are not text; correct it")
    return MappingProxyType(dict(parameters))


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


def finalizer_for(ref: Ref) -> str:
    """The finalizer that protects this kind of source."""
    return SNAPSHOT_FINALIZER if ref.kind == SNAPSHOT else CLONE_FINALIZER


def clones_of(claim: Claim, facts: Facts) -> tuple[str, ...] | Need | Unfit:
    """The claims of the same namespace that are still to be cloned from this claim, as the API server has them now."""
    found = _fact(facts, Ref(CLAIMS, "", claim.namespace), otherwise="")
    if isinstance(found, Need | Unfit):
        return found
    pending = (item for item in items(found, "items") if text(item, "status", "phase") in ("", "Pending") and _is_clone(item, claim))
    return tuple(sorted(f"{claim.namespace}/{text(item, 'metadata', 'name')}" for item in pending))


def slim(claim: Json) -> Json:
    """Keeps only the fields of a claim that `clones_of` reads."""
    spec = {field: part(claim, "spec", field) for field in _SOURCE_FIELDS}
    return {"metadata": {"name": text(claim, "metadata", "name")}, "spec": spec, "status": {"phase": text(claim, "status", "phase")}}


def with_finalizer(obj: Json, finalizer: str) -> bytes | None:
    """The body of the PUT that adds the finalizer; None when the object has it already."""
    present = items(obj, "metadata", "finalizers")
    return None if finalizer in present else _with_finalizers(obj, [*present, finalizer])


def without_finalizer(obj: Json, finalizer: str) -> bytes | None:
    """The body of the PUT that removes the finalizer and leaves every other one; None when the object does not have it."""
    present = items(obj, "metadata", "finalizers")
    return _with_finalizers(obj, [item for item in present if item != finalizer]) if finalizer in present else None


def asked_of(claim: Claim) -> Asked | None:
    """The source that the claim names."""
    source = claim.source
    return (
        None if source is None else Asked(source.kind, source.group, source.name, source.namespace, source.explicit, source.in_data_source)
    )


def annotations_of(claim: Claim, facts: Facts) -> Mapping[str, str] | Need:
    """All annotations of the claim. Those of one that is not held whole are read from the claim as it was fetched."""
    ref = Ref(CLAIM, claim.name, claim.namespace)
    if not claim.whole and ref not in facts:
        return Need(frozenset({ref}))
    obj = json.loads(claim.whole) if claim.whole else facts[ref]
    notes = part(obj, "metadata", "annotations") if text(obj, "metadata", "uid") == claim.uid else None
    return {key: value for key, value in notes.items() if isinstance(value, str)} if isinstance(notes, Mapping) else {}


# ---- what the claim itself tells -----------------------------------------------------------------------------------


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


def _lacking(here: Here, capability: str, what: str) -> Unfit | None:
    if capability in here.driver.controller:
        return None
    return Unfit(f"{what}: CSI driver {here.driver.name} does not support it: it reports no {capability} capability")


# ---- who may use it ------------------------------------------------------------------------------------------------


def _ungranted(claim: Claim, asked: Asked, facts: Facts) -> Need | Unfit | None:
    """Why the claim may not use a source of another namespace: a ReferenceGrant there must allow it.

    Nothing else in that namespace is read before, so that no answer reveals whether an object exists there.
    """
    if asked.namespace == claim.namespace:
        return None
    grants = _fact(facts, Ref(GRANTS, "", asked.namespace), of=asked, otherwise="use a source in the claim's namespace")
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


# ---- snapshots -----------------------------------------------------------------------------------------------------


def _from_snapshot(here: Here, claim: Claim, asked: Asked, facts: Facts, *, keep_mode: bool) -> Content | Need | Unfit | Elsewhere:
    snapshot = _fact(facts, asked.ref, otherwise="create it, or name another one")
    if isinstance(snapshot, Need | Unfit):
        return snapshot
    protected = SNAPSHOT_FINALIZER in items(snapshot, "metadata", "finalizers")
    # With our finalizer on it, the restore was begun before the deletion, and the snapshot waits for it: so it is finished.
    if _leaves(snapshot) and not protected:
        return Unfit(f"{asked} is being deleted; use another snapshot")
    bound = text(snapshot, "status", "boundVolumeSnapshotContentName")
    if not bound:
        return Unfit(f"{asked} is not bound to a VolumeSnapshotContent; wait until the snapshot controller has bound it")
    content = _fact(facts, Ref(CONTENT, bound), of=asked, otherwise="use another snapshot")
    if isinstance(content, Need | Unfit):
        return content
    wrong = (
        _not_its_content(here, asked, snapshot, content, bound)
        # Checked before the faults that pass with time, such as "not ready": on the wrong node, waiting does not help.
        or _snapshot_elsewhere(here, asked, content)
        or _not_restorable(asked, snapshot, content)
        or _too_small(claim, asked, part(snapshot, "status", "restoreSize"), "can be restored to")
        or (_mode_changes(claim, asked, content, bound) if keep_mode else None)
    )
    return wrong or Content(snapshot=text(content, "status", "snapshotHandle"), protect=None if protected else asked.ref)


def _not_its_content(here: Here, asked: Asked, snapshot: Json, content: Json, bound: str) -> Unfit | None:
    uid = text(snapshot, "metadata", "uid")
    if not uid or _reference(content, "spec", "volumeSnapshotRef") != (uid, asked.namespace, asked.name):
        return Unfit(f"{asked} names VolumeSnapshotContent {bound!r}, which belongs to another snapshot; use another snapshot")
    if (driver := text(content, "spec", "driver")) != here.driver.name:
        return Unfit(
            f"{asked} was taken by CSI driver {driver!r}; {here.driver.name!r} cannot restore it: use a StorageClass of that driver"
        )
    return None


def _snapshot_elsewhere(here: Here, asked: Asked, content: Json) -> Elsewhere | None:
    """Whether the snapshot was taken on another node. Where nodes take the snapshots, a label on the content names that node.

    Another node in the label proves that the snapshot is out of reach only when each node is a segment of its own. That is certain
    when this node's name is a value of its segment; otherwise several nodes may share a segment, and the snapshot may be within reach.
    """
    node = part(content, "metadata", "labels", CONTENT_MANAGED_BY)
    if not isinstance(node, str) or node in ("", here.node) or here.node not in here.segment.labels().values():
        return None
    return _elsewhere(here, asked, f"node {node}")


def _not_restorable(asked: Asked, snapshot: Json, content: Json) -> Unfit | None:
    if part(snapshot, "status", "readyToUse") is not True:
        return Unfit(f"{asked} is not ready to use; wait until its status.readyToUse is true")
    if not text(content, "status", "snapshotHandle"):
        return Unfit(f"{asked} has no handle in its VolumeSnapshotContent; wait until the snapshotter has written it")
    return None


def _mode_changes(claim: Claim, asked: Asked, content: Json, bound: str) -> Unfit | None:
    """Refuses to change the volume mode, because a crafted file system can attack the kernel. An administrator may allow the change."""
    mode = text(content, "spec", "sourceVolumeMode")
    if not mode or not claim.volume_mode or mode == claim.volume_mode:
        return None
    if part(content, "metadata", "annotations", ALLOW_MODE_CHANGE) in _TRUE:
        return None
    return Unfit(
        f"{asked} was taken of a volume with volumeMode {mode}, the claim asks for {claim.volume_mode}; ask for {mode}, or have an"
        f' administrator annotate VolumeSnapshotContent {bound!r} with {ALLOW_MODE_CHANGE}="true"'
    )


# ---- clones --------------------------------------------------------------------------------------------------------


def _from_claim(here: Here, claim: Claim, asked: Asked, facts: Facts) -> Content | Need | Unfit | Elsewhere:
    source = _fact(facts, asked.ref, otherwise="create it, or name another one")
    if isinstance(source, Need | Unfit):
        return source
    if unfit := _not_clonable(claim, asked, source):
        return unfit
    bound = text(source, "spec", "volumeName")
    volume = _fact(facts, Ref(VOLUME, bound), of=asked, otherwise="use another claim")
    if isinstance(volume, Need | Unfit):
        return volume
    wrong = (
        _not_its_volume(here, asked, source, volume, bound) or _volume_elsewhere(here, asked, volume) or _other_mode(claim, asked, volume)
    )
    protected = CLONE_FINALIZER in items(source, "metadata", "finalizers")
    return wrong or Content(volume=text(volume, "spec", "csi", "volumeHandle"), protect=None if protected else asked.ref)


def _not_clonable(claim: Claim, asked: Asked, source: Json) -> Unfit | None:
    if (phase := text(source, "status", "phase")) != "Bound":
        return Unfit(f"{asked} is {phase or 'without a phase'}, not Bound; wait until it has a volume, or use another claim")
    if _leaves(source):
        return Unfit(f"{asked} is being deleted; use another claim")
    if not isinstance(part(source, "spec", "storageClassName"), str):
        return Unfit(f"{asked} has no StorageClass; only claims of a StorageClass can be cloned")
    if not claim.class_name:
        return Unfit(f"{asked}: the new claim has no StorageClass; name one in spec.storageClassName")
    if unfit := _too_small(claim, asked, part(source, "spec", "resources", "requests", "storage"), "has"):
        return unfit
    if not text(source, "spec", "volumeName"):
        return Unfit(f"{asked} names no volume; use another claim")
    return None


def _not_its_volume(here: Here, asked: Asked, source: Json, volume: Json, bound: str) -> Unfit | None:
    if (driver := text(volume, "spec", "csi", "driver")) != here.driver.name:
        made = f"is of CSI driver {driver!r}" if driver else "is not of a CSI driver"
        return Unfit(f"{asked}: its PersistentVolume {bound!r} {made}; {here.driver.name!r} can clone its own volumes only")
    uid = text(source, "metadata", "uid")
    if not uid or _reference(volume, "spec", "claimRef") != (uid, asked.namespace, asked.name):
        return Unfit(f"{asked} names PersistentVolume {bound!r}, which is not bound to it; use another claim")
    if (phase := text(volume, "status", "phase")) != "Bound":
        return Unfit(f"{asked}: its PersistentVolume {bound!r} is {phase or 'without a phase'}, not Bound; use another claim")
    if not text(volume, "spec", "csi", "volumeHandle"):
        return Unfit(f"{asked}: its PersistentVolume {bound!r} has no handle; use another claim")
    return None


def _is_clone(item: Any, claim: Claim) -> bool:
    """Whether the item is a clone of the claim. If its two fields disagree, either one counts: keeping the source longer does no harm."""
    refs = (part(item, "spec", field) for field in _SOURCE_FIELDS)
    named = (ref for ref in refs if (text(ref, "kind"), text(ref, "name")) == (CLAIM, claim.name))
    return any(text(ref, "namespace") in ("", claim.namespace) for ref in named)


def _volume_elsewhere(here: Here, asked: Asked, volume: Json) -> Elsewhere | None:
    terms = _affinity(volume)
    # A term with keys that the driver does not report may hold for this node; that is not known here, so the clone is tried.
    if not terms or any(term.may_hold(here.segment.labels()) for term in terms):
        return None
    return _elsewhere(here, asked, " or ".join(_place(term) for term in terms))


def _affinity(volume: Json) -> tuple[Term, ...]:
    """The terms of the volume's node affinity, without empty ones: they match no node, so they name no place to send the pod to."""
    terms = (
        Term(tuple(_requirement(entry) for entry in items(term, "matchExpressions")), bool(items(term, "matchFields")))
        for term in items(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
    )
    return tuple(term for term in terms if term.requirements or term.has_fields)


def _requirement(entry: Any) -> Requirement:
    values = tuple(value for value in items(entry, "values") if isinstance(value, str))
    return Requirement(text(entry, "key"), text(entry, "operator"), values)


def _place(term: Term) -> str:
    return ",".join(
        f"{item.key}={'|'.join(item.values)}" if item.operator == "In" else f"{item.key} {item.operator} {'|'.join(item.values)}".rstrip()
        for item in term.requirements
    )


def _other_mode(claim: Claim, asked: Asked, volume: Json) -> Unfit | None:
    mode, wanted = text(volume, "spec", "volumeMode") or "Filesystem", claim.volume_mode or "Filesystem"
    return None if mode == wanted else Unfit(f"{asked} has volumeMode {mode}, the claim asks for {wanted}; ask for {mode}")


# ---- what both share -----------------------------------------------------------------------------------------------


def _elsewhere(here: Here, asked: Asked, place: str) -> Elsewhere:
    return Elsewhere(f"{asked} lies on {place}, not on this node ({here.node}); schedule the pod that uses the claim there")


def _too_small(claim: Claim, asked: Asked, size: Any, verb: str) -> Unfit | None:
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


def _fact(facts: Facts, ref: Ref, *, of: Asked | None = None, otherwise: str) -> Json | Need | Unfit:
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


def _leaves(obj: Json) -> bool:
    return part(obj, "metadata", "deletionTimestamp") is not None


def _reference(obj: Json, *path: str) -> tuple[str, str, str]:
    ref = part(obj, *path)
    return text(ref, "uid"), text(ref, "namespace"), text(ref, "name")


def _with_finalizers(obj: Json, finalizers: list[Any]) -> bytes:
    """The body with these finalizers. managedFields are left out because the API server keeps them when a write has none."""
    meta = {key: value for key, value in _dict(obj, "metadata").items() if key != "managedFields"}
    return json.dumps({**obj, "metadata": {**meta, "finalizers": finalizers}}, separators=(",", ":")).encode()


def _dict(obj: Any, *path: str) -> Json:
    value = part(obj, *path)
    return value if isinstance(value, dict) else {}
