"""What drain decisions cost, and how fast a node is emptied beside kubectl drain.

First memory of an instance with and without them, and one look at any node from outside, on a cluster of 500 nodes, 2,000 volumes on them
(100 on ours, with a pod each), 5,000 attachments and 200 disruption budgets.

Then a node is emptied, by its sidecar and by kubectl drain, in turn. Each pod has an ephemeral volume of the driver, and is made again on
another node. Both may take pods equally fast: one workload of 50 replicas whose budget lets one be away at a time, and 50 workloads of one
pod, where one kubectl drain for each is begun at the rate at which the sidecar evicts. Last, 40 workloads of one pod are drained by a
PlannedMaintenance, from the moment its stage becomes Drain, and by one kubectl drain.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hack.benchmarks.pod import put_into_a_pod
from hack.benchmarks.stage import NODE, Stage, a_ground, a_stage, add_runs, in_parallel, set_status
from hack.lib.command import say
from hack.lib.control_plane import ALL_COMPONENTS, REPOSITORY, ControlPlane, until
from hack.lib.programs import OURS, GoDriver, Json, OurDriver, Sidecar, claim, pod, volume
from sidecar.eviction.rules import BURST, QPS
from sidecar.kube.api import ATTACHMENTS, BUDGETS, CLAIMS, MERGE_PATCH, NODES, PODS, VOLUMES
from sidecar.kube.client import KubeClient, open_client
from sidecar.model import names

NODE_COUNT, VOLUME_COUNT, ATTACHMENT_COUNT, BUDGET_COUNT, OURS_COUNT = 500, 2000, 5000, 200, 100
JUDGING: Final = ("--drain-report", "--node-drain-policy=NoSchedule")
EVERYTHING: Final = (
    "--drain-report",
    "--node-drain-policy=Evacuate",
    "--drain-gate-image=guard:none",
    "--drain-autoscaler-annotations",
    "--evacuation-deadline=1h",
)
FROM, TO = "n1", "n2"
FROM_NODE: Final = f"/api/v1/nodes/{FROM}"
EVICTING: Final = "--evacuation-evict"
MOVING: Final = (EVICTING, "--allow-reprovision", "--reprovision-pause=0", "--node-delete-policy=Cleanup")
REPORTS: Final = "/apis/csi-node-sidecar.io/v1alpha1/nodedrainreports"
MOST_MIB, LONGEST = 4.0, 300.0
# Of kubectl drain's time. An evacuation has no limit: it takes one pod at a time and waits for its replica, on purpose.
MOST_BY_MAINTENANCE = 1.15
LIMITS: Final = f"drain decisions need at most {MOST_MIB:g} MiB, and a maintenance {MOST_BY_MAINTENANCE:g} times as long as kubectl drain"
MAINTENANCES: Final = "/apis/csi-node-sidecar.io/v1alpha1/plannedmaintenances"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_runs(parser, default=3)


def run(arguments: argparse.Namespace) -> Iterator[str]:
    yield from _decisions(arguments.runs)
    yield from _emptying(arguments.runs)


# --- decisions --------------------------------------------------------------------------------------------------------


def _decisions(runs: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, a_stage(Path(folder)) as stage:
        _install_reports(stage.plane)
        say("writing the cluster")
        asyncio.run(_fill(stage))
        kinds = {"without": (), "judging": JUDGING, "with the gate and all flags": EVERYTHING, "and moving": (*EVERYTHING, *MOVING)}
        memory = {name: statistics.median(_resident(stage, flags) for _ in range(runs)) for name, flags in kinds.items()}
        seconds = statistics.median(_explained(stage) for _ in range(runs))
    print("| | MiB |\n|---|--:|")
    for name, mebibytes in memory.items():
        print(f"| {name} | {mebibytes:.1f} |")
    print(f"\nexplain node, from outside: {seconds:.2f} s of CPU time, start and lists included\n")
    more = memory["and moving"] - memory["without"]
    if more > MOST_MIB:
        yield f"{more:.1f} MiB more, the limit is {MOST_MIB:g}"


def _install_reports(plane: ControlPlane) -> None:
    for component, path in (("drain", REPORTS), ("maintenance", MAINTENANCES)):
        plane.apply((REPOSITORY / f"deploy/components/{component}/crd.yaml").read_text())
        until(partial(plane.serves, path), f"{path} is served")


def _resident(stage: Stage, flags: tuple[str, ...]) -> float:
    def judged() -> None:
        if flags:
            _until_judged(stage.plane, NODE, stage.driver.driver)

    # Upstream's role grants nothing of this, so all run with all rights.
    return stage.at_rest(OURS, *flags, "--kube-api-qps=-1", rights=stage.plane.kubeconfig, awaited=judged)[1].resident


def _until_judged(plane: ControlPlane, node: str, driver: str) -> None:
    report = f"{REPORTS}/{names.drain_report(node, driver)}"
    until(lambda: plane.serves(report) and "status" in plane.request("GET", report), "the node is judged", seconds=60)


def _explained(stage: Stage) -> float:
    words = ["explain", "node", NODE, f"--driver={stage.driver.driver}", "-o", "json", f"--kubeconfig={stage.plane.kubeconfig}"]
    command, before = [sys.executable, "-m", "sidecar", *words, "--kube-api-qps=-1"], os.times()
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    after = os.times()
    (judged,) = json.loads(done.stdout)
    say(f"explained: {judged['verdicts']['retire']['message']}")
    return after.children_user + after.children_system - before.children_user - before.children_system


async def _fill(stage: Stage) -> None:
    async with await open_client(kubeconfig=str(stage.plane.kubeconfig), qps=-1.0, environ={}) as kube:
        nodes = [NODE, *(f"node-{number}" for number in range(1, NODE_COUNT))]
        await in_parallel(nodes, lambda name: _write_node(kube, name, stage.driver.key))
        places = [NODE] * OURS_COUNT + [nodes[1 + number % (NODE_COUNT - 1)] for number in range(VOLUME_COUNT - OURS_COUNT)]
        await in_parallel(enumerate(places), lambda item: _write_volume(kube, *item, stage=stage))
        await in_parallel(range(ATTACHMENT_COUNT), lambda number: kube.create(ATTACHMENTS, _attachment(number, nodes)))
        await in_parallel(range(BUDGET_COUNT), lambda number: kube.create(BUDGETS, _budget(f"data-{number}"), namespace="default"))


def _place(node: str) -> str:
    """The driver's topology is a constant, whatever its node is called."""
    return GoDriver.topology if node == NODE else node


