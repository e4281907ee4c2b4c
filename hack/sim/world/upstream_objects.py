"""What upstream asks a driver for, and the PersistentVolume that it makes of the answer. For claims and classes as worlds have them."""

from typing import Final

from sidecar.csi.api import SINGLE_NODE_MULTI_WRITER, Capability, CreatedVolume, CreateRequest, DriverInfo
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.model.quantity import format_bytes, parse_bytes

MARK: Final = "example.com/stored-by-the-model-of-upstream"
"""An annotation on its PersistentVolumes, by which a judge knows them."""

_SECRET: Final = f"{names.RESERVED_PARAMETER_PREFIX}provisioner-secret-"


def request_for(name: str, claim: Json, class_: Json, driver: DriverInfo) -> CreateRequest:
    writer = "SINGLE_NODE_MULTI_WRITER" if SINGLE_NODE_MULTI_WRITER in driver.controller else "SINGLE_NODE_WRITER"
    modes = {"ReadWriteOnce": writer, "ReadWriteMany": "MULTI_NODE_MULTI_WRITER", "ReadOnlyMany": "MULTI_NODE_READER_ONLY"}
    return CreateRequest(
        name,
        parse_bytes(claim["spec"]["resources"]["requests"]["storage"]),
        tuple(Capability(modes[mode], mount_flags=tuple(class_.get("mountOptions") or ())) for mode in claim["spec"]["accessModes"]),
        {key: value for key, value in (class_.get("parameters") or {}).items() if not key.startswith(names.RESERVED_PARAMETER_PREFIX)},
        requisite=(driver.segment,),
        preferred=(driver.segment,),
    )


def volume_of(claim: Json, class_: Json, request: CreateRequest, created: CreatedVolume, *, driver: str, identity: str) -> Json:
    """The driver's own words win over the identity."""
    meta, (secret_namespace, secret_name) = claim["metadata"], secret_of(class_)
    places = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in place.pairs]}
        for place in created.topologies
        if place
    ]
    notes = {
        MARK: "",
        names.PROVISIONED_BY: class_["provisioner"],
        names.DELETION_SECRET_NAME: secret_name,
        names.DELETION_SECRET_NAMESPACE: secret_namespace,
    }
    reference = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    spec = {
        "accessModes": claim["spec"]["accessModes"],
        "capacity": {"storage": format_bytes(created.capacity_bytes or request.required_bytes)},
        "claimRef": {"apiVersion": "v1", "kind": names.CLAIM, **reference},
        "csi": {
            "driver": driver,
            "volumeHandle": created.volume_id,
            "volumeAttributes": {names.PROVISIONER_IDENTITY: identity, **created.context},
        },
        "persistentVolumeReclaimPolicy": class_.get("reclaimPolicy") or "Delete",
        "storageClassName": class_["metadata"]["name"],
        **({"nodeAffinity": {"required": {"nodeSelectorTerms": places}}} if created.topologies else {}),
        **({"volumeMode": claim["spec"]["volumeMode"]} if claim["spec"].get("volumeMode") else {}),
    }
    return {"metadata": {"name": request.name, "annotations": notes, "finalizers": [names.VOLUME_FINALIZER]}, "spec": spec}


def secret_of(class_: Json) -> tuple[str, str]:
    """Namespace and name of the Secret that the driver is handed; empty if the class names none."""
    parameters = class_.get("parameters") or {}
    return parameters.get(f"{_SECRET}namespace", ""), parameters.get(f"{_SECRET}name", "")
