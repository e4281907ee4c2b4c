"""With less than upstream's role, as under one from before version 5, which has no `patch` on PersistentVolumes: no volume hangs.

The role's rules are those that rawfile-localpv gives its provisioner, as far as they concern volumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver, Sidecar, claim, pod
from sidecar.model.names import VOLUME_FINALIZER as FINALIZER
from tests.harness.accounts import UPSTREAM, Role, account, grant
from tests.harness.cluster import CAPACITIES, CLAIMS, OWN_PODS, PODS, SOON, VOLUMES, Cluster, late, now

EVENTS_OF_VOLUMES = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name"


def old(*more: str) -> Role:
    """`more` are verbs on PersistentVolumes."""
    granted = {
        "persistentvolumes": ["get", "list", "watch", "create", "delete", *more],
        "persistentvolumeclaims": ["get", "list", "watch", "update"],
        "events": ["list", "watch", "create", "update", "patch"],
    }
    core = [{"apiGroups": [""], "resources": [kind], "verbs": verbs} for kind, verbs in granted.items()]
    return Role([*core, {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get", "list", "watch"]}], own=[])


@pytest.fixture
def old_role(cluster: Cluster) -> Iterator[Path]:
    with account(cluster, "old", old()) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[OurDriver]:
    with cluster.driver() as made:
        cluster.classes(made)
        yield made


def bound(cluster: Cluster, driver: OurDriver) -> Json:
    """A new claim's volume."""
    cluster.create(CLAIMS, claim("data", now(driver)))
    cluster.bound("data")
    return cluster.volume_of("data")


def gone(cluster: Cluster, driver: OurDriver, volume: Json) -> None:
    """From the API server, and from the driver, once."""
    until(lambda: not cluster.exists(VOLUMES, volume["metadata"]["name"]), "the PersistentVolume is gone")
    assert len(driver.recorded("CreateVolume")) == len(driver.recorded("DeleteVolume")) == 1


def forbidden(sidecar: Sidecar) -> float:
    return sidecar.metric("csi_node_sidecar_api_requests_total", code="403")


def reviews(sidecar: Sidecar) -> float:
    return sidecar.metric("csi_node_sidecar_api_requests_total", resource="selfsubjectaccessreviews.authorization.k8s.io")


def about_rights(sidecar: Sidecar) -> list[str]:
    return [line for line in sidecar.records("WE") if "grant patch on persistentvolumes" in line]


def test_without_patch_a_volume_has_no_finalizer_and_goes_as_it_did_before(cluster: Cluster, driver: OurDriver, old_role: Path) -> None:
    with cluster.sidecar(driver, *SOON, kubeconfig=old_role) as sidecar:
        sidecar.until_ready()
        until(lambda: about_rights(sidecar), "the log says which right is missing")
        volume = bound(cluster, driver)
        assert FINALIZER not in volume["metadata"]["finalizers"]
        cluster.delete(CLAIMS, "data")
        gone(cluster, driver, volume)
        assert "rights: Stopped" in sidecar.page("/readyz?verbose")[1]
        assert len(about_rights(sidecar)) == 1 and forbidden(sidecar) == 0 and reviews(sidecar) == 2


def test_update_does_instead_of_patch(cluster: Cluster, driver: OurDriver, old_role: Path) -> None:
    grant(cluster, "old", old("update"))
    with cluster.sidecar(driver, *SOON, kubeconfig=old_role) as sidecar:
        sidecar.until_ready()
        until(lambda: any("finalizer" in line for line in sidecar.records("I")), "the log says how the finalizer is written")
        volume = bound(cluster, driver)
        assert FINALIZER in volume["metadata"]["finalizers"]
        cluster.delete(CLAIMS, "data")
        gone(cluster, driver, volume)
        assert forbidden(sidecar) == 0 and about_rights(sidecar) == [] and reviews(sidecar) == 2


def test_a_volume_from_before_a_swap_of_roles_is_told_of_and_goes_when_the_right_is_granted(
    cluster: Cluster, driver: OurDriver, old_role: Path
) -> None:
    with cluster.sidecar(driver, *SOON) as sidecar:
        sidecar.until_ready()
        volume = bound(cluster, driver)
        assert FINALIZER in volume["metadata"]["finalizers"]
        assert reviews(sidecar) == 1
    name = volume["metadata"]["name"]
    with cluster.sidecar(driver, *SOON, kubeconfig=old_role) as sidecar:
        sidecar.until_ready()
        until(lambda: about_rights(sidecar), "the log says which right is missing")
        cluster.delete(CLAIMS, "data")

        def told() -> list[Json]:
            found = cluster.items(f"{EVENTS_OF_VOLUMES}%3D{name}")
            return [event for event in found if "grant patch on persistentvolumes" in event["message"]]

        until(lambda: "deletionTimestamp" in cluster.get(VOLUMES, name)["metadata"] and told(), "the volume is held, and people are told")
        assert told()[0]["reason"] == "VolumeFailedDelete"
        assert forbidden(sidecar) == 0 and len(about_rights(sidecar)) == 2, "one line of the role, one of the volume"
        grant(cluster, "old", old("patch"))
        gone(cluster, driver, volume)
        assert reviews(sidecar) <= 8 and "rights: OK" in sidecar.page("/readyz?verbose")[1]


def test_B1_without_rights_to_nodes_csinodes_and_leases_everything_works(cluster: Cluster, driver: OurDriver) -> None:
    """Late binding, Immediate, capacity and deletion, none of which look at other nodes or at leases."""
    kept = UPSTREAM.without_kinds("nodes", "csinodes", "leases")
    cluster.node("n1", driver)
    cluster.create(OWN_PODS, pod("owner", nodeName="n1"))
    args, environ = ("--enable-capacity", "--capacity-ownerref-level=0", *SOON), {"POD_NAME": "owner"}
    with account(cluster, "less", kept) as kubeconfig, cluster.sidecar(driver, *args, kubeconfig=kubeconfig, environ=environ) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("late", late(driver)))
        cluster.create(CLAIMS, claim("now", now(driver)))
        cluster.create(PODS, pod("consumer", "late"))
        cluster.bound("late", "now")
        until(lambda: [item["capacity"] for item in cluster.items(CAPACITIES)] == ["98Gi"], "capacity is published")
        cluster.delete(PODS, "consumer")
        cluster.request("DELETE", CLAIMS)
        until(lambda: not cluster.items(VOLUMES), "the volumes are gone")
        assert sidecar.records("WEF") == []
