"""Beside a driver's own, central provisioner: what nobody of ours makes stays unmade, and the node says whether it may go."""

from __future__ import annotations

import json

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver, claim, pod
from sidecar.model import names
from tests.harness.cluster import CAPACITIES, CLAIMS, PODS, VOLUMES, after_looks, late, now
from tests.harness.drains import GATE, Ground

CALLS = {None, "GetPluginInfo", "GetPluginCapabilities", "NodeGetInfo", "Probe"}


def test_with_the_node_service_alone_it_judges_and_makes_nothing(ground: Ground) -> None:
    driver = ground.driver(args=("--node-service-only",))
    with driver, ground.judge(driver, "--provisioning=false", *GATE) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.await_verdict(driver, "True")
        ground.create(CLAIMS, claim("now", now(driver)))
        ground.create(CLAIMS, claim("late", late(driver)))
        ground.create(PODS, pod("late", "late", nodeSelector={"kubernetes.io/hostname": "n1"}))
        ground.await_verdict(driver, "False")  # a pod waits here for its volume
        assert not ground.items(VOLUMES) and not ground.items(CAPACITIES)
        assert names.SELECTED_NODE not in ground.notes(CLAIMS, "now")
        ground.delete(PODS, "late")
        ground.delete(CLAIMS, "late")
        ground.await_verdict(driver, "True")

        name = f"theirs-{ground.namespace}"
        for item, path in zip(stored_volume(ground, name, driver), (VOLUMES, CLAIMS), strict=True):
            ground.create(path, item)
        until(lambda: ground.phase(CLAIMS, "data") == "Bound", "what somebody else made is bound")
        ground.await_verdict(driver, "False")
        until(ground.gate_stands, "the gate stands in peace")
        ground.patch(VOLUMES, name, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
        ground.delete(CLAIMS, "data")
        until(lambda: ground.phase(VOLUMES, name) in ("Released", "Failed"), "it is released")
        after_looks(sidecar, at="drain")
        assert ground.exists(VOLUMES, name), "its own provisioner deletes it, and no other"
        assert names.VOLUME_FINALIZER not in ground.get(VOLUMES, name)["metadata"]["finalizers"]
    assert {json.loads(line).get("method") for line in driver.calls.read_text().splitlines()} <= CALLS


def stored_volume(ground: Ground, name: str, driver: OurDriver, *, claim: str = "data", policy: str = "Retain") -> tuple[Json, Json]:
    """A volume on the driver's node and the claim that has it, as if another program had made both long ago."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    place = {"matchExpressions": [{"key": driver.key, "operator": "In", "values": [driver.node]}]}
    spec: Json = {"capacity": size, "accessModes": modes, "storageClassName": late(driver), "persistentVolumeReclaimPolicy": policy}
    spec |= {"csi": {"driver": driver.driver, "volumeHandle": name}, "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}}}
    spec |= {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": ground.namespace, "name": claim}}
    wish = {"storageClassName": late(driver), "accessModes": modes, "resources": {"requests": size}, "volumeName": name}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": wish},
    )
