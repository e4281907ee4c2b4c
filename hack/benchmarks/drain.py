"""`hack/bench drain`: what drain decisions cost, and how fast a node is emptied beside kubectl drain.

First memory of an instance with and without them, and one look at any node from outside, on a cluster of 500 nodes, 2,000 volumes on them
(100 on ours, with a pod each), 5,000 attachments and 200 disruption budgets.

Then a node with 50 pods is emptied, by its sidecar with --evacuation-evict and by kubectl drain, in turn. Each pod has an ephemeral volume
of the driver, and is made again on another node. Two ways in which both may take pods equally fast: one workload of 50 replicas whose
budget lets one be away at a time; and 50 workloads of one pod, without a budget, where one kubectl drain for each pod is begun at the rate
at which the sidecar evicts.

Last, a node with 40 pods of 40 workloads is drained by a PlannedMaintenance, from the moment its stage becomes Drain, and by one kubectl
drain, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from typing import Any, Final

from hack.benchmarks.pod import put_into_a_pod
from hack.benchmarks.stage import NODE, Ground, Stage, a_ground, a_stage, count, in_parallel, set_status, told
from hack.lib.command import say
from hack.lib.control_plane import ALL_COMPONENTS, REPOSITORY, ControlPlane, until
from hack.lib.programs import OURS, GoDriver, Json, OurDriver, Sidecar, claim
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
POD_COUNT, FROM, TO = 50, "n1", "n2"
EVICTING: Final = "--evacuation-evict"
MOVING: Final = (EVICTING, "--allow-reprovision", "--reprovision-pause=0", "--node-delete-policy=Cleanup")
REPORTS: Final = "/apis/csi-node-sidecar.io/v1alpha1/nodedrainreports"
MOST_MIB, MOST_TIMES, LONGEST = 4.0, 1.2, 300.0
DRAINED_COUNT, MOST_BY_MAINTENANCE = 40, 1.15
MAINTENANCES: Final = "/apis/csi-node-sidecar.io/v1alpha1/plannedmaintenances"


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "drain",
        help="memory and CPU time of drain decisions, and emptying a node beside kubectl drain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=count, default=3, metavar="N", help="measure N times, print the medians (default: %(default)s)")
    parser.add_argument(
        "--gate", action="store_true", help=f"fail above {MOST_MIB:g} MiB more, or {MOST_TIMES:g} times kubectl drain's time"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    return told([*_decisions(arguments.runs), *_emptying(arguments.runs)], arguments)


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
    stage.forget_capacity()
    # Upstream's role grants nothing of this, so all run with all rights.
    process = stage.program(OURS, *flags, "--kube-api-qps=-1", rights=stage.plane.kubeconfig)
    with process:
        process.until(process.ready, "it has listed everything")
        process.until(stage.has_capacity, "it has published its capacity")
        if flags:
            _until_judged(stage.plane, NODE, stage.driver.driver)
        time.sleep(5.0)
        return process.cost().resident


def _until_judged(plane: ControlPlane, node: str, driver: str) -> None:
    report = f"{REPORTS}/{names.drain_report(node, driver)}"
    until(lambda: plane.serves(report) and "status" in plane.request("GET", report), "the node is judged", seconds=60)


def _explained(stage: Stage) -> float:
    program = "import resource, sys\nfrom sidecar.cli import main\ncode = main()\n"
    program += "used = resource.getrusage(resource.RUSAGE_SELF)\nprint(used.ru_utime + used.ru_stime, file=sys.stderr)\nsys.exit(code)"
    words = ["explain", "node", NODE, f"--driver={stage.driver.driver}", "-o", "json", f"--kubeconfig={stage.plane.kubeconfig}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--kube-api-qps=-1"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    (judged,) = json.loads(done.stdout)
    say(f"explained: {judged['verdicts']['retire']['message']}")
    return float(done.stderr.splitlines()[-1])


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
    term = {"matchExpressions": [{"key": stage.driver.key, "operator": "In", "values": [_place(node)]}]}
    volume: Json = {"metadata": {"name": f"pvc-{number}"}}
    volume["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": made["metadata"]["uid"]},
        "csi": {"driver": driver, "volumeHandle": f"handle-{number}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "late",
    }
    await kube.create(VOLUMES, volume)
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
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    spec = {"nodeName": NODE, "containers": [{"name": "db", "image": "db"}], "volumes": mounted}
    return {"metadata": {"name": name, "labels": {"app": name}, "ownerReferences": [owner]}, "spec": spec}


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
    budget: bool
    count: int = POD_COUNT

    @property
    def apps(self) -> list[str]:
        return [f"app-{number}" for number in range(self.workloads)]


SHAPES: Final = (
    Shape("one workload of 50, a budget of one", 1, True),
    Shape("50 workloads of one pod", POD_COUNT, False),
)


def _emptying(runs: int) -> Iterator[str]:
    print("| on the node | emptied by | s | requests per pod |\n|---|---|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, _two_nodes(Path(folder)) as scene:
        for shape in SHAPES:
            turns = [(scene.turn(shape, scene.by_us), scene.turn(shape, scene.by_kubectl)) for _ in range(runs)]
            seconds, requests = ([statistics.median(turn[who][what] for turn in turns) for who in (0, 1)] for what in (0, 1))
            for who, name in enumerate((EVICTING, "kubectl drain")):
                print(f"| {shape.name} | {name} | {seconds[who]:.1f} | {requests[who]:.1f} |")
            if seconds[0] > MOST_TIMES * seconds[1]:
                yield f"{shape.name}: {seconds[0] / seconds[1]:.2f} times as long as kubectl drain, the limit is {MOST_TIMES:g}"

        yield from _maintained(scene, runs)


def _maintained(scene: Scene, runs: int) -> Iterator[str]:
    shape = Shape(f"{DRAINED_COUNT} workloads of one pod", DRAINED_COUNT, False, count=DRAINED_COUNT)
    turns = [(scene.turn(shape, scene.by_maintenance), scene.turn(shape, scene.by_one_kubectl)) for _ in range(runs)]
    seconds, requests = ([statistics.median(turn[who][what] for turn in turns) for who in (0, 1)] for what in (0, 1))
    for who, name in enumerate(("a PlannedMaintenance", "one kubectl drain")):
        print(f"| {shape.name} | {name} | {seconds[who]:.1f} | {requests[who]:.1f} |")
    if seconds[0] > MOST_BY_MAINTENANCE * seconds[1]:
        yield f"{shape.name}: {seconds[0] / seconds[1]:.2f} times as long as kubectl drain, the limit is {MOST_BY_MAINTENANCE:g}"


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
        yield Scene(ground, driver, work)


@dataclass(frozen=True)
class Scene:
    ground: Ground
    driver: OurDriver
    work: Path

    def turn(self, shape: Shape, empty: Callable[[Shape], tuple[float, float]]) -> tuple[float, float]:
        """Seconds, and requests for each pod meanwhile."""
        plane = self.ground.plane
        plane.kubectl("cordon", TO)
        for app in shape.apps:
            self._make(app, shape.count // shape.workloads, budget=shape.budget)
        until(lambda: self._ready(FROM) == shape.count, f"{shape.count} pods run on {FROM}", seconds=120)
        plane.kubectl("uncordon", TO)
        try:
            seconds, requests = empty(shape)
            say(f"{shape.name}: {seconds:.1f} s")
            return seconds, requests / shape.count
        finally:
            plane.kubectl("delete", "deployments,poddisruptionbudgets,plannedmaintenances", "--all", "--wait=true")
            until(lambda: not self._pods(), "all pods are gone", seconds=120)
            plane.request("PATCH", f"/api/v1/nodes/{FROM}", {"spec": {"taints": None, "unschedulable": None}}, content_type=MERGE_PATCH)
            # So that the next sidecar is waited for until it has looked itself.
            plane.kubectl("delete", "nodedrainreports", "--all", "--wait=true")

    def by_us(self, shape: Shape) -> tuple[float, float]:
        with self._sidecar(EVICTING) as sidecar:
            before, begun = sidecar.metric("csi_node_sidecar_api_requests_total"), time.monotonic()
            self.ground.plane.kubectl("taint", "node", FROM, "--overwrite", f"{names.EVACUATE_TAINT}=retire:NoSchedule")
            until(lambda: self._ready(TO) == shape.count, f"{FROM} is empty", seconds=LONGEST)
            return time.monotonic() - begun, sidecar.metric("csi_node_sidecar_api_requests_total") - before

    def by_maintenance(self, shape: Shape) -> tuple[float, float]:
        plane, meta = self.ground.plane, {"apiVersion": "csi-node-sidecar.io/v1alpha1", "kind": "PlannedMaintenance"}
        with self._sidecar("--maintenance") as sidecar:
            spec = {"nodes": [FROM], "stage": "Cordon", "intent": "reboot"}
            plane.request("POST", MAINTENANCES, {**meta, "metadata": {"name": "bench"}, "spec": spec})
            until(lambda: plane.request("GET", f"/api/v1/nodes/{FROM}")["spec"].get("unschedulable"), f"{FROM} is cordoned", seconds=120)
            before, begun = sidecar.metric("csi_node_sidecar_api_requests_total"), time.monotonic()
            plane.request("PATCH", f"{MAINTENANCES}/bench", {"spec": {"stage": "Drain"}}, content_type=MERGE_PATCH)
            until(lambda: self._ready(TO) == shape.count, f"{FROM} is empty", seconds=LONGEST)
            return time.monotonic() - begun, sidecar.metric("csi_node_sidecar_api_requests_total") - before

    @contextmanager
    def _sidecar(self, *flags: str) -> Iterator[Sidecar]:
        plane = self.ground.plane
        args = ("--drain-report", "--node-drain-policy=NoSchedule", "--kube-api-qps=-1", *flags)
        environ = {"NODE_NAME": FROM, "NAMESPACE": "default", "POD_NAME": "sidecar"}
        sidecar = Sidecar(self.work, node=FROM, address=self.driver.socket, kubeconfig=plane.kubeconfig, args=args, environ=environ)
        put_into_a_pod(sidecar, plane.kubeconfig)
        with sidecar:
            sidecar.until_ready()
            _until_judged(plane, FROM, self.driver.driver)
            yield sidecar

    def by_one_kubectl(self, shape: Shape) -> tuple[float, float]:
        return self._drained(shape, ["app"])

    def by_kubectl(self, shape: Shape) -> tuple[float, float]:
        return self._drained(shape, ["app"] if shape.budget else [f"app={app}" for app in shape.apps])

    def _drained(self, shape: Shape, selectors: list[str]) -> tuple[float, float]:
        begun = time.monotonic()
        self.ground.plane.kubectl("cordon", FROM)
        drains = []
        for number, selector in enumerate(selectors):
            time.sleep(max(0.0, begun + (number - BURST + 1) / QPS - time.monotonic()))
            drains.append(self._drain(selector))
        said = "".join(drain.communicate(timeout=LONGEST)[0] for drain in drains)
        until(lambda: self._ready(TO) == shape.count, "all pods run again", seconds=LONGEST)
        assert all(drain.returncode == 0 for drain in drains), said[-3000:]
        return time.monotonic() - begun, sum("https://" in line for line in said.splitlines())

    def _drain(self, selector: str) -> subprocess.Popen[str]:
        kubectl = [str(self.ground.bin_dir / "kubectl"), f"--kubeconfig={self.ground.plane.kubeconfig}"]
        environ = {"HOME": str(self.work), "PATH": "/usr/bin:/bin"}
        words = [*kubectl, "drain", FROM, f"--pod-selector={selector}", "-v=6"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)

    def _make(self, app: str, replicas: int, *, budget: bool) -> None:
        labels = {"app": app}
        pod: Json = {
            "containers": [{"name": "main", "image": "none"}],
            "volumes": [{"name": "scratch", "csi": {"driver": self.driver.driver}}],
            "terminationGracePeriodSeconds": 1,
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
        plane = self.ground.plane
        if budget:
            plane.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", _budget(app))
        plane.request("POST", "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": app}, "spec": spec})

    def _pods(self) -> list[Json]:
        time.sleep(0.1)
        items: list[Json] = self.ground.plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return items

    def _ready(self, node: str) -> int:
        """Of those on this node; 0 while any other is left elsewhere."""
        pods = self._pods()
        ready = (item for pod in pods for item in pod["status"].get("conditions") or () if item["type"] == "Ready")
        return sum(item["status"] == "True" for item in ready) if all(pod["spec"].get("nodeName") == node for pod in pods) else 0
