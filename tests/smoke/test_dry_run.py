"""With --dry-run everything is decided, and nothing is changed."""

from __future__ import annotations

import json

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver, Sidecar, claim
from sidecar.model import names
from tests.harness.cluster import CAPACITIES, CLAIMS, EVENTS, SOON, VOLUMES, Cluster, late, now, selected


def decisions(sidecar: Sidecar) -> list[Json]:
    found: list[Json] = json.loads(sidecar.page("/debug/decisions")[1])
    return found


def test_a_dry_run_decides_everything_and_changes_nothing(cluster: Cluster) -> None:
    """What it would do is on /debug/decisions; claims, volumes, capacity, events and the driver stay as they are."""
    driver = cluster.driver()
    cluster.classes(driver)
    left = f"left-{cluster.namespace}"
    cluster.create(VOLUMES, released_volume(cluster, driver, left))
    cluster.create(CLAIMS, claim("open", now(driver)))
    cluster.create(CLAIMS, selected("ours", late(driver)))
    until(lambda: cluster.phase(VOLUMES, left) == "Released", "the volume is released")
    asked = lambda name: names.STORAGE_PROVISIONER in cluster.notes(CLAIMS, name)  # noqa: E731
    until(lambda: asked("open") and asked("ours"), "the provisioner is asked")
    before = versions(cluster, driver)
    with driver, cluster.sidecar(driver, *SOON, "--dry-run", "--enable-capacity", "--capacity-ownerref-level=-1") as sidecar:
        sidecar.until_ready()
        expected = {(f"{cluster.namespace}/open", "Bid"), (f"{cluster.namespace}/ours", "Create"), (left, "Empty")}
        until(lambda: expected <= {(row["name"], row["decision"]) for row in decisions(sidecar)}, "it has decided")
        until(lambda: any(row["room"] == "capacity" for row in decisions(sidecar)), "on capacity too")
    assert versions(cluster, driver) == before
    assert cluster.items(CAPACITIES) == []
    assert driver.recorded("CreateVolume") == driver.recorded("DeleteVolume") == []


def versions(cluster: Cluster, driver: OurDriver) -> dict[str, str]:
    """Of claims, volumes and the events that speak for the driver."""
    ours = [event for event in cluster.items(EVENTS) if driver.driver in event["source"].get("component", "")]
    return {
        item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in (*cluster.items(CLAIMS), *cluster.items(VOLUMES), *ours)
    }


def released_volume(cluster: Cluster, driver: OurDriver, name: str) -> Json:
    """Its claim has gone."""
    terms: list[Json] = [{"matchExpressions": [{"key": driver.key, "operator": "In", "values": [driver.node]}]}]
    gone = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": cluster.namespace, "name": "gone", "uid": "gone"}
    return {
        "metadata": {"name": name, "annotations": {names.PROVISIONED_BY: driver.driver}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": gone,
            "csi": {"driver": driver.driver, "volumeHandle": "left"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": late(driver),
        },
    }