async def _write_node(kube: KubeClient, name: str, key: str) -> None:
    await kube.create(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, key: _place(name)}}})
    await set_status(kube, NODES, name, {"conditions": [{"type": "Ready", "status": "True"}]})


async def _write_volume(kube: KubeClient, number: int, node: str, *, stage: Stage) -> None:
    name, driver = f"data-{number}", stage.driver.driver
    wish = claim(name, "late", annotations={names.STORAGE_PROVISIONER: driver, names.SELECTED_NODE: node})
    wish["spec"]["volumeName"] = f"pvc-{number}"
    made = await kube.create(CLAIMS, wish, namespace="default")
    claimed, at = {"name": name, "uid": made["metadata"]["uid"]}, (stage.driver.key, _place(node))
    await kube.create(VOLUMES, volume(f"pvc-{number}", "late", driver=driver, handle=f"handle-{number}", claimed=claimed, at=at))
    await set_status(kube, VOLUMES, f"pvc-{number}", {"phase": "Bound"})
    if node == NODE:
        await kube.create(PODS, _pod(name), namespace="default")


def _pod(name: str) -> Json:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "db",
        "uid": "5a11de5c-0000-4000-8000-000000000000",
        "controller": True,
    }
    made = pod(name, name, nodeName=NODE)
    made["metadata"] |= {"labels": {"app": name}, "ownerReferences": [owner]}
    return made


