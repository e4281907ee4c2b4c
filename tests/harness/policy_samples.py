"""Objects as a sidecar of a node writes them, for tests of what tokens may write."""

from __future__ import annotations

from typing import Any

from hack.lib.programs import Json
from sidecar.kube.events.correlator import Correlator, ObjectRef
from sidecar.model import names
from tests.deploy.manifests import DRIVER

FOREIGN = "ebs.csi.aws.com"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "x"}
PV_PROTECTION = "kubernetes.io/pv-protection"


def identity(node: str, driver: str = DRIVER) -> str:
    return f"1700000000000-4711-{driver}-{node}"


def identified(node: str) -> Json:
    return {names.PROVISIONER_IDENTITY: identity(node)}


SOMEWHERE = {"key": f"topology.{DRIVER}/node", "operator": "In", "values": ["n1"]}


def affine(*expressions: Json) -> Json:
    """One term for each."""
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [item]} for item in expressions]}}}


def placed(*nodes: str) -> Json:
    return affine(*(SOMEWHERE | {"values": [node]} for node in nodes))


def volume(name: str, node: str = "n1", *, driver: str = DRIVER, csi: Json | None = None, meta: Json | None = None, **spec: Any) -> Json:
    """One as the sidecar of that node makes it."""
    source = {"driver": driver, "volumeHandle": name, "volumeAttributes": {names.PROVISIONER_IDENTITY: identity(node, driver)}}
    claimed = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": f"uid-{name}", "apiVersion": "v1"}
    wish = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete"}
    head = {"name": name, "finalizers": [names.VOLUME_FINALIZER], "annotations": {names.PROVISIONED_BY: driver}, **(meta or {})}
    full = {**wish, "csi": {**source, **(csi or {})}, "claimRef": claimed, **placed(node), **spec}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": head,
        "spec": {key: value for key, value in full.items() if value is not None},
    }


def claim(name: str, notes: dict[str, str], **meta: Any) -> Json:
    """Its class does not exist, so nobody else touches it."""
    spec = {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "namespace": "default", "annotations": notes, **meta}, "spec": spec}


def event(name: str = "told.1", *, node: str = "n1", driver: str = DRIVER, about: Json | None = None, **changes: Any) -> Json:
    correlator = Correlator(f"{driver}_sidecar-{node}_0f0f", node)
    told = correlator.correlate(
        ObjectRef("v1", names.CLAIM, "default", "x", "u"), names.NORMAL, "Told", "so", now=0.0, wall=1.7e9, once=name
    )
    assert told is not None
    body = {**told.body, **changes}
    return {**body, "involvedObject": {**body["involvedObject"], **(about or {})}}


def space(name: str = "new", node: str = "n1", *, driver: str = DRIVER, topology: str | None = None, **meta: Any) -> Json:
    """Free capacity."""
    labels = {names.CAPACITY_DRIVER_LABEL: driver, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(node)}
    segment = {"matchLabels": {f"topology.{DRIVER}/node": topology or node, "topology.kubernetes.io/zone": "a"}}
    return {"metadata": {"name": name, "labels": labels, **meta}, "storageClassName": "late", "capacity": "1Gi", "nodeTopology": segment}
