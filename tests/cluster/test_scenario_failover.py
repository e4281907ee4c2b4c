"""Fail-over on real kubelets. The volume is a folder whose files all nodes have; who writes holds a lock there, which dies with it.

What DRBD says of it is a model's, over a file that all nodes have too: each node's `read-drbd` runs a `drbdsetup` over it. Volumes are
attached by external-attacher.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hack.kubelets.cluster import Cluster
from hack.lib.control_plane import binaries, until
from hack.lib.processes import Process, all_of
from hack.lib.programs import OurDriver
from hack.sim import drbdsetup
from hack.sim.drbd import Storage
from sidecar.failover.look_io import attachment_name
from sidecar.model import names
from tests.cluster.scenes import (
    DEPLOY,
    DRIVER,
    LATE,
    NAMESPACE,
    SIDECAR,
    VOLUMES,
    Installation,
    Json,
    container,
    is_ready,
    kustomized,
    the_daemon_set,
)
from tests.harness.policies import REPORT_TYPE

HANDLE = "shared-db"
PYTHON, IMAGE = "/opt/csi-node-sidecar/bin/python", "csi-node-sidecar-driver:dev"
DRBD = "/var/lib/csi-node-sidecar-driver/drbd"
SOCKETS = f"/var/lib/kubelet/plugins/{DRIVER}"
TAINT = names.of_driver(DRIVER, names.STORAGE_LOST)
# A silent node is not Ready after 50 s, and what is detached behind its back Kubernetes notices within another 60.
SLOW = 150.0
PROGRAM = f"""#!{PYTHON}
import sys
from pathlib import Path
from hack.sim.drbdsetup import main
sys.exit(main(Path("/drbd/state"), *sys.argv[1:]))
"""
# It never waits for the lock: a second writer is seen.
WRITER = """
import fcntl, os, signal, sys, time, uuid
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
me, lock, log = f"{os.environ['NODE']} {uuid.uuid4()}", open("/data/lock", "a"), open("/data/log", "a", buffering=1)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    log.write(f"{me} second\\n")
    sys.exit(1)
number = 0
while True:
    number += 1
    log.write(f"{me} {number}\\n")
    time.sleep(0.5)
