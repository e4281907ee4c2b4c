"""What a claim's volume is filled from (a snapshot, another claim, something for a populator), and its VolumeAttributesClass.

A name alone is no proof: each object must point back to the one that led to it. What cannot be read, or is not what it has
to be, is an `Unfit` that names the source and what to do about it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_SNAPSHOT, MODIFY_VOLUME
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
from sidecar.provisioning.request import Unfit
from sidecar.provisioning.view import Here

# What Go takes for true.
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_IMPOSSIBLE_SIZE: Final = 2**63
_SOURCE_FIELDS: Final = ("dataSource", "dataSourceRef")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the claim names as its source, and how."""

    kind: str
    group: str
    name: str
    namespace: str
    """Where it lies: the claim's own namespace unless `explicit` says another."""
    explicit: str | None = None
    """dataSourceRef.namespace as written; None when it is absent, which is not the same as empty."""
    in_data_source: bool = True
    """Named by spec.dataSource; False: by spec.dataSourceRef alone."""

    def __str__(self) -> str:
        return f"source {self.ref}"

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.name, self.namespace)

    @classmethod
    def of(cls, spec: Mapping[str, Any], namespace: str) -> "Asked | None":
        """dataSource wins: it can only mean something in the claim's own namespace."""
        if (ref := spec.get("dataSource")) is not None:
            return cls(text(ref, "kind"), text(ref, "apiGroup"), text(ref, "name"), namespace)
        if (ref := spec.get("dataSourceRef")) is None:
            return None
        explicit = None if part(ref, "namespace") is None else text(ref, "namespace")
        lies_in = namespace if explicit is None else explicit
        return cls(text(ref, "kind"), text(ref, "apiGroup"), text(ref, "name"), lies_in, explicit, in_data_source=False)


@dataclass(frozen=True, slots=True)
class Content:
    """What CreateVolume is filled from: one of the two handles."""

    snapshot: str = ""
    volume: str = ""
    protect: Ref | None = None
    """The source, when it has to be given our finalizer before the call; None when it bears it already."""

    @property
    def protection_optional(self) -> bool:
        """Whether to go on when the finalizer may not be written: older roles grant no update of snapshots."""
        return bool(self.snapshot)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The source lies on another node, where alone the driver can read it. To try again here helps nobody."""

    why: str


@dataclass(frozen=True, slots=True)
class LeftToPopulator:
    """Another kind of source: a populator fills the volume, and the driver is not called for this claim."""

    why: str


def content_of(
    here: Here, claim: Claim, facts: Facts, *, cross_namespace: bool = False, keep_mode: bool = True
) -> Content | Need | Unfit | Elsewhere | LeftToPopulator | None:
    """What to fill the claim's volume from; None when it asks for an empty one.

    `cross_namespace` is the gate CrossNamespaceVolumeDataSource, `keep_mode` the flag --prevent-volume-mode-conversion.
    """
    asked = asked_of(claim)
    if asked is None:
        return None
    if unfit := _malformed(asked, cross_namespace=cross_namespace):
        return unfit
    if asked.kind not in (SNAPSHOT, CLAIM):
        return LeftToPopulator(f"{asked} (API group {asked.group or 'core'}) is none a CSI driver knows; left to a volume populator")
    # Before anything is looked up: a driver that cannot do it will not learn to while we read.
    if lacking := _lacking(here, CREATE_DELETE_SNAPSHOT if asked.kind == SNAPSHOT else CLONE_VOLUME, str(asked)):
        return lacking
    if refused := _ungranted(claim, asked, facts):
        return refused
    if asked.kind == SNAPSHOT:
        return _from_snapshot(here, claim, asked, facts, keep_mode=keep_mode)
    return _from_claim(here, claim, asked, facts)


def attributes_of(here: Here, claim: Claim, facts: Facts, *, enabled: bool = True) -> Mapping[str, str] | Need | Unfit | None:
    """The mutable parameters of the claim's VolumeAttributesClass; None when it names none, or the gate is off."""
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
    """Whether the driver's answer has to say that the volume was filled: one that is silent about it made an empty one."""
    asked = asked_of(claim)
    return asked is not None and (asked.in_data_source or (cross_namespace and bool(asked.explicit)))


def to_release(claim: Claim) -> Ref | None:
    """The snapshot whose finalizer has done its duty once the claim's volume is stored. A cloned claim keeps its own until it goes."""
    asked = asked_of(claim)
    return asked.ref if asked is not None and (asked.kind, asked.group) == (SNAPSHOT, SNAPSHOT_GROUP) else None


