"""From claim, request and the driver's answer to the PersistentVolume, field by field."""

from dataclasses import dataclass
from typing import Any

from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.model import names
from sidecar.model.objects import Claim, ClaimRef, Class, Json, Volume
from sidecar.model.quantity import format_bytes
from sidecar.model.topology import Requirement, Segment
from sidecar.provisioning.request import fs_type
from sidecar.provisioning.secrets import NO_SECRETS, SecretRefs
from sidecar.provisioning.view import Here


@dataclass(frozen=True, slots=True)
class Unusable:
    """The volume exists, but no claim can be given it; `why` names what the driver did."""

    why: str
    elsewhere: bool = False
    """The driver says that it is on another node."""


def build(
    here: Here, claim: Claim, class_: Class, request: CreateRequest, created: CreatedVolume, *, refs: SecretRefs = NO_SECRETS
) -> Json | Unusable:
    """The object to store; or why the volume behind it must go again."""
    if created.capacity_bytes and created.capacity_bytes < request.required_bytes:
        return Unusable(
            f"CSI driver {here.driver.name} created volume {created.volume_id!r} with {created.capacity_bytes} bytes,"
            f" less than the {request.required_bytes} bytes asked for"
        )
    if is_elsewhere(here, created):
        places = " or ".join(map(str, created.topologies))
        return Unusable(
            f"CSI driver {here.driver.name} created volume {created.volume_id!r} on {places}, not on this node ({here.segment})",
            elsewhere=True,
        )
    spec: Json = {
        "accessModes": list(claim.access_modes),
        "capacity": {"storage": format_bytes(created.capacity_bytes or request.required_bytes)},
        "claimRef": _claim_ref(claim),
        "csi": _csi(here, claim, class_, request, created) | _secret_references(refs),
        "storageClassName": claim.class_name,
    }
    optional = {
        "mountOptions": list(class_.mount_options),
        "nodeAffinity": _affinity(here, created.topologies),
        "persistentVolumeReclaimPolicy": class_.reclaim_policy,
        "volumeMode": claim.volume_mode,
        "volumeAttributesClassName": claim.attributes_class if here.options.attributes_classes else "",
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": request.name,
            "annotations": {names.PROVISIONED_BY: class_.provisioner} | _secret_notes(refs),
            "finalizers": [names.VOLUME_FINALIZER],
        },
        "spec": spec | {key: value for key, value in optional.items() if value},
    }


def _secret_notes(refs: SecretRefs) -> dict[str, str]:
    """Where to find them later. Those for deletion are always there, and say by being empty that there is none."""
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
    """Whether a PersistentVolume of that name is the one we meant to store: same claim, same volume behind it, same place.

    The place counts because handles are unique on a node only: many drivers make them of the name, which every node would use.
    """
    claim, csi = wanted["spec"]["claimRef"], wanted["spec"]["csi"]
    same_claim = found.claim == ClaimRef(claim["uid"], claim["namespace"], claim["name"])
    same_place = _place(found) == _place(Volume.of(wanted))
    return same_claim and same_place and (found.driver, found.handle) == (csi["driver"], csi["volumeHandle"])


def _place(volume: Volume) -> frozenset[frozenset[Requirement]] | None:
    """Who else stores what the driver answered may write it in another order."""
    return None if volume.affinity is None else frozenset(frozenset(term.requirements) for term in volume.affinity)


def _claim_ref(claim: Claim) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }


def _csi(here: Here, claim: Claim, class_: Class, request: CreateRequest, created: CreatedVolume) -> Json:
    csi: Json = {
        "driver": here.driver.name,
        "volumeHandle": created.volume_id,
        "volumeAttributes": {names.PROVISIONER_IDENTITY: here.identity, **created.context},
    }
    if fs := fs_type(here, claim, class_):
        csi["fsType"] = fs
    if here.options.controller_publish_readonly and [item.access_mode for item in request.capabilities] == ["MULTI_NODE_READER_ONLY"]:
        csi["readOnly"] = True
    return csi


def is_elsewhere(here: Here, created: CreatedVolume) -> bool:
    """Whether each place that the driver names contradicts this node's. It may name fewer keys than the node has, or others besides."""
    mine = here.segment.labels()
    places = [segment for segment in created.topologies if segment]
    contradicted = all(any(mine.get(key, value) != value for key, value in segment.pairs) for segment in places)
    return here.with_topology and bool(places) and contradicted


def _affinity(here: Here, topologies: tuple[Segment, ...]) -> dict[str, Any] | None:
    """One term per topology of the answer. Empty ones say nothing; without any left there is no affinity at all."""
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in segment.pairs]}
        for segment in topologies
        if segment
    ]
    return {"required": {"nodeSelectorTerms": terms}} if here.with_topology and terms else None
