"""A volume from a snapshot of another namespace, with both projects' own types on a real API server: only once that namespace allows it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY, ControlPlane, binaries, until
from hack.lib.programs import LATE, Json, Process, Sidecar, claim, connects, storage_class
from hack.parities import crds
from sidecar.model import names
from tests.harness.cluster import CLAIMS, CLASSES, ROLE, Cluster, own_part

DRIVER, NODE, KEY = "across.csi-node-sidecar.io", "n1", "topology.across/node"
SNAPSHOT_GROUP, GATEWAY_GROUP = "snapshot.storage.k8s.io", "gateway.networking.k8s.io"
SNAPSHOTS = f"/apis/{SNAPSHOT_GROUP}/v1/namespaces/theirs/volumesnapshots"
CONTENTS = f"/apis/{SNAPSHOT_GROUP}/v1/volumesnapshotcontents"
GRANTS = f"/apis/{GATEWAY_GROUP}/v1beta1/namespaces/theirs/referencegrants"
SOURCE: Json = {"apiGroup": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": "monday", "namespace": "theirs"}
GRANT: Json = {
    "apiVersion": f"{GATEWAY_GROUP}/v1beta1",
    "kind": "ReferenceGrant",
    "metadata": {"name": "backup"},
    "spec": {
        "from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": "default"}],
        "to": [{"group": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": "monday"}],
    },
}
GATE = "--feature-gates=CrossNamespaceVolumeDataSource=true"
# What upstream's sample role has in comments.
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: grants}
rules:
- {apiGroups: [gateway.networking.k8s.io], resources: [referencegrants], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: grants}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: grants}
subjects: [{kind: ServiceAccount, name: csi-provisioner, namespace: default}]
"""


@pytest.fixture
def across(tmp_path: Path) -> Iterator[Cluster]:
    """The API server keeps the namespace of a source only with its own gate."""
    with ControlPlane(binaries("core"), tmp_path / "plane", components=("controller-manager",), extra_args={"apiserver": [GATE]}) as plane:
        plane.apply(ROLE.read_text())
        for manifest in (*crds.manifests(), crds.reference_grants()):
            plane.apply(manifest.read_text())
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "theirs"}})
        for path in (SNAPSHOTS, CONTENTS, GRANTS):
            until(lambda path=path: plane.serves(path), f"the API server serves {path}")  # type: ignore[misc]
        with own_part(plane, tmp_path) as cluster:
            yield cluster


def a_snapshot(cluster: Cluster) -> None:
    """As a snapshot controller leaves it."""
    kind = {"apiVersion": f"{SNAPSHOT_GROUP}/v1"}
    spec: Json = {"source": {"volumeSnapshotContentName": "content"}}
    made = cluster.create(SNAPSHOTS, kind | {"kind": "VolumeSnapshot", "metadata": {"name": "monday"}, "spec": spec})
    status: Json = {"readyToUse": True, "boundVolumeSnapshotContentName": "content", "restoreSize": "1Gi"}
    cluster.patch(SNAPSHOTS, "monday/status", {"status": status})
    spec = {
        "deletionPolicy": "Retain",
        "driver": DRIVER,
        "source": {"snapshotHandle": "snap-1"},
        "volumeSnapshotRef": {"namespace": "theirs", "name": "monday", "uid": made["metadata"]["uid"]},
    }
    cluster.create(CONTENTS, kind | {"kind": "VolumeSnapshotContent", "metadata": {"name": "content"}, "spec": spec})
    cluster.patch(CONTENTS, "content/status", {"status": {"readyToUse": True, "snapshotHandle": "snap-1"}})


def a_driver(work: Path) -> Process:
    told = {"endpoint": str(work / "csi.sock"), "name": DRIVER, "calls": str(work / "calls"), "segments": {KEY: NODE}}
    told |= {"capabilities": ["CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT"]}
    return Process("driver", [sys.executable, str(REPOSITORY / "hack" / "parities" / "driver.py"), json.dumps(told)], work)


def test_R50_a_source_of_another_namespace_needs_its_grant(across: Cluster, tmp_path: Path) -> None:
    across.plane.apply(RIGHTS)
    across.create(CLASSES, storage_class("late", DRIVER, LATE))
    a_snapshot(across)
    body = claim("copy", "late", annotations={names.SELECTED_NODE: NODE})
    body["spec"]["dataSourceRef"] = SOURCE
    with a_driver(tmp_path):
        until(lambda: connects(tmp_path / "csi.sock"), "the driver serves")
        with Sidecar(tmp_path, node=NODE, address=tmp_path / "csi.sock", kubeconfig=across.role, args=(GATE,)):
            across.create(CLAIMS, body)
            until(lambda: any("no ReferenceGrant" in event["message"] for event in across.events("copy")), "the claim's user is told why")
            assert not created(tmp_path)
            GRANT["spec"]["from"][0]["namespace"] = across.namespace
            across.create(GRANTS, GRANT)
            until(lambda: across.phase(CLAIMS, "copy") == "Bound", "it is allowed, so the volume is made")
    (request,) = created(tmp_path)
    assert request["volume_content_source"] == {"snapshot": {"snapshot_id": "snap-1"}}


def created(work: Path) -> list[Json]:
    lines = (work / "calls").read_text().splitlines() if (work / "calls").exists() else []
    return [call["request"] for call in map(json.loads, lines) if call["method"] == "CreateVolume"]