def finalizer_for(ref: Ref) -> str:
    """Which finalizer protects that kind of source."""
    return SNAPSHOT_FINALIZER if ref.kind == SNAPSHOT else CLONE_FINALIZER


def clones_of(claim: Claim, facts: Facts) -> tuple[str, ...] | Need | Unfit:
    """The claims of its namespace that are still to be cloned from it, as the API server has them now."""
    found = _fact(facts, Ref(CLAIMS, "", claim.namespace), otherwise="")
    if isinstance(found, Need | Unfit):
        return found
    pending = (item for item in items(found, "items") if text(item, "status", "phase") in ("", "Pending") and _is_clone(item, claim))
    return tuple(sorted(f"{claim.namespace}/{text(item, 'metadata', 'name')}" for item in pending))


def slim(claim: Json) -> Json:
    """What `clones_of` reads of a claim."""
    spec = {field: part(claim, "spec", field) for field in _SOURCE_FIELDS}
    return {"metadata": {"name": text(claim, "metadata", "name")}, "spec": spec, "status": {"phase": text(claim, "status", "phase")}}


def with_finalizer(obj: Json, finalizer: str) -> bytes | None:
    """The body of the PUT that protects the object; None when it is protected."""
    present = items(obj, "metadata", "finalizers")
    return None if finalizer in present else _with_finalizers(obj, [*present, finalizer])


def without_finalizer(obj: Json, finalizer: str) -> bytes | None:
    """The body of the PUT that lets the object go; every other finalizer stays. None when there is nothing to take off."""
    present = items(obj, "metadata", "finalizers")
    return _with_finalizers(obj, [item for item in present if item != finalizer]) if finalizer in present else None


def asked_of(claim: Claim) -> Asked | None:
    """Read from the whole claim: its record melts the two fields into one, but the rules tell them apart."""
    if claim.whole:
        return Asked.of(_dict(json.loads(claim.whole), "spec"), claim.namespace)
    source = claim.source
    if source is None:
        return None
    explicit = None if source.namespace == claim.namespace else source.namespace
    return Asked(source.kind, source.group, source.name, source.namespace, explicit, in_data_source=explicit is None)


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
    """The owner of another namespace must have said yes. Before that nothing there is read, so that no answer tells of it."""
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
    """An absent field is an empty one. Anything that is no text says nothing, for a grant is never guessed."""
    return isinstance(entry, Mapping) and all(("" if (said := entry.get(key)) is None else said) == value for key, value in wanted.items())


# ---- snapshots -----------------------------------------------------------------------------------------------------


def _from_snapshot(here: Here, claim: Claim, asked: Asked, facts: Facts, *, keep_mode: bool) -> Content | Need | Unfit | Elsewhere:
    snapshot = _fact(facts, asked.ref, otherwise="create it, or name another one")
    if isinstance(snapshot, Need | Unfit):
        return snapshot
    protected = SNAPSHOT_FINALIZER in items(snapshot, "metadata", "finalizers")
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
        # Before what time may mend: as long as the node is wrong, nothing else matters.
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
    """Where snapshots are taken on the nodes, a label names the node that did, one of those that reach the volume.

    That it is another node proves something only if the topology tells nodes apart, as it surely does where it bears their name.
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
    """To read a file system as raw blocks, or the reverse, can attack the kernel: an administrator has to allow it."""
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
    """Of two fields that disagree either counts: to keep the source does no harm."""
    refs = (part(item, "spec", field) for field in _SOURCE_FIELDS)
    named = (ref for ref in refs if (text(ref, "kind"), text(ref, "name")) == (CLAIM, claim.name))
    return any(text(ref, "namespace") in ("", claim.namespace) for ref in named)


def _volume_elsewhere(here: Here, asked: Asked, volume: Json) -> Elsewhere | None:
    terms = _affinity(volume)
    # What speaks of keys that the driver does not report may hold for this node: that is not known here.
    if not terms or any(term.may_hold(here.segment.labels()) for term in terms):
        return None
    return _elsewhere(here, asked, " or ".join(_place(term) for term in terms))


def _affinity(volume: Json) -> tuple[Term, ...]:
    """Without the terms that match nothing: they are no place to send anybody to."""
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
    """What was found; or the wish to have it fetched; or why there is nothing to go on, and what to do `otherwise`."""
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
    """The server keeps the managed fields of a write that has none."""
    meta = {key: value for key, value in _dict(obj, "metadata").items() if key != "managedFields"}
    return json.dumps({**obj, "metadata": {**meta, "finalizers": finalizers}}, separators=(",", ":")).encode()


def _dict(obj: Any, *path: str) -> Json:
    value = part(obj, *path)
    return value if isinstance(value, dict) else {}