def _attachment(number: int, nodes: list[str]) -> Json:
    source = {"persistentVolumeName": f"pvc-{number % VOLUME_COUNT}"}
    spec = {"attacher": "attached.example", "nodeName": nodes[number % len(nodes)], "source": source}
    return {"metadata": {"name": f"attachment-{number}"}, "spec": spec}


def _budget(app: str) -> Json:
    return {"metadata": {"name": app}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}}


# --- emptying ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What runs on the node."""

    name: str
    workloads: int
    pods: int
    budget: bool = False
    apart: bool = False
    """One kubectl drain for each workload, instead of one for the node."""

    @property
    def apps(self) -> list[str]:
        return [f"app-{number}" for number in range(self.workloads)]


def _emptying(runs: int) -> Iterator[str]:
    print("| on the node | emptied by | s | requests per pod |\n|---|---|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, _two_nodes(Path(folder)) as scene:
        for shape, name, empty, most in (
            (Shape("one workload of 50, a budget of one", 1, 50, budget=True), EVICTING, scene.by_us, math.inf),
            (Shape("50 workloads of one pod", 50, 50, apart=True), EVICTING, scene.by_us, math.inf),
            (Shape("40 workloads of one pod", 40, 40), "a PlannedMaintenance", scene.by_maintenance, MOST_BY_MAINTENANCE),
        ):
            turns = [(scene.turn(shape, empty), scene.turn(shape, scene.by_kubectl)) for _ in range(runs)]
            seconds, requests = ([statistics.median(turn[who][what] for turn in turns) for who in (0, 1)] for what in (0, 1))
            for who, emptied_by in enumerate((name, "kubectl drain")):
                print(f"| {shape.name} | {emptied_by} | {seconds[who]:.1f} | {requests[who]:.1f} |")
            if seconds[0] > most * seconds[1]:
                yield f"{shape.name}: {name} takes {seconds[0] / seconds[1]:.2f} times as long as kubectl drain, the limit is {most:g}"


@contextmanager
def _two_nodes(work: Path) -> Iterator[Scene]:
    with a_ground(work, "kwok", components=ALL_COMPONENTS) as ground, OurDriver(work, node=FROM) as driver:
        plane = ground.plane
        _install_reports(plane)
        for node in (FROM, TO):
            plane.add_node(node, {driver.key: node})
            plane.add_csinode(node, driver.driver, node, [driver.key])
        spec = {"volumeLifecycleModes": ["Persistent", "Ephemeral"], "attachRequired": False}
        plane.request("POST", "/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": driver.driver}, "spec": spec})
        yield Scene(plane, driver, work)


