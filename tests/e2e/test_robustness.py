"""Driver and API server go away and come back, the program is told to stop, the queue is full: nothing is lost or done twice."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, Process, Sidecar, claim, pod, storage_class, within
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, PODS, ROLE, VOLUMES, Cluster

SOON = ("--node-deployment-base-delay=100ms", "--node-deployment-max-delay=200ms")
SELECTED, ASKED = "volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner"
WATCHED = ("persistentvolumeclaims", "persistentvolumes", "storageclasses")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[OurDriver]:
    with OurDriver(tmp_path, node="n1") as driver:
        yield driver


def sidecar_for(driver: OurDriver, cluster: Cluster, *args: str) -> Sidecar:
    return Sidecar(driver.log.parent, node=driver.node, address=driver.socket, kubeconfig=cluster.role, args=args)


def selected(name: str, class_: str = "late", node: str = "n1") -> Json:
    """A claim for which the scheduler has chosen this node."""
    return claim(name, class_, annotations={SELECTED: node})


def bound(cluster: Cluster, *names: str) -> None:
    until(lambda: all(cluster.phase(CLAIMS, name) == "Bound" for name in names), f"{names} are bound", seconds=30)


def begun(driver: OurDriver) -> None:
    until(lambda: driver.recorded("CreateVolume"), "the driver is creating a volume")


def volume_of(cluster: Cluster, claim_name: str) -> Json:
    return cluster.get(VOLUMES, cluster.get(CLAIMS, claim_name)["spec"]["volumeName"])


# ---- the driver ----


def test_a_killed_driver_is_found_again_without_a_relist(cluster: Cluster, driver: OurDriver) -> None:
    """While it is away: alive, not ready, the reason told. Afterwards the same process goes on, with claims made meanwhile too."""
    cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
    with sidecar_for(driver, cluster, *SOON) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("before", "now"))
        bound(cluster, "before")
        lists = sidecar.metric("csi_node_sidecar_reflector_relists_total")
        driver.kill()
        until(lambda: sidecar.page("/readyz")[0] == 503, "it is not ready")
        assert sidecar.page("/readyz")[1].startswith("driver: Degraded: ")
        assert str(driver.socket) in sidecar.page("/readyz")[1]
        assert sidecar.page("/healthz") == (200, "ok")
        cluster.create(CLAIMS, claim("meanwhile", "now"))
        driver.start()
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("after", "now"))
        bound(cluster, "meanwhile", "after")
        assert sidecar.metric("csi_node_sidecar_reflector_relists_total") == lists == len(WATCHED)
        assert sidecar.child.poll() is None


def test_a_driver_killed_while_it_creates_leaves_one_volume(cluster: Cluster, driver: OurDriver) -> None:
    """Whether it had made the volume nobody knows, so it is asked again, by the same name."""
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    driver.misbehave({"method": "CreateVolume", "linger": "inf"})
    with sidecar_for(driver, cluster) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data"))
        begun(driver)
        driver.kill()
        driver.misbehave()
        driver.start()
        bound(cluster, "data")
    assert len({call["name"] for call in driver.recorded("CreateVolume")}) == 1
    assert len(cluster.items(VOLUMES)) == 1


# ---- the API server ----


@pytest.mark.slow
@pytest.mark.parametrize("outage", [60.0])
def test_an_api_server_that_is_killed_and_comes_back_costs_no_event(
    outage: float, bin_dir: Path, tmp_path: Path, driver: OurDriver
) -> None:
    """What was written right before the kill and right after the restart is acted upon; a volume made meanwhile is stored.

    During the outage it stays alive, asks at most once a second per watch, and after a while says why it is not ready.
    """
    with ControlPlane(bin_dir, tmp_path / "plane") as plane:
        plane.apply(ROLE.read_text())
        cluster = Cluster(plane, plane.kubeconfig_for(namespace="default", service_account="csi-provisioner"))
        cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
        with sidecar_for(driver, cluster) as sidecar:
            sidecar.until_ready()
            make(cluster, driver, "old")
            until(lambda: stored(cluster, "old"), "it works")
            driver.misbehave({"method": "CreateVolume", "delay": 2, "times": 1})
            make(cluster, driver, "slow")
            until(lambda: len(driver.recorded("CreateVolume")) == 2, "the driver is at it")
            make(cluster, driver, "just-before")
            release(cluster, "old")
            plane.kill_apiserver()
            endure(sidecar, outage)
            plane.start_apiserver()
            make(cluster, driver, "just-after")
            names = ("slow", "just-before", "just-after")
            until(lambda: all(stored(cluster, name) for name in names), "every claim has its volume", seconds=90)
            until(lambda: driver.recorded("DeleteVolume"), "the released volume is deleted", seconds=90)
            sidecar.until_ready()
            assert sidecar.records("EF") == []
    created = [call["name"] for call in driver.recorded("CreateVolume")]
    assert len(created) == len(set(created)) == 4


def make(cluster: Cluster, driver: OurDriver, name: str) -> None:
    """What scheduler and volume controller, which do not run here, would have written."""
    cluster.create(CLAIMS, claim(name, "late", annotations={SELECTED: "n1", ASKED: driver.driver}))


def stored(cluster: Cluster, name: str) -> bool:
    return any(volume["spec"]["claimRef"]["name"] == name for volume in cluster.items(VOLUMES))


def release(cluster: Cluster, name: str) -> None:
    (volume,) = [volume for volume in cluster.items(VOLUMES) if volume["spec"]["claimRef"]["name"] == name]
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    patch = {"status": {"phase": "Released"}}
    cluster.plane.request("PATCH", f"{path}/status", patch, content_type="application/merge-patch+json")


def endure(sidecar: Sidecar, seconds: float) -> None:
    """Look at it all the while. What is held counts as fresh for half a minute."""
    attempts = {name: sidecar.metric("csi_node_sidecar_reflector_attempts_total", resource=name) for name in WATCHED}
    lines, used, began = len(sidecar.records()), sidecar.cpu_seconds(), time.monotonic()
    while time.monotonic() - began < seconds:
        assert sidecar.page("/healthz") == (200, "ok")
        time.sleep(0.5)
    passed = time.monotonic() - began
    for name in WATCHED:
        assert sidecar.metric("csi_node_sidecar_reflector_attempts_total", resource=name) - attempts[name] <= passed
    assert len(sidecar.records()) - lines <= 4 * passed
    assert sidecar.cpu_seconds() - used < passed / 5
    if seconds > 45:
        status, page = sidecar.page("/readyz")
        assert status == 503
        assert "caches/persistentvolumeclaims: Degraded: watch persistentvolumeclaims: " in page


# ---- stopping ----


def test_X3_a_stop_lets_the_call_in_flight_end_and_takes_no_new_work(cluster: Cluster, driver: OurDriver) -> None:
    """The PersistentVolume is stored, the exit code is 0, and a claim that comes after SIGTERM is left to the next process."""
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    driver.misbehave({"method": "CreateVolume", "delay": 3})
    with sidecar_for(driver, cluster) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data"))
        begun(driver)
        sidecar.signal(signal.SIGTERM)
        until(lambda: "Stopping" in sidecar.output(), "it has heard")
        cluster.create(CLAIMS, selected("too-late"))
        assert sidecar.wait() == 0
    bound(cluster, "data")
    assert len(driver.recorded("CreateVolume")) == 1
    assert sidecar.records("WEF") == []


def test_X3_a_hung_call_is_cut_at_the_shutdown_timeout_and_the_next_start_ends_it(cluster: Cluster, driver: OurDriver) -> None:
    """The call alone would have lasted a minute."""
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    driver.misbehave({"method": "CreateVolume", "linger": "inf"})
    with sidecar_for(driver, cluster, "--timeout=60s", "--shutdown-timeout=1s") as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data"))
        begun(driver)
        asked = time.monotonic()
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 0
        assert time.monotonic() - asked < 60 / 4
        (line,) = sidecar.records("WEF")
        assert "--shutdown-timeout" in line
    driver.misbehave()
    with sidecar_for(driver, cluster) as sidecar:
        bound(cluster, "data")
    assert len({call["name"] for call in driver.recorded("CreateVolume")}) == 1


def test_a_second_signal_ends_it_at_once(cluster: Cluster, driver: OurDriver) -> None:
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    driver.misbehave({"method": "CreateVolume", "hang": "inf"})
    with sidecar_for(driver, cluster, "--timeout=60s", "--shutdown-timeout=60s") as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data"))
        begun(driver)
        sidecar.signal(signal.SIGTERM)
        assert not within(2, lambda: sidecar.child.poll() is not None)
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 1


# ---- starting ----


@pytest.mark.parametrize(
    ("driver_args", "args"),
    [pytest.param(["--no-topology"], [], id="S6-N28"), pytest.param([], ["--feature-gates=Topology=false"], id="S7")],
)
def test_without_topology_neither_request_nor_volume_has_any(
    cluster: Cluster, tmp_path: Path, driver_args: list[str], args: list[str]
) -> None:
    """Who provisions still goes by the selected node: a claim of another node is left alone."""
    driver = OurDriver(tmp_path, node="n1", args=driver_args)
    cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    with driver, sidecar_for(driver, cluster, *SOON, *args) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("foreign", node="n2"))
        cluster.create(CLAIMS, selected("late"))
        cluster.create(CLAIMS, claim("now", "now"))
        bound(cluster, "late", "now")
        assert cluster.phase(CLAIMS, "foreign") == "Pending"
        assert cluster.get(CLAIMS, "now")["metadata"]["annotations"][SELECTED] == "n1"
    assert all("nodeAffinity" not in volume["spec"] for volume in cluster.items(VOLUMES))
    requests = [call["request"] for call in driver.recorded("CreateVolume")]
    assert len(requests) == 2
    assert all("accessibility_requirements" not in request for request in requests)


def test_S10_the_identity_names_driver_and_node_and_is_new_at_every_start(cluster: Cluster, driver: OurDriver) -> None:
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    for name in ("first", "second"):
        with sidecar_for(driver, cluster):
            cluster.create(CLAIMS, selected(name))
            bound(cluster, name)
    identities = [
        volume_of(cluster, name)["spec"]["csi"]["volumeAttributes"]["storage.kubernetes.io/csiProvisionerIdentity"]
        for name in ("first", "second")
    ]
    assert all(identity.endswith(f"-{driver.driver}-n1") for identity in identities)
    assert identities[0] != identities[1]


def test_B4_the_command_line_of_the_hostpath_deployment_works_as_it_stands(cluster: Cluster, driver: OurDriver, tmp_path: Path) -> None:
    """Arguments and environment verbatim: capacity is published, and a pod gets its volume."""
    cluster.plane.add_node("n1", {driver.key: "n1"})
    cluster.plane.add_csinode("n1", driver.driver, "n1", [driver.key])
    cluster.create(PODS, pod("plugin-0", nodeName="n1"))
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    line = (
        f"-v=5 --csi-address={driver.socket} --feature-gates=Topology=true --enable-capacity --capacity-ownerref-level=0 "
        "--node-deployment=true --strict-topology=true --immediate-topology=false --worker-threads=5"
    )
    environ = {"NODE_NAME": "n1", "NAMESPACE": "default", "POD_NAME": "plugin-0", "KUBECONFIG": str(cluster.role)}
    with Process("hostpath", [sys.executable, "-m", "sidecar", *line.split()], tmp_path, environ=environ) as sidecar:
        until(lambda: [item["capacity"] for item in cluster.items(CAPACITIES)] == ["100Gi"], f"capacity is published:\n{sidecar.output()}")
        cluster.create(CLAIMS, claim("data", "late"))
        cluster.create(PODS, pod("consumer", "data"))
        bound(cluster, "data")
    assert sidecar.child.returncode == 0


# ---- a full queue, an onlooker, a secret ----


def test_N26_claims_that_wait_hold_no_worker(cluster: Cluster, driver: OurDriver) -> None:
    """200 Immediate claims whose delays run, five workers: a claim for this node passes them all.

    A delay is anything up to the base delay, so only a base of a year keeps 200 of them from ending during the test.
    """
    cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    args = ["--worker-threads=5", "--node-deployment-base-delay=10000h", "--node-deployment-max-delay=20000h"]
    with sidecar_for(driver, cluster, *args) as sidecar:
        sidecar.until_ready()
        for number in range(200):
            cluster.create(CLAIMS, claim(f"open-{number}", "now"))
        until(lambda: waiting(sidecar) == 200, "all claims wait", seconds=30)
        cluster.create(CLAIMS, selected("data"))
        bound(cluster, "data")
        assert waiting(sidecar) == 200
    assert len(driver.recorded("CreateVolume")) == 1


def waiting(sidecar: Sidecar) -> int:
    return len({row["key"] for row in decisions(sidecar) if row["decision"] == "Wait"})


def decisions(sidecar: Sidecar) -> list[Json]:
    found: list[Json] = json.loads(sidecar.page("/debug/decisions")[1])
    return found


def test_a_dry_run_decides_everything_and_changes_nothing(cluster: Cluster, driver: OurDriver) -> None:
    """What it would do is on /debug/decisions; claims, volumes, capacity, events and the driver stay as they are."""
    cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    cluster.create(VOLUMES, released_volume(driver))
    cluster.create(CLAIMS, claim("open", "now"))
    cluster.create(CLAIMS, selected("ours"))
    until(lambda: cluster.phase(VOLUMES, "left") == "Released", "the volume is released")
    until(lambda: all(ASKED in item["metadata"]["annotations"] for item in cluster.items(CLAIMS)), "the provisioner is asked")
    before = versions(cluster, driver)
    args = [*SOON, "--dry-run", "--enable-capacity", "--capacity-ownerref-level=-1"]
    with Sidecar(
        driver.log.parent, node="n1", address=driver.socket, kubeconfig=cluster.role, args=args, environ={"NAMESPACE": "default"}
    ) as sidecar:
        sidecar.until_ready()
        expected = {("default/open", "Bid"), ("default/ours", "Create"), ("left", "Empty")}
        until(lambda: expected <= {(row["name"], row["decision"]) for row in decisions(sidecar)}, "it has decided")
        until(lambda: any(row["room"] == "capacity" for row in decisions(sidecar)), "on capacity too")
        time.sleep(2)  # there is no event for what does not happen
    assert versions(cluster, driver) == before
    assert cluster.items(CAPACITIES) == []
    assert driver.recorded("CreateVolume") == driver.recorded("DeleteVolume") == []


def versions(cluster: Cluster, driver: OurDriver) -> dict[str, str]:
    """Of claims, volumes and the events that speak for the driver."""
    events = cluster.items("/api/v1/namespaces/default/events")
    ours = [event for event in events if driver.driver in event["source"].get("component", "")]
    return {
        item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in (*cluster.items(CLAIMS), *cluster.items(VOLUMES), *ours)
    }


def released_volume(driver: OurDriver) -> Json:
    """Its claim has gone."""
    terms: list[Any] = [{"matchExpressions": [{"key": driver.key, "operator": "In", "values": [driver.node]}]}]
    return {
        "metadata": {"name": "left", "annotations": {"pv.kubernetes.io/provisioned-by": driver.driver}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "gone", "uid": "gone"},
            "csi": {"driver": driver.driver, "volumeHandle": "left"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "late",
        },
    }


def test_the_token_is_never_logged(cluster: Cluster, driver: OurDriver) -> None:
    """Not even at the highest verbosity, nor when the server goes on to reject it."""
    config = json.loads(cluster.role.read_text())
    token = config["users"][0]["user"]["token"]
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    with sidecar_for(driver, cluster, "-v=9") as sidecar:
        cluster.create(CLAIMS, selected("data"))
        bound(cluster, "data")
        status, pages = 0, ""
        for path in ("/readyz?verbose", "/debug/decisions", "/debug/queue", "/metrics"):
            status, page = sidecar.page(path)
            pages += page
        assert status == 200
    assert "CreateVolume" in sidecar.output()
    assert token not in sidecar.output() + pages
    assert token.split(".")[2] not in sidecar.output() + pages
