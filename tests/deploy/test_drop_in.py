"""The component swaps the image of external-provisioner, whatever its DaemonSet looks like, and nothing else."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, DIGEST, Json, foreign_daemon_set, rendered, the

pytestmark = pytest.mark.real_api

OURS = "csi-node-sidecar:dev"
UPSTREAM = "registry.example/sig-storage/csi-provisioner:v6.3.0"
# As the distributed example of upstream's hostpath driver has it: flags, environment, and a privileged container.
SIDECAR: Json = {
    "name": "csi-provisioner",
    "image": UPSTREAM,
    "args": ["-v=5", "--csi-address=/csi/csi.sock", "--feature-gates=Topology=true", "--enable-capacity", "--node-deployment=true"],
    "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "securityContext": {"privileged": True},
    "volumeMounts": [{"name": "socket-dir", "mountPath": "/csi"}],
}


def swapped(work: Path, item: Json, **more: object) -> Json:
    """The DaemonSet as the user's own kustomization renders it, once the component is named there."""
    component = os.path.relpath(DEPLOY / "components" / "drop-in", work)
    (work / "driver.yaml").write_text(yaml.safe_dump(item))
    (work / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["driver.yaml"], "components": [component], **more}))
    return the("DaemonSet", rendered(work))


@pytest.mark.parametrize(
    "image",
    [
        UPSTREAM,
        f"registry.example/sig-storage/csi-provisioner{DIGEST}",
        f"registry.example/sig-storage/csi-provisioner:v6.3.0{DIGEST}",
        "registry.example/k8scsi/csi-provisioner:v1.6.0",
        "mirror.example:5000/kubernetes-csi/external-provisioner:v5.0.1-eks-1",
        "csi-provisioner",
        "registry.example/kubevirt/csi-external-provisioner:v1",
        "registry.example/openshift4/ose-csi-external-provisioner:v4.16",
        f"registry.example/openshift4/ose-csi-external-provisioner-rhel9{DIGEST}",
        f"registry.example/openshift4/ose-csi-external-provisioner-rhel9:v4.18{DIGEST}",
    ],
)
def test_the_image_changes_and_nothing_else(tmp_path: Path, image: str) -> None:
    before = foreign_daemon_set({**SIDECAR, "image": image})
    expected = copy.deepcopy(before)
    expected["spec"]["template"]["spec"]["containers"][1]["image"] = OURS
    assert swapped(tmp_path, before) == expected


@pytest.mark.parametrize(
    "image",
    [
        "example.com/my-csi-provisioner:v1",
        "example.com/csi-provisioner-exporter:v1",
        "example.com/csi-attacher:v1",
        "example.com/openshift4/ose-csi-external-attacher-rhel9:v4.18",
        "example.com/ose-provisioner:v1",
        "example.com/nfs-external-provisioner:v1",
        "example.com/csi-provisioner-rhel:v1",
        "example.com/rhel9-csi-provisioner:v1",
        f"example.com/csi-external-provisioner/driver:v1{DIGEST}",
    ],
)
def test_another_image_stays(tmp_path: Path, image: str) -> None:
    before = foreign_daemon_set({**SIDECAR, "image": image})
    assert swapped(tmp_path, before) == before


@pytest.mark.parametrize("theirs", [UPSTREAM, "mirror.example/sig-storage-csi-provisioner:v5.0.1"])
def test_the_user_says_where_our_image_comes_from(tmp_path: Path, theirs: str) -> None:
    """Where theirs has a name that the component does not know, by a line for that name."""
    name = "csi-node-sidecar" if theirs == UPSTREAM else "mirror.example/sig-storage-csi-provisioner"
    images = [{"name": name, "newName": "registry.example/csi-node-sidecar", "newTag": "v1.0.0"}]
    after = swapped(tmp_path, foreign_daemon_set({**SIDECAR, "image": theirs}), images=images)
    assert after["spec"]["template"]["spec"]["containers"][1]["image"] == "registry.example/csi-node-sidecar:v1.0.0"


def test_over_our_base_it_changes_nothing(tmp_path: Path) -> None:
    base, component = (os.path.relpath(DEPLOY / part, tmp_path) for part in ("base", "components/drop-in"))
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "components": [component]}))
    assert rendered(tmp_path) == rendered(DEPLOY / "base")