"""


class Replicated(Installation):
    """Sidecars that fail over, each with a reader of DRBD, and one volume with a copy on every node."""

    def __init__(self, cluster: Cluster, folder: Path, mode: str) -> None:
        objects = kustomized(cluster, _overlay(folder))
        spec = the_daemon_set(objects)["spec"]["template"]["spec"]
        args = container(the_daemon_set(objects), SIDECAR)["args"]
        args[:] = [arg for arg in args if not arg.startswith("--failover=")]
        args += [f"--failover={mode}", "--debug-endpoint=:8081"]
        reader = container(the_daemon_set(objects), "read-drbd")
        reader |= {"image": IMAGE, "command": [PYTHON, "-m", "sidecar"]}
        reader["args"] = ["read-drbd", *reader["args"]]
        reader["env"] = [{"name": "PATH", "value": "/drbd/bin:/usr/bin:/bin"}]
        reader["resources"] = {"requests": {"cpu": "10m", "memory": "96Mi"}}  # each call of this drbdsetup is a Python
        reader["volumeMounts"].append({"name": "drbd", "mountPath": "/drbd"})
        spec["volumes"].append({"name": "drbd", "hostPath": {"path": DRBD, "type": "Directory"}})
        for item in objects:
            if item["kind"] == "CSIDriver":
                item["spec"]["attachRequired"] = True
        super().__init__(cluster, "scenario", [*REPORT_TYPE, *objects])

    # --- what all nodes have ------------------------------------------------------------------------------------------

    def disk(self, node: str, folder: str) -> Path:
        return self.cluster.node(node).place.disk / folder.lstrip("/")

    @property
    def state(self) -> Path:
        return self.disk(self.nodes[0], DRBD) / "state"

    def install(self) -> None:
        first, *others = self.nodes
        for node in self.nodes:
            (self.disk(node, DRBD) / "bin").mkdir(parents=True)
            self.disk(node, f"{VOLUMES}/{HANDLE}").mkdir(parents=True)
            program = self.disk(node, DRBD) / "bin" / "drbdsetup"
            program.write_text(PROGRAM.replace('state")', f'state"), "{node}"'))
            program.chmod(0o755)
        storage = Storage(time.monotonic)
        storage.add(HANDLE, disks=self.nodes)
        drbdsetup.create(self.state, storage)
        shared = [f"{DRBD}/state", *(f"{VOLUMES}/{HANDLE}/{name}" for name in ("log", "lock"))]
        for name in shared:
            self.disk(first, name).touch()
            for node in others:
                os.link(self.disk(first, name), self.disk(node, name))
        self._before = {item["metadata"]["uid"] for item in self.items("events", "--namespace=default")}
        super().install()

    def uninstall(self) -> None:
        self.kubectl("delete", "statefulsets,pods,persistentvolumeclaims", "--all", self.where, "--wait=true")
        self.kubectl("delete", "persistentvolume", HANDLE, "--ignore-not-found")
        for node in self.nodes:
            shutil.rmtree(self.disk(node, f"{VOLUMES}/{HANDLE}"))
        super().uninstall()
        for node in self.nodes:
            shutil.rmtree(self.disk(node, DRBD))

    # --- the writer ---------------------------------------------------------------------------------------------------

    def begin(self) -> str:
        """The set's writer writes; its node."""
        claim = self.claim("data-db-0", LATE)
        claim["spec"]["volumeName"] = HANDLE
        csi, ref = {"driver": DRIVER, "volumeHandle": HANDLE}, {"namespace": self.namespace, "name": "data-db-0"}
        spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "16Mi"}, "storageClassName": LATE, "csi": csi, "claimRef": ref}
        meta: Json = {"name": HANDLE}
        self.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec | KEPT}, claim)
        labels = {"app": "db"}
        main = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": [PYTHON, "-c", WRITER],
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        body = {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 5, "containers": [main]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": self.claim("data", LATE)["spec"]}],
        }
        named = {"name": "db", "namespace": self.namespace}
        self.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": named, "spec": body})
        until(self.log, "the writer writes", seconds=60.0)
        return self.holds()

    def log(self) -> list[tuple[str, str, str]]:
        """Of each line: node, process, number."""
        text = (self.disk(self.nodes[0], f"{VOLUMES}/{HANDLE}") / "log").read_text()
        return [(node, process, number) for node, process, number in map(str.split, text.splitlines())]

    def holds(self) -> str:
        """The node of the last writer, which is Primary there from now on."""
        node = self.log()[-1][0]
        with drbdsetup.held(self.state) as held:
            held.storage.open(node, HANDLE)
        return node

    def check_log(self) -> list[str]:
        """Nobody has written beside another one, and nothing of one is missing. The nodes of the writers, one after the other."""
        writers = [(who, [number for *_, number in lines]) for who, lines in itertools.groupby(self.log(), key=lambda line: line[:2])]
        assert len({who for who, _ in writers}) == len(writers), writers
        for who, numbers in writers:
            assert numbers == [str(number) for number in range(1, len(numbers) + 1)], who
        return [node for (node, _), _ in writers]

    def goes_on(self, node: str) -> None:
        """It is still written, and there."""
        count = len(self.log())
        until(lambda: len(self.log()) > count + 2, "it is still written")
        assert self.log()[-1][0] == node

    # --- nodes --------------------------------------------------------------------------------------------------------

    def power_off(self, node: str) -> None:
        self.cluster.node(node).power_off()
        with drbdsetup.held(self.state) as held:
            held.storage.crash(node)

    def power_on(self, node: str) -> None:
        machine = self.cluster.node(node)
        machine.power_on()
        with drbdsetup.held(self.state) as held:
            held.storage.boot(node)
        machine.start_kubelet()

    def is_node_ready(self, node: str) -> bool:
        return any(item["type"] == "Ready" and item["status"] == "True" for item in self.get("node", node)["status"]["conditions"])

    def taint_of(self, node: str) -> str:
        return next((one.get("value", "") for one in self.get("node", node)["spec"].get("taints", ()) if one["key"] == TAINT), "")

    def is_attached(self, node: str) -> bool:
        return bool(self.get("volumeattachment", attachment_name(HANDLE, DRIVER, node)))

    def reasons(self) -> set[str]:
        """Of the events of this namespace and of nodes that fail-over has told since the installation."""
        told = [*self.items("events", self.where), *self.items("events", "--namespace=default")]
        return {item["reason"] for item in told if item["metadata"]["uid"] not in self._before} & REASONS

    def explained(self) -> str:
        return self.program("explain", "pod", f"{self.namespace}/db-0").stdout

    def settled(self) -> None:
        """All nodes are Ready, with sidecars that are, and nothing of fail-over is left on them."""
        until(lambda: all(map(self.is_node_ready, self.nodes)), "all nodes are Ready", seconds=60.0)
        until(lambda: all(is_ready(self.pods().get(node, {})) for node in self.nodes), "all sidecars are ready", seconds=60.0)
        until(lambda: not any(map(self.taint_of, self.nodes)), "no taint is left", seconds=60.0)


KEPT = {"persistentVolumeReclaimPolicy": "Retain"}
REASONS = {names.STORAGE_LOST_HERE, names.POD_FAILED_OVER, names.VOLUME_DETACHED, names.FAILOVER_BLOCKED, names.STORAGE_BACK}


