"""Report only on a real control plane: under the role of components/report-only and drain, with a driver's Node service alone, and beside
external-provisioner as the one that provisions centrally.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import IMMEDIATE, OurDriver, Process, Sidecar, claim, pod, storage_class, within
from sidecar.model import names
from sidecar.provisioning.creations import leftovers_io
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, DEPLOYMENTS, PODS, VOLUMES, Cluster
from tests.e2e.draining import COMPONENTS, DRAIN, NAMESPACE, REPORTS, Ground, command, component, explain, judged, late, stored_volume

DRIVER, ACCOUNT = "central.example.com", "reporter"
ONLY = ("--provisioning=false",)
GATE = ("--drain-gate", "--drain-gate-image=pause")
HURRY = ("--node-deployment-base-delay=500ms", "--node-deployment-max-delay=1s", "--retry-interval-start=200ms")
PUBLISH = ("--enable-capacity", "--capacity-ownerref-level=-1")


def rights(account: str = ACCOUNT) -> str:
    """Of this account all that the three components grant, and nothing else."""
    files = ("report-only/rbac.yaml", "drain/rbac.yaml", "gate/rbac.yaml", "drain/crd.yaml")
    objects = [item for file in files for item in yaml.safe_load_all((COMPONENTS / file).read_text())]
    for item in objects:
        if item["kind"] in ("Role", "RoleBinding", "ServiceAccount"):
            item["metadata"]["namespace"] = NAMESPACE
        if item["kind"] == "ServiceAccount":
            item["metadata"]["name"] = account
        for subject in item.get("subjects", ()):
            subject |= {"name": account, "namespace": NAMESPACE}
    return yaml.safe_dump_all(objects)


@pytest.fixture(scope="module")
def reporter(plane: ControlPlane) -> Iterator[Path]:
    manifest = rights()
    plane.apply(manifest)
    until(lambda: plane.serves(REPORTS), "the API server serves reports")
    yield plane.kubeconfig_for(namespace=NAMESPACE, service_account=ACCOUNT)
    plane.kubectl("delete", "--ignore-not-found", "--wait=true", "--timeout=60s", "-f", "-", input=manifest)


@pytest.fixture
def ground(reporter: Path, cluster: Cluster, tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(cluster, tmp_path)
    yield ground
    ground.clean()


@contextmanager
def reporting(ground: Ground, driver: OurDriver, reporter: Path, *args: str) -> Iterator[Sidecar]:
    """What it was refused is shown at the end: nothing."""
    with ground.sidecar(driver, *ONLY, *args, kubeconfig=reporter) as sidecar:
        yield sidecar.until_ready()
        assert sidecar.metric("csi_node_sidecar_api_requests_total", code="403") == 0, sidecar.page("/metrics")[1]
        assert not [line for line in sidecar.records("WEF") if "snapshotcontents" not in line and "optional resource" not in line]


def node_service(ground: Ground, folder: Path) -> OurDriver:
    """The node plugin of a driver that provisions centrally."""
    ground.driver(DRIVER, "n1")  # makes the folder of the sidecar's log
    (folder / "node").mkdir()
    return OurDriver(folder / "node", node="n1", name=DRIVER, args=("--node-service-only",))


def await_verdict(ground: Ground, driver: OurDriver, status: str, *, kind: str = names.RETIRE_READY) -> None:
    until(lambda: ground.condition("n1", driver, kind)[0] == status, f"{kind} is {status}: {ground.condition('n1', driver)}", seconds=90)


def test_with_the_node_service_alone_and_its_own_role(ground: Ground, reporter: Path, tmp_path: Path) -> None:
    """What nobody makes stays unmade; what others made decides; what was refused is nothing."""
    cluster, driver = ground.cluster, node_service(ground, tmp_path)
    with driver:
        ground.node("n1", driver)
        with reporting(ground, driver, reporter, *GATE) as sidecar:
            await_verdict(ground, driver, "True")
            cluster.create(CLASSES, storage_class("now", DRIVER, IMMEDIATE))
            cluster.create(CLAIMS, claim("now", "now"))
            cluster.create(CLAIMS, claim("late", late(driver)))
            cluster.create(PODS, pod("late", "late", nodeSelector={"kubernetes.io/hostname": "n1"}))
            selected = lambda: cluster.get(CLAIMS, "late")["metadata"].get("annotations", {}).get(names.SELECTED_NODE)  # noqa: E731
            until(lambda: selected() == "n1", "the scheduler has selected n1")
            await_verdict(ground, driver, "False")
            assert not within(5.0, lambda: bool(cluster.items(VOLUMES) or cluster.items(CAPACITIES)))
            assert names.SELECTED_NODE not in cluster.get(CLAIMS, "now")["metadata"].get("annotations", {})
            cluster.delete(PODS, "late")
            cluster.delete(CLAIMS, "late")
            await_verdict(ground, driver, "True")

            for item, path in zip(stored_volume("theirs", "data", driver, "n1"), (VOLUMES, CLAIMS), strict=True):
                cluster.create(path, item)
            until(lambda: cluster.phase(CLAIMS, "data") == "Bound", "what somebody else made is bound")
            await_verdict(ground, driver, "False")
            until(lambda: cluster.items(DEPLOYMENTS), "the gate stands in peace", seconds=90)
            before = cluster.get(VOLUMES, "theirs")["metadata"]
            assert not before.get("labels") and names.VOLUME_FINALIZER not in before["finalizers"]
            told(ground, driver, reporter)

            cluster.patch(VOLUMES, "theirs", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
            cluster.delete(CLAIMS, "data")
            until(lambda: cluster.phase(VOLUMES, "theirs") in ("Released", "Failed"), "it is released")
            assert not within(5.0, lambda: not cluster.exists(VOLUMES, "theirs")), "its own provisioner deletes it, and no other"
            assert sidecar.ready() and sidecar.page("/healthz")[0] == 200
            assert 'scope="journal"' not in sidecar.page("/metrics")[1]
        calls = {json.loads(line).get("method") for line in driver.calls.read_text().splitlines()}
        assert calls <= {None, "GetPluginInfo", "GetPluginCapabilities", "NodeGetInfo", "Probe"}
    assert sorted(path.name for path in driver.socket.parent.glob(".csi-node-sidecar*")) == [
        f".csi-node-sidecar.{driver.socket.name}.driver"
    ]


def told(ground: Ground, driver: OurDriver, reporter: Path) -> None:
    """By `explain`, from elsewhere."""
    (found,) = judged(explain(reporter, "n1", "-o", "json"))
    assert found["verdicts"]["retire"]["status"] == "False" and "data" in json.dumps(found["blockers"])
    done = command(reporter, "explain", "pvc", "default/data", f"--driver={DRIVER}", "--provisioning=false")
    assert done.returncode == 0, done.stderr
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith(("decision", "why")))
    assert rows["decision"].strip() == "Ignore" and "report only" in rows["why"]
    assert "theirs: Bound" in done.stdout and "volume is on" in done.stdout and "n1" in done.stdout


# --- beside a central provisioner --------------------------------------------------------------------------------------


@contextmanager
def central(ground: Ground, peer_binary: Path, driver: OurDriver) -> Iterator[None]:
    """external-provisioner as such drivers run it: once, at a socket that has the Controller service."""
    places = (f"--csi-address={driver.socket}", f"--kubeconfig={ground.plane.kubeconfig}", "--http-endpoint=127.0.0.1:0")
    line = [str(peer_binary), "--feature-gates=Topology=true", "--strict-topology", "-v=4", *places]
    with Process("central", line, driver.socket.parent):
        yield


def test_volumes_of_a_central_provisioner_come_and_go(ground: Ground, reporter: Path, peer_binary: Path, tmp_path: Path) -> None:
    cluster = ground.cluster
    controller, node = ground.driver(DRIVER, "n1"), node_service(ground, tmp_path)
    with controller, node:
        ground.node("n1", node)
        with central(ground, peer_binary, controller), reporting(ground, node, reporter):
            await_verdict(ground, node, "True")
            ground.use("data", node)
            await_verdict(ground, node, "False")
            (volume,) = cluster.items(VOLUMES)
            identity = volume["spec"]["csi"]["volumeAttributes"][names.PROVISIONER_IDENTITY]
            assert not identity.endswith("-n1") and names.VOLUME_NODE not in volume["metadata"].get("labels", {})
            ground.leave("data")
            ground.give_up("data")
            await_verdict(ground, node, "True")
        assert controller.recorded("CreateVolume") and controller.recorded("DeleteVolume")
        assert not node.recorded("CreateVolume")


# --- a DaemonSet that has provisioned before ----------------------------------------------------------------------------


@pytest.fixture
def drains_of_provisioner(plane: ControlPlane) -> Iterator[None]:
    """What the account that provisions needs for drain decisions."""
    manifest = component(*DRAIN)
    plane.apply(manifest)
    until(lambda: plane.serves(REPORTS), "the API server serves reports")
    yield
    roles = [item for item in yaml.safe_load_all(manifest) if item["kind"] != "CustomResourceDefinition"]
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(roles))
    plane.apply(rights())


def left(sidecar: Sidecar) -> list[str]:
    return [line for line in sidecar.records("W") if "nothing that is left of it is touched" in line]


@pytest.mark.usefixtures("drains_of_provisioner")
def test_the_flag_is_switched_on_and_off_again(ground: Ground) -> None:
    """Finalizers, capacity objects and a creation that a killed process had begun stay as they are, and are looked after again."""
    cluster, driver = ground.cluster, ground.driver(DRIVER, "n1")

    def life(*args: str) -> Sidecar:
        return ground.sidecar(driver, *args)

    with driver:
        ground.node("n1", driver)
        cluster.create(CLASSES, storage_class("now", DRIVER, IMMEDIATE))
        with life(*HURRY, *PUBLISH) as sidecar:
            sidecar.until_ready()
            for name in ("kept", "gone"):
                cluster.create(CLAIMS, claim(name, "now"))
            until(lambda: all(cluster.phase(CLAIMS, name) == "Bound" for name in ("kept", "gone")), "both are bound", seconds=30)
            until(lambda: cluster.items(CAPACITIES), "capacity is published")
            driver.misbehave({"method": "CreateVolume", "hang": 600})
            cluster.create(CLAIMS, claim("begun", "now"))
            until(lambda: begun(driver) == ["begun"], "one creation is begun, and the others are known to have ended", seconds=30)
            sidecar.kill()
        driver.misbehave()
        figures = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in cluster.items(CAPACITIES)}
        calls = len(driver.recorded("CreateVolume"))

        with life(*ONLY) as sidecar:
            sidecar.until_ready()
            until(lambda: left(sidecar), "it is told")
            cluster.delete(CLAIMS, "gone")
            await_verdict(ground, driver, "False")
            assert not within(5.0, lambda: len(cluster.items(VOLUMES)) != 2), "nothing is made or deleted"
            assert all(names.VOLUME_FINALIZER in item["metadata"]["finalizers"] for item in cluster.items(VOLUMES))
            assert {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in cluster.items(CAPACITIES)} == figures
            assert len(driver.recorded("CreateVolume")) == calls and not driver.recorded("DeleteVolume")
            assert begun(driver) == ["begun"]
            (line,) = left(sidecar)
            assert 'creations="1"' in line or "creations=1" in line, line

        with life(*HURRY, *PUBLISH) as sidecar:
            sidecar.until_ready()
            until(lambda: cluster.phase(CLAIMS, "begun") == "Bound", "what was begun is ended", seconds=60)
            until(lambda: len(cluster.items(VOLUMES)) == 2, "what was released is deleted", seconds=60)
            assert {item["metadata"]["name"] for item in cluster.items(CAPACITIES)} == figures.keys(), "they are taken over"
            assert len(left(sidecar)) == 1, "it was told in the life before, and in no other"


def begun(driver: OurDriver) -> list[str]:
    """The claims of creations that the journals leave open."""
    return [record.name for record in leftovers_io.read_all(driver.socket.parent, DRIVER).values()]