@dataclass(frozen=True)
class Scene:
    plane: ControlPlane
    driver: OurDriver
    work: Path

    def turn(self, shape: Shape, empty: Callable[[Shape], tuple[float, float]]) -> tuple[float, float]:
        """Seconds, and requests for each pod meanwhile."""
        self.plane.kubectl("cordon", TO)
        for app in shape.apps:
            self._make(app, shape.pods // shape.workloads, budget=shape.budget)
        until(lambda: self._ready(FROM) == shape.pods, f"{shape.pods} pods run on {FROM}", seconds=120)
        self.plane.kubectl("uncordon", TO)
        try:
            seconds, requests = empty(shape)
            say(f"{shape.name}: {seconds:.1f} s")
            return seconds, requests / shape.pods
        finally:
            self.plane.kubectl("delete", "deployments,poddisruptionbudgets,plannedmaintenances", "--all", "--wait=true")
            until(lambda: not self._pods(), "all pods are gone", seconds=120)
            self.plane.request("PATCH", FROM_NODE, {"spec": {"taints": None, "unschedulable": None}}, content_type=MERGE_PATCH)
            # So that the next sidecar is waited for until it has looked itself.
            self.plane.kubectl("delete", "nodedrainreports", "--all", "--wait=true")

    def by_us(self, shape: Shape) -> tuple[float, float]:
        begin = partial(self.plane.kubectl, "taint", "node", FROM, "--overwrite", f"{names.EVACUATE_TAINT}=retire:NoSchedule")
        with self._sidecar(EVICTING) as sidecar:
            return self._emptied(shape, sidecar, begin)

    def by_maintenance(self, shape: Shape) -> tuple[float, float]:
        meta = {"apiVersion": "csi-node-sidecar.io/v1alpha1", "kind": "PlannedMaintenance"}
        drain = {"spec": {"stage": "Drain"}}
        begin = partial(self.plane.request, "PATCH", f"{MAINTENANCES}/bench", drain, content_type=MERGE_PATCH)
        with self._sidecar("--maintenance") as sidecar:
            spec = {"nodes": [FROM], "stage": "Cordon", "intent": "reboot"}
            self.plane.request("POST", MAINTENANCES, {**meta, "metadata": {"name": "bench"}, "spec": spec})
            until(lambda: self.plane.request("GET", FROM_NODE)["spec"].get("unschedulable"), f"{FROM} is cordoned", seconds=120)
            return self._emptied(shape, sidecar, begin)

    def _emptied(self, shape: Shape, sidecar: Sidecar, begin: Callable[[], object]) -> tuple[float, float]:
        before, begun = sidecar.metric("csi_node_sidecar_api_requests_total"), time.monotonic()
        begin()
        until(lambda: self._ready(TO) == shape.pods, f"{FROM} is empty", seconds=LONGEST)
        return time.monotonic() - begun, sidecar.metric("csi_node_sidecar_api_requests_total") - before

    @contextmanager
    def _sidecar(self, *flags: str) -> Iterator[Sidecar]:
        args = ("--drain-report", "--node-drain-policy=NoSchedule", "--kube-api-qps=-1", *flags)
        environ = {"NODE_NAME": FROM, "NAMESPACE": "default", "POD_NAME": "sidecar"}
        sidecar = Sidecar(self.work, node=FROM, address=self.driver.socket, kubeconfig=self.plane.kubeconfig, args=args, environ=environ)
        put_into_a_pod(sidecar, self.plane.kubeconfig)
        with sidecar:
            sidecar.until_ready()
            _until_judged(self.plane, FROM, self.driver.driver)
            yield sidecar

    def by_kubectl(self, shape: Shape) -> tuple[float, float]:
        begun = time.monotonic()
        self.plane.kubectl("cordon", FROM)
        drains = []
        for number, selector in enumerate([f"app={app}" for app in shape.apps] if shape.apart else ["app"]):
            time.sleep(max(0.0, begun + (number - BURST + 1) / QPS - time.monotonic()))
            drains.append(self._drain(selector))
        said = "".join(drain.communicate(timeout=LONGEST)[0] for drain in drains)
        until(lambda: self._ready(TO) == shape.pods, "all pods run again", seconds=LONGEST)
        assert all(drain.returncode == 0 for drain in drains), said[-3000:]
        return time.monotonic() - begun, sum("https://" in line for line in said.splitlines())

    def _drain(self, selector: str) -> subprocess.Popen[str]:
        kubectl = [str(self.plane.program("kubectl")), f"--kubeconfig={self.plane.kubeconfig}"]
        words = [*kubectl, "drain", FROM, f"--pod-selector={selector}", "-v=6"]
        environ = {"HOME": str(self.work), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)

    def _make(self, app: str, replicas: int, *, budget: bool) -> None:
        labels = {"app": app}
        pod: Json = {
            "containers": [{"name": "main", "image": "none"}],
            "volumes": [{"name": "scratch", "csi": {"driver": self.driver.driver}}],
            "terminationGracePeriodSeconds": 1,
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
        if budget:
            self.plane.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", _budget(app))
        self.plane.request("POST", "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": app}, "spec": spec})

    def _pods(self) -> list[Json]:
        time.sleep(0.1)
        items: list[Json] = self.plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return items

    def _ready(self, node: str) -> int:
        """Of those on this node; 0 while any other is left elsewhere."""
        pods = self._pods()
        ready = (item for pod in pods for item in pod["status"].get("conditions") or () if item["type"] == "Ready")
        return sum(item["status"] == "True" for item in ready) if all(pod["spec"].get("nodeName") == node for pod in pods) else 0
