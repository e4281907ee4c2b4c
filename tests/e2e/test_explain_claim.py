"""`explain pvc`, asked from where no driver is, on a real control plane: why this claim has no volume, and what to do."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hack.lib.control_plane import free_ports, until
from hack.lib.programs import OurDriver, Sidecar, claim, pod
from sidecar.kube.api import STRATEGIC_MERGE_PATCH
from sidecar.model import names
from tests.harness.cluster import CLAIMS, NODES, OWN_DAEMON_SETS, OWN_PODS, PODS, Cluster, late
from tests.harness.drains import command


class Asked:
    """One node, its driver with 10Gi and its sidecar, whose pod is as kwok shows it: the program itself runs beside the test."""

    def __init__(self, cluster: Cluster, driver: OurDriver, sidecar: Sidecar, port: int) -> None:
        self.cluster, self.driver, self.sidecar = cluster, driver, sidecar
        args = ["--node-deployment", f"--of={driver.driver}", f"--debug-endpoint=:{port}"]
        containers = [{"name": "csi-provisioner", "image": "csi-node-sidecar:dev", "args": args}]
        labels = {"app": "sidecar"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers, "tolerations": [{"operator": "Exists"}]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        cluster.create(OWN_DAEMON_SETS, {"metadata": {"name": "sidecar"}, "spec": spec})
        until(lambda: cluster.get(OWN_DAEMON_SETS, "sidecar")["status"].get("numberReady"), "the DaemonSet is ready")
        (self.pod,) = [name for name in cluster.names(OWN_PODS) if name.startswith("sidecar-")]

    def want(self, name: str, class_: str = "", *, size: str = "1Gi", mode: str = "ReadWriteOnce") -> None:
        wanted = claim(name, class_ or late(self.driver), size=size)
        wanted["spec"]["accessModes"] = [mode]
        self.cluster.create(CLAIMS, wanted)
        self.cluster.create(PODS, pod(name, name))

    def unscheduled(self, name: str) -> bool:
        found = self.cluster.get(PODS, name).get("status", {}).get("conditions", ())
        return any(item["type"] == "PodScheduled" and item["status"] == "False" for item in found)

    def told(self, name: str) -> dict[str, str]:
        """What is said, by the first word of each line."""
        done = command(self.cluster.plane.kubeconfig, "explain", "pvc", f"{self.cluster.namespace}/{name}")
        print(done.stdout)
        assert (done.returncode, done.stderr) == (0, "")
        return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[0] != " ")


@pytest.fixture
def asked(cluster: Cluster) -> Iterator[Asked]:
    driver, (port,) = cluster.driver(pools={"main": "10Gi"}), free_ports(1)
    published = ("--enable-capacity", "--capacity-ownerref-level=-1", f"--debug-endpoint=0.0.0.0:{port}")
    with driver, cluster.sidecar(driver, *published) as sidecar:
        cluster.node("n1", driver, capacity=True)
        yield Asked(cluster, driver, sidecar.until_ready(), port)


def test_why_a_claim_has_no_volume_and_what_to_do(asked: Asked) -> None:
    cluster = asked.cluster
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it tells an address of this machine at which the API server's proxy may ask
        at = probe.getsockname()[0]
    cluster.patch(OWN_PODS, f"{asked.pod}/status", {"status": {"podIP": at, "podIPs": [{"ip": at}]}}, content_type=STRATEGIC_MERGE_PATCH)
    asked.want("misspelt", late(asked.driver).replace("late", "laet"))
    asked.want("too-big", size="100Gi")
    asked.want("shared", mode="ReadWriteMany")
    asked.want("bound")
    cluster.bound("bound")
    until(lambda: asked.unscheduled("too-big"), "the scheduler has said why")
    assert "has its volume" in asked.told("bound")["next"]
    assert f"{late(asked.driver)} may be meant" in asked.told("misspelt")["next"]
    assert " with 9Gi at most" in asked.told("too-big")["next"]
    until(lambda: any(item["type"] == "Warning" for item in cluster.events("shared")), "the driver has refused it")
    assert "with ReadWriteOnce" in asked.told("shared")["next"]
    asked.driver.misbehave({"method": "CreateVolume", "fail": "INVALID_ARGUMENT", "message": "no file system ext5"})
    asked.want("refused")
    until(lambda: any(item["type"] == "Warning" for item in cluster.events("refused")), "the driver has refused it")
    said = asked.told("refused")
    assert all("no file system ext5" in said[line] for line in ("event", "decision"))
    assert said["next"].startswith("mend what the event names")
    asked.sidecar.stop()
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "containers with unready status"}]}}
    cluster.patch(OWN_PODS, f"{asked.pod}/status", unready, content_type=STRATEGIC_MERGE_PATCH)
    asked.want("waits")
    until(lambda: names.SELECTED_NODE in cluster.notes(CLAIMS, "waits"), "n1 is selected")
    assert asked.told("waits")["next"].endswith(f"kubectl describe pod -n {cluster.own_namespace} {asked.pod}")
    cluster.patch(NODES, "n1", {"spec": {"unschedulable": True}})
    asked.want("cordoned")
    until(lambda: asked.unscheduled("cordoned"), "the scheduler has said why")
    assert asked.told("cordoned")["next"].startswith("kubectl uncordon n1")
