"""Claims and volumes as a machine that is gone leaves them, for tests of what tokens may do with them."""

from __future__ import annotations

from typing import Any

from hack.lib.programs import Json
from sidecar.model import names
from tests.deploy.manifests import DRIVER
from tests.harness.policies import Request, Secured

CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"


def claim(name: str, *, lost_with: str = "", node: str = "n9", driver: str = DRIVER, volume: str = "some-volume") -> Json:
    """As the scheduler and the volume controller leave it: its volume was made for that node."""
    made = {names.SELECTED_NODE: node, names.STORAGE_PROVISIONER: driver} | ({names.LOST_WITH: lost_with} if lost_with else {})
    meta: Json = {"name": name, "annotations": {key: value for key, value in made.items() if value}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    spec |= {"volumeName": volume} if volume else {}
    return {"apiVersion": "v1", "kind": names.CLAIM, "metadata": meta, "spec": spec}


def volume(name: str, *, lies_on: str, node: str, **spec: Any) -> Json:
    terms: list[Json] = [{"matchExpressions": [{"key": "example.com/host", "operator": "In", "values": [node]}]}]
    identity = {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-{node}"}
    return {
        "apiVersion": "v1",
        "kind": names.VOLUME,
        "metadata": {"name": name, "annotations": {names.LIES_ON: lies_on} if lies_on else {}, "finalizers": [names.VOLUME_FINALIZER]},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "none",
            "csi": {"driver": DRIVER, "volumeHandle": name, "volumeAttributes": identity},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            **spec,
        },
    }


def uid_of(cluster: Secured, node: str) -> str:
    return str(cluster.plane.request("GET", f"/api/v1/nodes/{node}")["metadata"]["uid"])


def judged(cluster: Secured, name: str, *, folder: str = CLAIMS) -> Request:
    """The deletion of the claim as it is now."""
    meta = cluster.plane.request("GET", f"{folder}/{name}")["metadata"]
    conditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    return Request("DELETE", f"{folder}/{name}", {"preconditions": conditions, "dryRun": ["All"]})  # a body hides what the line asks
