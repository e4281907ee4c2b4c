"""Builds the PersistentVolume from the claim, the request and the driver's answer, field by field. Pure: it stores nothing."""

from dataclasses import dataclass
from typing import Any, Final

from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.local.here import Here
from sidecar.local.volume_location import node_label
from sidecar.model import names
from sidecar.model.objects import Claim, ClaimRef, Class, Json, Volume
from sidecar.model.quantity import format_bytes
from sidecar.model.topology import Requirement, Segment, terms_of
from sidecar.provisioning.requests.request import fs_type
from sidecar.provisioning.requests.secrets import NO_SECRETS, SecretRefs

MOST_PLACES: Final = 1000
LONGEST_CONTEXT: Final = 2**18
"""Characters of the keys and values of a volume's context, and of its topologies. CSI allows 4 KiB for each map. API servers take 1.5 MiB
for an object. What they would refuse for ever is refused here, and its volume deleted again."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """The volume exists, but it cannot serve the claim; `why` says what the driver did."""

    why: str
    elsewhere: bool = False
    """The driver says that the volume is on another node."""


def build(
    here: Here,
    claim: Claim,
    class_: Class,
    request: CreateRequest,
    created: CreatedVolume,
    *,
    refs: SecretRefs = NO_SECRETS,
    finalizer: bool = True,
) -> Json | Unusable:
    """The object to store, or the reason why the new volume must be deleted again. `finalizer`: ours is put on, for it can be taken off."""
    # A driver may leave the size out of its answer; then the size that was asked for counts, here and in spec.capacity.
    if created.capacity_bytes and created.capacity_bytes < request.required_bytes:
        return Unusable(
            f"CSI driver {here.driver.name} created volume {created.volume_id!r} with {created.capacity_bytes} bytes,"
            f" less than the {request.required_bytes} bytes asked for"
        )
    if oversized := _oversized(created):
        return Unusable(f"CSI driver {here.driver.name} created volume {created.volume_id[:100]!r} with {oversized}")
    if is_elsewhere(here, created) and not _was_asked_for(request, created):
        places = " or ".join(map(str, created.topologies))
        return Unusable(
            f"CSI driver {here.driver.name} created volume {created.volume_id!r} on {places}, not on this node ({here.segment});"
            f" it was asked for {' or '.join(map(str, request.requisite))}",
            elsewhere=True,
        )
    if flaw := _unwritable(here, created):
        return Unusable(
            f"CSI driver {here.driver.name} created volume {created.volume_id[:100]!r} in a place that no PersistentVolume can name: {flaw}"
        )
    spec: Json = {
        "accessModes": list(claim.access_modes),
        "capacity": {"storage": format_bytes(created.capacity_bytes or request.required_bytes)},
        "claimRef": _claim_ref(claim),
        "csi": _csi(here, claim, class_, request, created) | _secret_references(refs),
        "storageClassName": claim.class_name,
    }
    affinity = _affinity(here, created.topologies)
    optional = {
        "mountOptions": list(class_.mount_options),
        "nodeAffinity": affinity,
        "persistentVolumeReclaimPolicy": class_.reclaim_policy,
        "volumeMode": claim.volume_mode,
        "volumeAttributesClassName": claim.attributes_class if here.options.attributes_classes else "",
    }
    return {
        "apiVersion": "v1",
        "kind": names.VOLUME,
        "metadata": {
            "name": request.name,
            "annotations": {names.PROVISIONED_BY: class_.provisioner}
            | _secret_notes(refs)
            | ({names.LIES_ON: here.machine} if here.machine else {}),
            "labels": {names.VOLUME_NODE: node_label(here, None if affinity is None else terms_of(affinity["required"]))},
        }
        | ({"finalizers": [names.VOLUME_FINALIZER]} if finalizer else {}),
        "spec": spec | {key: value for key, value in optional.items() if value},
    }


def _oversized(created: CreatedVolume) -> str:
    if len(created.topologies) > MOST_PLACES:
        return f"{len(created.topologies)} topologies, more than the {MOST_PLACES} that are taken"
    places = (pair for segment in created.topologies for pair in segment.pairs)
    for what, pairs in (("volume_context", created.context.items()), ("topologies", places)):
        size = sum(len(key) + len(value) for key, value in pairs)
        if size > LONGEST_CONTEXT:
            return f"{size} characters of {what}, more than the {LONGEST_CONTEXT} that are taken"
    return ""


def _unwritable(here: Here, created: CreatedVolume) -> str:
    return next((flaw for place in created.topologies if (flaw := place.flaw())), "") if here.with_topology else ""


def _secret_notes(refs: SecretRefs) -> dict[str, str]:
    """The annotations that name the Secrets which are needed later.

    The two for deletion are always written. Empty, they say that there is no Secret; if they were left out, the class would be asked.
    """
    deletion, modify = refs.provisioner, refs.controller_modify
    notes = {
        names.DELETION_SECRET_NAME: deletion.name if deletion else "",
        names.DELETION_SECRET_NAMESPACE: deletion.namespace if deletion else "",
    }
    if modify is None:
        return notes
    return notes | {names.MODIFY_SECRET_NAME: modify.name, names.MODIFY_SECRET_NAMESPACE: modify.namespace}


def _secret_references(refs: SecretRefs) -> Json:
    wanted = {
        "controllerPublishSecretRef": refs.controller_publish,
        "nodeStageSecretRef": refs.node_stage,
        "nodePublishSecretRef": refs.node_publish,
        "controllerExpandSecretRef": refs.controller_expand,
        "nodeExpandSecretRef": refs.node_expand,
    }
    return {field: {"name": ref.name, "namespace": ref.namespace} for field, ref in wanted.items() if ref is not None}


def is_ours(found: Volume, wanted: Json) -> bool:
    """Whether the stored PersistentVolume of that name is the one we meant to store: same claim, same volume, same place.

    The place counts because a handle is unique on its node only. Many drivers make the handle from the volume's name, and the name
    comes from the claim, so another node that created a volume for the same claim would have the same handle.
    """
    claim, csi = wanted["spec"]["claimRef"], wanted["spec"]["csi"]
    same_claim = found.claim == ClaimRef(claim["uid"], claim["namespace"], claim["name"])
    same_place = _place(found) == _place(Volume.of(wanted))
    return same_claim and same_place and (found.driver, found.handle) == (csi["driver"], csi["volumeHandle"])


def _place(volume: Volume) -> frozenset[frozenset[Requirement]] | None:
    """The terms of the node affinity as sets, because another writer may store the same answer of the driver in another order."""
    return None if volume.affinity is None else frozenset(frozenset(term.requirements) for term in volume.affinity)


def _claim_ref(claim: Claim) -> Json:
    return {
        "apiVersion": "v1",
        "kind": names.CLAIM,
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }


def _csi(here: Here, claim: Claim, class_: Class, request: CreateRequest, created: CreatedVolume) -> Json:
    csi: Json = {
        "driver": here.driver.name,
        "volumeHandle": created.volume_id,
        # Ours comes last: who made a volume is no driver's to say.
        "volumeAttributes": {**created.context, names.PROVISIONER_IDENTITY: here.identity},
    }
    if fs := fs_type(here, claim, class_):
        csi["fsType"] = fs
    if here.options.controller_publish_readonly and [item.access_mode for item in request.capabilities] == ["MULTI_NODE_READER_ONLY"]:
        csi["readOnly"] = True
    return csi


def is_elsewhere(here: Here, created: CreatedVolume) -> bool:
    """Whether every place that the driver names contradicts this node's segment.

    The driver may name fewer keys than the node has, or additional ones. Only a different value for the same key proves another place.
    """
    mine = here.segment.labels()
    places = [segment for segment in created.topologies if segment]
    contradicted = all(any(mine.get(key, value) != value for key, value in segment.pairs) for segment in places)
    return here.with_topology and bool(places) and contradicted


def _was_asked_for(request: CreateRequest, created: CreatedVolume) -> bool:
    """Whether each place that the driver names is one of those that the request allowed. Where the class names places and --strict-topology
    is off, a driver may choose another than this node's."""
    places = [segment for segment in created.topologies if segment]
    return all(any(wanted.within(place) for wanted in request.requisite) for place in places)


def _affinity(here: Here, topologies: tuple[Segment, ...]) -> dict[str, Any] | None:
    """One term for each topology of the answer. An empty topology says nothing and is left out; if none remains, there is no affinity."""
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in segment.pairs]}
        for segment in topologies
        if segment
    ]
    return {"required": {"nodeSelectorTerms": terms}} if here.with_topology and terms else None
