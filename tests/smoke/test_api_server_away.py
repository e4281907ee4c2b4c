"""The API server is killed and comes back: no event is missed, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import OurDriver, claim
from sidecar.model import names
from tests.harness.cluster import CLAIMS, ROLE, VOLUMES, Cluster, late, own_part

ATTEMPTS = "csi_node_sidecar_reflector_attempts_total"


def test_an_api_server_that_is_killed_and_comes_back_costs_no_event(bin_dir: Path, tmp_path: Path) -> None:
    """What was written right before the kill and right after the restart is acted upon; a volume made meanwhile is stored."""
    with ControlPlane(bin_dir, tmp_path / "plane") as plane:
        plane.apply(ROLE.read_text())
        with own_part(plane, tmp_path) as cluster:
            story(plane, cluster)


def story(plane: ControlPlane, cluster: Cluster) -> None:
    driver = cluster.driver()
    cluster.classes(driver)
    with driver, cluster.sidecar(driver, speed=5) as sidecar:
        sidecar.until_ready()
        make(cluster, driver, "old")
        until(lambda: stored(cluster, "old"), "it works")
        driver.misbehave({"method": "CreateVolume", "delay": 2, "times": 1})
        make(cluster, driver, "slow")
        until(lambda: len(driver.recorded("CreateVolume")) == 2, "the driver is at it")
        make(cluster, driver, "just-before")
        release(cluster, "old")
        tried = sidecar.metric(ATTEMPTS, resource="persistentvolumeclaims")
        plane.kill_apiserver()
        until(lambda: sidecar.metric(ATTEMPTS, resource="persistentvolumeclaims") > tried, "it is asked in vain")
        assert sidecar.page("/healthz") == (200, "ok")
        plane.start_apiserver()
        make(cluster, driver, "just-after")
        every = ("slow", "just-before", "just-after")
        until(lambda: all(stored(cluster, name) for name in every), "every claim has its volume")
        until(lambda: driver.recorded("DeleteVolume"), "the released volume is deleted")
        sidecar.until_ready()
        assert sidecar.records("EF") == []
    created = [call["name"] for call in driver.recorded("CreateVolume")]
    assert len(created) == len(set(created)) == 4


def make(cluster: Cluster, driver: OurDriver, name: str) -> None:
    """What scheduler and volume controller, which do not run here, would have written."""
    notes = {names.SELECTED_NODE: driver.node, names.STORAGE_PROVISIONER: driver.driver}
    cluster.create(CLAIMS, claim(name, late(driver), annotations=notes))


def stored(cluster: Cluster, name: str) -> bool:
    return any(volume["spec"]["claimRef"]["name"] == name for volume in cluster.items(VOLUMES))


def release(cluster: Cluster, name: str) -> None:
    (volume,) = [volume for volume in cluster.items(VOLUMES) if volume["spec"]["claimRef"]["name"] == name]
    cluster.patch(VOLUMES, f"{volume['metadata']['name']}/status", {"status": {"phase": "Released"}})
