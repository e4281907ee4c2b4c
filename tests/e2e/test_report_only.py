"""Report only, beside what `tests/smoke/test_report_only.py` shows: its own role, external-provisioner as the central one, and the flag
switched on and off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import OurDriver, Process, Sidecar, all_of, claim
from sidecar.model import names
from sidecar.provisioning.creations import leftovers_io
from tests.harness.cluster import CAPACITIES, CLAIMS, SOON, VOLUMES, after_looks, now
from tests.harness.drains import COMPONENTS, GATE, Ground, command, explain, judged

REPORTER = "reporter"
PUBLISH = ("--enable-capacity", "--capacity-ownerref-level=-1")


@pytest.fixture
def reporter(plane: ControlPlane, ground: Ground) -> Iterator[Path]:
    """Of this account all that the three components grant, and nothing else."""
    files = [COMPONENTS / part / "rbac.yaml" for part in ("report-only", "drain", "gate")]
    objects = [item for file in files for item in yaml.safe_load_all(file.read_text())]
    for item in objects:
        if item["kind"] != "ServiceAccount":
            item["metadata"]["name"] += f"-{REPORTER}"
        if "namespace" in item["metadata"]:
            item["metadata"] |= {"namespace": ground.own_namespace}
        if item["kind"] == "ServiceAccount":
            item["metadata"]["name"] = REPORTER
        if "roleRef" in item:
            item["roleRef"]["name"] += f"-{REPORTER}"
            item["subjects"] = [{"kind": "ServiceAccount", "name": REPORTER, "namespace": ground.own_namespace}]
    manifest = yaml.safe_dump_all(objects)
    plane.apply(manifest)
    yield plane.kubeconfig_for(namespace=ground.own_namespace, service_account=REPORTER)
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=manifest)


def node_service(ground: Ground) -> OurDriver:
    """The node plugin of a driver that provisions centrally."""
    folder = ground.folder / "node"
    folder.mkdir()
    return OurDriver(folder, node="n1", name=ground.driver_name, args=("--node-service-only",))


def test_volumes_of_a_central_provisioner_come_and_go_under_its_own_role(ground: Ground, reporter: Path, peer_binary: Path) -> None:
    """external-provisioner as such drivers run it: once, at a socket that has the Controller service. Nothing of ours is refused."""
    controller, node = ground.driver(), node_service(ground)
    places = (f"--csi-address={controller.socket}", f"--kubeconfig={ground.plane.kubeconfig}", "--http-endpoint=127.0.0.1:0")
    line = [str(peer_binary), "--feature-gates=Topology=true", "--strict-topology", "-v=4", *places]
    sidecar = ground.judge(node, "--provisioning=false", *GATE, kubeconfig=reporter)
    with all_of([controller, node]), Process("central", line, ground.folder), sidecar:
        ground.node("n1", node)
        sidecar.until_ready()
        ground.await_verdict(node, "True")
        ground.use("data", node)
        ground.await_verdict(node, "False")
        (volume,) = ground.items(VOLUMES)
        identity = volume["spec"]["csi"]["volumeAttributes"][names.PROVISIONER_IDENTITY]
        assert not identity.endswith("-n1") and names.VOLUME_NODE not in volume["metadata"].get("labels", {})
        until(ground.gate_stands, "the gate stands in peace")
        (found,) = judged(explain(reporter, "n1", "-o", "json"))
        assert found["verdicts"]["retire"]["status"] == "False" and "data" in json.dumps(found["blockers"])
        done = command(reporter, "explain", "pvc", f"{ground.namespace}/data")
        assert done.returncode == 0 and f"of {ground.driver_name}, on n1" in done.stdout, done.stderr
        ground.leave("data")
        ground.give_up("data")
        ground.await_verdict(node, "True")
        assert sidecar.metric("csi_node_sidecar_api_requests_total", code="403") == 0, sidecar.page("/metrics")[1]
        assert not [line for line in sidecar.records("WEF") if "snapshotcontents" not in line and "optional resource" not in line]
    assert controller.recorded("CreateVolume") and controller.recorded("DeleteVolume")
    assert not node.recorded("CreateVolume")


def left(sidecar: Sidecar) -> list[str]:
    return [line for line in sidecar.records("W") if "nothing that is left of it is touched" in line]


def test_the_flag_is_switched_on_and_off_again(ground: Ground) -> None:
    """Finalizers, capacity objects and a creation that a killed process had begun stay as they are, and are looked after again."""
    driver = ground.driver()

    def figures() -> dict[str, str]:
        return ground.versions(CAPACITIES)

    with driver:
        ground.node("n1", driver)
        with ground.judge(driver, *SOON, *PUBLISH, speed=1.0) as sidecar:
            sidecar.until_ready()
            for name in ("kept", "gone"):
                ground.create(CLAIMS, claim(name, now(driver)))
            ground.bound("kept", "gone")
            until(figures, "capacity is published")
            driver.misbehave({"method": "CreateVolume", "hang": 600})
            ground.create(CLAIMS, claim("begun", now(driver)))
            until(lambda: begun(driver) == ["begun"], "one creation is begun, and the others are known to have ended")
            sidecar.kill()
        driver.misbehave()
        published, calls = figures(), len(driver.recorded("CreateVolume"))

        with ground.judge(driver, "--provisioning=false") as sidecar:
            sidecar.until_ready()
            until(lambda: left(sidecar), "it is told")
            ground.delete(CLAIMS, "gone")
            ground.await_verdict(driver, "False")
            after_looks(sidecar, at="drain")
            volumes = ground.items(VOLUMES)
            assert len(volumes) == 2, "nothing is made or deleted"
            assert all(names.VOLUME_FINALIZER in item["metadata"]["finalizers"] for item in volumes)
            assert figures() == published
            assert len(driver.recorded("CreateVolume")) == calls and not driver.recorded("DeleteVolume")
            assert begun(driver) == ["begun"]
            (line,) = left(sidecar)
            assert 'creations="1"' in line or "creations=1" in line, line

        with ground.judge(driver, *SOON, *PUBLISH) as sidecar:
            sidecar.until_ready()
            ground.bound("begun")
            until(lambda: len(ground.items(VOLUMES)) == 2, "what was released is deleted")
            assert figures().keys() == published.keys(), "they are taken over"
            assert len(left(sidecar)) == 1, "it was told in the life before, and in no other"


def begun(driver: OurDriver) -> list[str]:
    """The claims of creations that the journals leave open."""
    return [record.name for record in leftovers_io.read_all(driver.socket.parent, driver.driver).values()]
