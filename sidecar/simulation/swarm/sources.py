"""Snapshots for races: each lies on one node, and only the driver there can fill a volume from it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sidecar.csi.api import CREATE_DELETE_SNAPSHOT, CreatedVolume, CreateRequest, DriverInfo
from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.api import SNAPSHOT_CONTENTS, SNAPSHOTS, KubeApi
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.simulation.cluster.kinds.kind import Kind
from sidecar.simulation.driver.local_driver import LocalDriver
from sidecar.simulation.driver.spec import Spec
from sidecar.simulation.world.node import DRIVER, NAMESPACE

KINDS: Final = tuple(Kind(resource=each, fields={"spec": dict, "status": dict}) for each in (SNAPSHOTS, SNAPSHOT_CONTENTS))


class RestoringDriver(LocalDriver):
    """Knows the snapshots of its own node, by their handles, which begin with the node's name."""

    def __init__(self, node: str) -> None:
        super().__init__(Spec(node_id=node))

    @property
    def info(self) -> DriverInfo:
        known = super().info
        return replace(known, controller=known.controller | {CREATE_DELETE_SNAPSHOT})

    def create(self, request: CreateRequest, *, limit_bytes: int = 0) -> CreatedVolume:
        handle = request.source_snapshot
        if handle and handle.partition("/")[0] != self.spec.node_id:
            raise DriverError(Code.NOT_FOUND, f"there is no snapshot {handle} here")
        made = super().create(replace(request, source_snapshot=""), limit_bytes=limit_bytes)
        return replace(made, has_source=bool(handle))


def name_of(claim: str) -> str:
    return f"snapshot-for-{claim}"


def source_of(claim: str) -> Json:
    """What the claim names in its spec."""
    return {"apiGroup": names.SNAPSHOT_GROUP, "kind": names.SNAPSHOT, "name": name_of(claim)}


async def furnish(api: KubeApi, claims: Sequence[str], nodes: Sequence[str], *, bytes_: int) -> None:
    """A snapshot for each claim, on one node after the other; as where the snapshotter runs on every node, a label says on which."""
    for number, claim in enumerate(claims):
        node, name = nodes[number % len(nodes)], name_of(claim)
        status: Json = {"boundVolumeSnapshotContentName": name, "readyToUse": True, "restoreSize": str(bytes_)}
        made = await api.create(SNAPSHOTS, {"metadata": {"name": name}, "spec": {}, "status": status}, namespace=NAMESPACE)
        whose = {"name": name, "namespace": NAMESPACE, "uid": made["metadata"]["uid"]}
        body: Json = {
            "metadata": {"name": name, "labels": {names.CONTENT_MANAGED_BY: node}},
            "spec": {"driver": DRIVER, "volumeSnapshotRef": whose},
            "status": {"snapshotHandle": f"{node}/{name}", "readyToUse": True},
        }
        await api.create(SNAPSHOT_CONTENTS, body)