def _overlay(folder: Path) -> Path:
    """The components read what the settings say, so these are whole before."""
    for place in (folder, folder / "base"):
        place.mkdir()
    deploy = os.path.relpath(DEPLOY, folder.resolve())
    said = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "csi-node-sidecar-settings"}, "data": {"socket-folder": SOCKETS}}
    base = {"kind": "Kustomization", "resources": [f"../{deploy}/base"], "patches": [{"patch": yaml.safe_dump(said)}]}
    components = [f"{deploy}/components/{name}" for name in ("own-node", "drain", "failover", "read-drbd")]
    (folder / "base" / "kustomization.yaml").write_text(yaml.safe_dump(base))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"kind": "Kustomization", "resources": ["base"], "components": components}))
    return folder


@pytest.fixture
def attacher(cluster: Cluster, tmp_path: Path) -> Iterator[None]:
    """For the whole cluster. Its driver says that nothing is to be done to attach a volume."""
    driver = OurDriver(tmp_path, node="attacher", name=DRIVER)
    line = [str(binaries("csi-attacher") / "csi-attacher"), f"--csi-address={driver.socket}", f"--kubeconfig={cluster.kubeconfig}"]
    with all_of([driver, Process("attacher", line, tmp_path)]):
        yield


def test_f01_the_writer_of_a_node_that_is_off_goes_on_elsewhere_and_local_data_waits_for_its_machine(
    cluster: Cluster, attacher: None, deploy: Callable[[Replicated], Replicated], tmp_path: Path
) -> None:
    scene = deploy(Replicated(cluster, tmp_path / "manifests", "Act"))
    victim = scene.begin()
    scene.stateful_set("alone", 1, node=victim)
    born, alone = scene.born("alone-0"), scene.pod("alone-0")["metadata"]["uid"]
    scene.power_off(victim)
    until(lambda: scene.log()[-1][0] != victim, "it is written elsewhere", seconds=SLOW)
    survivor = scene.holds()
    assert scene.check_log() == [victim, survivor]
    assert scene.taint_of(victim) == "peers-took-over" and not scene.is_attached(victim) and scene.is_attached(survivor)
    assert {names.STORAGE_LOST_HERE, names.POD_FAILED_OVER} <= scene.reasons()
    local = scene.pod("alone-0")["metadata"]
    assert local["uid"] == alone and "deletionTimestamp" not in local
    scene.power_on(victim)
    scene.settled()
    until(lambda: is_ready(scene.pod("alone-0")), "the pod with local data runs again")
    assert (scene.born("alone-0"), scene.pod("alone-0")["metadata"]["uid"]) == (born, alone)
    with unwritten(scene, survivor):
        cluster.node(survivor).kill_kubelet()
        until(lambda: not scene.is_node_ready(survivor), "its Node is not Ready", seconds=SLOW)
        time.sleep(20.0)  # longer than any proof has to hold
        scene.goes_on(survivor)
    cluster.node(survivor).start_kubelet()
    scene.settled()
    assert scene.check_log() == [victim, survivor]


def test_who_observes_writes_nothing_and_tells_what_would_be_next(
    cluster: Cluster, attacher: None, deploy: Callable[[Replicated], Replicated], tmp_path: Path
) -> None:
    scene = deploy(Replicated(cluster, tmp_path / "manifests", "Observe"))
    victim = scene.begin()
    with unwritten(scene, victim):
        scene.power_off(victim)
        until(lambda: not scene.is_node_ready(victim), "its Node is not Ready", seconds=SLOW)
        until(lambda: names.FAILOVER_BLOCKED in scene.reasons(), "it is told")
        time.sleep(20.0)
        # Where the API server was away for a moment nothing would be next for a while.
        until(lambda: "it is only observed: Taint would be next" in scene.explained(), scene.explained, seconds=SLOW)
        told = scene.explained()
    assert "holds  proof of shared-db: " in told and "(drbd, " in told and "proof by DRBD" in told, told
    assert scene.reasons() == {names.FAILOVER_BLOCKED} and not scene.get("lease", names.failover(DRIVER), f"--namespace={NAMESPACE}")
    scene.power_on(victim)
    scene.settled()
    until(lambda: len(scene.check_log()) == 2, "the writer goes on where it was", seconds=60.0)
    assert scene.check_log() == [victim, victim]


@contextmanager
def unwritten(scene: Replicated, node: str) -> Iterator[None]:
    """Meanwhile fail-over does nothing to this node, its pod, and its attachment."""
    before = scene.pod("db-0")["metadata"]["uid"]
    yield
    after = scene.pod("db-0")["metadata"]
    assert after["uid"] == before and "deletionTimestamp" not in after
    assert scene.is_attached(node) and not scene.taint_of(node)
