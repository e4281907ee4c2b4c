"""Decides whether a volume can be filled from that of another claim here, and which claims are still to be cloned from one."""

from typing import Any, Final

from sidecar.local.here import Here
from sidecar.local.volume_location import is_of_another_node
from sidecar.model.names import CLONE_FINALIZER
from sidecar.model.objects import Claim, Volume
from sidecar.model.topology import Requirement, Term
from sidecar.provisioning.needs import CLAIM, CLAIMS, VOLUME, Facts, Json, Need, Ref, items, part, text
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.source_facts import Asked, Content, Elsewhere, elsewhere, fact, leaves, reference, too_small

_SOURCE_FIELDS: Final = ("dataSource", "dataSourceRef")


def from_claim(here: Here, claim: Claim, asked: Asked, facts: Facts) -> Content | Need | Unfit | Elsewhere:
    source = fact(facts, asked.ref, otherwise="create it, or name another one")
    if isinstance(source, Need | Unfit):
        return source
    if unfit := _not_clonable(claim, asked, source):
        return unfit
    bound = text(source, "spec", "volumeName")
    volume = fact(facts, Ref(VOLUME, bound), of=asked, otherwise="use another claim")
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
    if leaves(source):
        return Unfit(f"{asked} is being deleted; use another claim")
    if not isinstance(part(source, "spec", "storageClassName"), str):
        return Unfit(f"{asked} has no StorageClass; only claims of a StorageClass can be cloned")
    if not claim.class_name:
        return Unfit(f"{asked}: the new claim has no StorageClass; name one in spec.storageClassName")
    if unfit := too_small(claim, asked, part(source, "spec", "resources", "requests", "storage"), "has"):
        return unfit
    if not text(source, "spec", "volumeName"):
        return Unfit(f"{asked} names no volume; use another claim")
    return None


def _not_its_volume(here: Here, asked: Asked, source: Json, volume: Json, bound: str) -> Unfit | None:
    if (driver := text(volume, "spec", "csi", "driver")) != here.driver.name:
        made = f"is of CSI driver {driver!r}" if driver else "is not of a CSI driver"
        return Unfit(f"{asked}: its PersistentVolume {bound!r} {made}; {here.driver.name!r} can clone its own volumes only")
    uid = text(source, "metadata", "uid")
    if not uid or reference(volume, "spec", "claimRef") != (uid, asked.namespace, asked.name):
        return Unfit(f"{asked} names PersistentVolume {bound!r}, which is not bound to it; use another claim")
    if (phase := text(volume, "status", "phase")) != "Bound":
        return Unfit(f"{asked}: its PersistentVolume {bound!r} is {phase or 'without a phase'}, not Bound; use another claim")
    if not text(volume, "spec", "csi", "volumeHandle"):
        return Unfit(f"{asked}: its PersistentVolume {bound!r} has no handle; use another claim")
    return None


def _volume_elsewhere(here: Here, asked: Asked, volume: Json) -> Elsewhere | None:
    terms = _affinity(volume)
    # A term with keys that the driver does not report may hold for this node; that is not known here, so the clone is tried.
    if not terms or any(term.may_hold(here.segment.labels()) for term in terms):
        return None
    return elsewhere(here, asked, " or ".join(_place(term) for term in terms))


def other_place(here: Here, asked: Asked, facts: Facts) -> str:
    """Of a source that has been looked up: why its volume is another node's, though its affinity leaves that open. Who made it may tell, or
    the hostname that it asks for, which is nearly always the node's name."""
    source = facts.get(asked.ref)
    volume = facts.get(Ref(VOLUME, text(source, "spec", "volumeName")))
    if not isinstance(volume, dict) or not is_of_another_node(here, Volume.of(volume)):
        return ""
    return elsewhere(here, asked, "another node").why


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


def clones_of(claim: Claim, facts: Facts, *, everywhere: bool = False) -> tuple[str, ...] | Need | Unfit:
    """The claims that are still to be cloned from this claim, as the API server has them now: those of its namespace, or of all."""
    found = fact(facts, Ref(CLAIMS, "", "" if everywhere else claim.namespace), otherwise="")
    if isinstance(found, Need | Unfit):
        return found
    pending = (item for item in items(found, "items") if text(item, "status", "phase") in ("", "Pending") and _is_clone(item, claim))
    return tuple(sorted(f"{_namespace(item, claim)}/{text(item, 'metadata', 'name')}" for item in pending))


def slim(claim: Json) -> Json:
    """Keeps only the fields of a claim that `clones_of` reads."""
    spec = {field: part(claim, "spec", field) for field in _SOURCE_FIELDS}
    meta = {field: text(claim, "metadata", field) for field in ("name", "namespace")}
    return {"metadata": meta, "spec": spec, "status": {"phase": text(claim, "status", "phase")}}


def _namespace(item: Any, claim: Claim) -> str:
    return text(item, "metadata", "namespace") or claim.namespace


def _is_clone(item: Any, claim: Claim) -> bool:
    """Whether the item is a clone of the claim. If its two fields disagree, either one counts: keeping the source longer does no harm."""
    refs = (part(item, "spec", field) for field in _SOURCE_FIELDS)
    named = (ref for ref in refs if (text(ref, "kind"), text(ref, "name")) == (CLAIM, claim.name))
    return any((text(ref, "namespace") or _namespace(item, claim)) == claim.namespace for ref in named)
