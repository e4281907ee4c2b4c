"""Under a role of external-provisioner before version 5, which has no `patch` on PersistentVolumes: no volume hangs for want of it.

The role's rules are those that rawfile-localpv gives its provisioner, as far as they concern volumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import until
from hack.lib.programs import IMMEDIATE, Json, OurDriver, Sidecar, claim, storage_class
from tests.e2e.conftest import CLAIMS, CLASSES, VOLUMES, Cluster

OLD = "old-provisioner"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
ARGS = ("--node-deployment-base-delay=500ms", "--node-deployment-max-delay=1s")
ACCOUNT = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {OLD}, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {OLD}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {OLD}}}
subjects: [{{kind: ServiceAccount, name: {OLD}, namespace: default}}]
---
"""


def rules(*more: str) -> Json:
    """`more` are verbs on PersistentVolumes."""
    granted = {
        "persistentvolumes": ["get", "list", "watch", "create", "delete", *more],
        "persistentvolumeclaims": ["get", "list", "watch", "update"],
        "events": ["list", "watch", "create", "update", "patch"],
    }
    core = [{"apiGroups": [""], "resources": [kind], "verbs": verbs} for kind, verbs in granted.items()]
    classes = {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get", "list", "watch"]}
    return {"rules": [*core, classes]}


def grant(cluster: Cluster, *more: str) -> None:
    cluster.patch(ROLES, OLD, rules(*more))


@pytest.fixture
def old_role(cluster: Cluster) -> Iterator[Path]:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": OLD}, **rules()}
    manifest = ACCOUNT + yaml.safe_dump(role)
    cluster.plane.apply(manifest)
    yield cluster.plane.kubeconfig_for(namespace="default", service_account=OLD)
    cluster.plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=manifest)


@pytest.fixture
def driver(cluster: Cluster, tmp_path: Path) -> Iterator[OurDriver]:
    with OurDriver(tmp_path, node="n1") as made:
        cluster.create(CLASSES, storage_class("now", made.driver, IMMEDIATE))
        yield made


def bound(cluster: Cluster) -> Json:
    """A new claim's volume."""
    cluster.create(CLAIMS, claim("data", "now"))
    until(lambda: cluster.phase(CLAIMS, "data") == "Bound", "the claim is bound")
    return cluster.get(VOLUMES, cluster.get(CLAIMS, "data")["spec"]["volumeName"])


def gone(cluster: Cluster, driver: OurDriver, volume: Json, *, seconds: float = 30.0) -> None:
    """From the API server, and from the driver, once."""
    until(lambda: not cluster.exists(VOLUMES, volume["metadata"]["name"]), "the PersistentVolume is gone", seconds=seconds)
    assert len(driver.recorded("CreateVolume")) == len(driver.recorded("DeleteVolume")) == 1


def forbidden(sidecar: Sidecar) -> float:
    return sidecar.metric("csi_node_sidecar_api_requests_total", code="403")


def reviews(sidecar: Sidecar) -> float:
    return sidecar.metric("csi_node_sidecar_api_requests_total", resource="selfsubjectaccessreviews.authorization.k8s.io")


def about_rights(sidecar: Sidecar) -> list[str]:
    return [line for line in sidecar.records("WE") if "grant patch on persistentvolumes" in line]


def test_without_patch_a_volume_has_no_finalizer_and_goes_as_it_did_before(
    cluster: Cluster, driver: OurDriver, old_role: Path, tmp_path: Path
) -> None:
    with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig=old_role, args=ARGS) as sidecar:
        sidecar.until_ready()
        until(lambda: about_rights(sidecar), "the log says which right is missing")
        volume = bound(cluster)
        assert FINALIZER not in volume["metadata"]["finalizers"]
        cluster.delete(CLAIMS, "data")
        gone(cluster, driver, volume)
        assert "rights: Stopped" in sidecar.page("/readyz?verbose")[1]
        assert len(about_rights(sidecar)) == 1 and forbidden(sidecar) == 0 and reviews(sidecar) == 2


def test_update_does_instead_of_patch(cluster: Cluster, driver: OurDriver, old_role: Path, tmp_path: Path) -> None:
    grant(cluster, "update")
    with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig=old_role, args=ARGS) as sidecar:
        sidecar.until_ready()
        until(lambda: any("finalizer" in line for line in sidecar.records("I")), "the log says how the finalizer is written")
        volume = bound(cluster)
        assert FINALIZER in volume["metadata"]["finalizers"]
        cluster.delete(CLAIMS, "data")
        gone(cluster, driver, volume)
        assert forbidden(sidecar) == 0 and about_rights(sidecar) == [] and reviews(sidecar) == 2


def test_a_volume_from_before_a_swap_of_roles_is_told_of_and_goes_when_the_right_is_granted(
    cluster: Cluster, driver: OurDriver, old_role: Path, tmp_path: Path
) -> None:
    with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig=cluster.role, args=ARGS) as sidecar:
        sidecar.until_ready()
        volume = bound(cluster)
        assert FINALIZER in volume["metadata"]["finalizers"]
        assert reviews(sidecar) == 1
    name = volume["metadata"]["name"]
    with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig=old_role, args=ARGS) as sidecar:
        sidecar.until_ready()
        until(lambda: about_rights(sidecar), "the log says which right is missing")
        cluster.delete(CLAIMS, "data")
        told = lambda: [event for event in cluster.events(name) if "grant patch on persistentvolumes" in event["message"]]  # noqa: E731
        until(lambda: "deletionTimestamp" in cluster.get(VOLUMES, name)["metadata"] and told(), "the volume is held, and people are told")
        assert told()[0]["reason"] == "VolumeFailedDelete"
        assert forbidden(sidecar) == 0 and len(about_rights(sidecar)) == 2, "one line of the role, one of the volume"
        grant(cluster, "patch")
        gone(cluster, driver, volume, seconds=90.0)
        assert reviews(sidecar) <= 8 and "rights: OK" in sidecar.page("/readyz?verbose")[1]
