"""`hack/bench emptying`: a node with 50 pods is emptied, by its sidecar with --evacuation-evict and by kubectl drain, in turn.

Each pod has an ephemeral volume of the driver, and is made again on another node while others are evicted. Two ways in which both may take
pods equally fast: one workload of 50 replicas whose budget lets one be away at a time, while nothing else limits the rate of either; and 50
workloads of one pod, without a budget, where one kubectl drain for each pod is begun at the rate at which the sidecar evicts, one a second
after a burst of five.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.benchmarks.drain import EVERYTHING
from hack.benchmarks.pod import compile_bytecode, put_into_a_pod
from hack.benchmarks.process_cost import cost_of
from hack.benchmarks.stage import count, wait
from hack.lib.control_plane import ALL_COMPONENTS, REPOSITORY, ControlPlane, binaries, until
from hack.lib.programs import Json, OurDriver, Sidecar
from hack.lib.progress import each, say
from sidecar.eviction.answers import BURST, QPS
from sidecar.model import names

PODS: Final = 50
FROM, TO = "n1", "n2"
OURS, DRAIN = "--evacuation-evict", "kubectl drain"
ALL_OF_IT: Final = (OURS, "--allow-reprovision", "--node-delete-policy=Cleanup")
FLAGS: Final = ("--drain-report", "--node-drain-policy=NoSchedule", "--kube-api-qps=-1")
REPORTS: Final = "/apis/csi-node-sidecar.io/v1alpha1/nodedrainreports"
MOST_TIMES, MOST_MORE_MIB, LONGEST = 1.2, 5.0, 300.0
POLL: Final = 0.1


@dataclass(frozen=True)
class Shape:
    """What runs on the node."""

    name: str
    workloads: int
    budget: bool
    flags: tuple[str, ...] = ()
    """Of the sidecar, so that it may evict as fast as kubectl does."""

    @property
    def apps(self) -> list[str]:
        return [f"app-{number}" for number in range(self.workloads)]


SHAPES: Final = (
    Shape("one workload of 50, a budget of one", 1, True, ("--eviction-qps=50",)),
    Shape("50 workloads of one pod", PODS, False),
)


@dataclass(frozen=True)
class Turn:
    seconds: float
    requests: float
    """For each pod, while it lasts."""


def add_to(commands: Any) -> None:
    parser = commands.add_parser("emptying", help="emptying a node, beside kubectl drain", description=__doc__)
    parser.add_argument("--runs", type=count, default=1, metavar="N", help="measure N times, print the medians (default: %(default)s)")
    parser.add_argument("--gate", action="store_true", help=f"fail above {MOST_TIMES:g} times the time, or {MOST_MORE_MIB:g} MiB more")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    compile_bytecode()
    turns: dict[tuple[Shape, str], list[Turn]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, _ground(Path(folder)) as ground:
        for shape, program in each(
            [(shape, program) for _ in range(arguments.runs) for shape in SHAPES for program in (OURS, DRAIN)], "turns"
        ):
            turn = ground.turn(shape, program)
            say(f"{shape.name}, {program}: {turn.seconds:.1f} s, {turn.requests:.1f} requests for each pod")
            turns.setdefault((shape, program), []).append(turn)
        memory = {flags: ground.resident(*flags) for flags in ((), (OURS,), ALL_OF_IT)}
    print(table(turns))
    print(f"\nMemory at rest with all drain flags that move nothing: {memory[()]:.1f} MiB, with {OURS} too {memory[(OURS,)]:.1f},")
    print(f"with {', '.join(ALL_OF_IT)} {memory[ALL_OF_IT]:.1f}.")
    more = memory[ALL_OF_IT] - memory[()]
    broken = broken_limits(turns, more=more)
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


def broken_limits(turns: Mapping[tuple[Shape, str], list[Turn]], *, more: float) -> list[str]:
    """`more`: MiB."""
    broken = [] if more <= MOST_MORE_MIB else [f"{more:.1f} MiB more, the limit is {MOST_MORE_MIB:g}"]
    for shape in SHAPES:
        ours, drain = (_median(turns[shape, program], lambda turn: turn.seconds) for program in (OURS, DRAIN))
        if ours > MOST_TIMES * drain:
            broken.append(f"{shape.name}: {ours / drain:.2f} times as long as kubectl drain, the limit is {MOST_TIMES:g}")
    return broken


def table(turns: Mapping[tuple[Shape, str], list[Turn]]) -> str:
    """Markdown, one row for each turn."""
    rows = ["| on the node | emptied by | s | requests per pod |", "|---|---|--:|--:|"]
    for (shape, program), group in turns.items():
        seconds, requests = _median(group, lambda turn: turn.seconds), _median(group, lambda turn: turn.requests)
        rows.append(f"| {shape.name} | {program} | {seconds:.1f} | {requests:.1f} |")
    return "\n".join(rows)


def _median(turns: Iterable[Turn], what: Callable[[Turn], float]) -> float:
    return statistics.median(map(what, turns))


# --- measuring --------------------------------------------------------------------------------------------------------


@contextmanager
def _ground(work: Path) -> Iterator[Ground]:
    bin_dir = binaries("core", "kwok")
    with ControlPlane(bin_dir, work / "plane", components=ALL_COMPONENTS) as plane, OurDriver(work, node=FROM) as driver:
        plane.apply((REPOSITORY / "deploy/components/drain/crd.yaml").read_text())
        until(lambda: plane.serves(REPORTS), "the reports are served")
        for node in (FROM, TO):
            plane.add_node(node, {driver.key: node})
            told = [{"name": driver.driver, "nodeID": node, "topologyKeys": [driver.key]}]
            csi_node = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": told}}
            plane.request("POST", "/apis/storage.k8s.io/v1/csinodes", csi_node)
        spec = {"volumeLifecycleModes": ["Persistent", "Ephemeral"], "attachRequired": False}
        plane.request("POST", "/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": driver.driver}, "spec": spec})
        yield Ground(plane, driver, bin_dir, work)


@dataclass(frozen=True)
class Ground:
    plane: ControlPlane
    driver: OurDriver
    bin_dir: Path
    work: Path

    def turn(self, shape: Shape, program: str) -> Turn:
        self._cordon(TO, True)
        for app in shape.apps:
            self._make(app, PODS // shape.workloads, budget=shape.budget)
        until(lambda: self._ready(FROM) == PODS, f"{PODS} pods run on {FROM}", seconds=120)
        self._cordon(TO, False)
        try:
            return self._emptied_by_us(shape) if program == OURS else self._drained(shape)
        finally:
            self.plane.kubectl("delete", "deployments,poddisruptionbudgets", "--all", "--wait=true")
            until(lambda: not self._pods(), "all pods are gone", seconds=120)
            self._taint(False)
            self._cordon(FROM, False)
            # So that the next sidecar is waited for until it has looked itself.
            self.plane.kubectl("delete", "nodedrainreports", "--all", "--wait=true")

    def _emptied_by_us(self, shape: Shape) -> Turn:
        with self._sidecar(OURS, *shape.flags) as sidecar:
            self._until_judged(sidecar)
            before, begun = sidecar.metric("csi_node_sidecar_api_requests_total"), time.monotonic()
            self._taint(True)
            try:
                until(lambda: self._ready(TO) == PODS, f"{FROM} is empty", seconds=LONGEST)
            except TimeoutError as error:
                raise TimeoutError(f"{error}; the sidecar said:\n{sidecar.output()[-3000:]}") from None
            taken = time.monotonic() - begun
            return Turn(taken, (sidecar.metric("csi_node_sidecar_api_requests_total") - before) / PODS)

    def _drained(self, shape: Shape) -> Turn:
        begun = time.monotonic()
        self._cordon(FROM, True)
        selected = ["app"] if shape.budget else [f"app={app}" for app in shape.apps]
        drains = []
        for number, selector in enumerate(selected):
            time.sleep(max(0.0, begun + (number - BURST + 1) / QPS - time.monotonic()))
            drains.append(self._drain(selector))
        said = "".join(drain.communicate(timeout=LONGEST)[0] for drain in drains)
        until(lambda: self._ready(TO) == PODS, "all pods run again", seconds=LONGEST)
        taken = time.monotonic() - begun
        assert all(drain.returncode == 0 for drain in drains), said[-3000:]
        return Turn(taken, sum("https://" in line for line in said.splitlines()) / PODS)

    def _drain(self, selector: str) -> subprocess.Popen[str]:
        words = [str(self.bin_dir / "kubectl"), f"--kubeconfig={self.plane.kubeconfig}", "drain", FROM, f"--pod-selector={selector}"]
        environ = {"HOME": str(self.work), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen([*words, "-v=6"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)

    def resident(self, *flags: str) -> float:
        """After a node was looked at for a while, in MiB."""
        with self._sidecar(*EVERYTHING, *flags) as sidecar:
            self._until_judged(sidecar)
            time.sleep(5.0)
            return cost_of(sidecar.child.pid).resident

    # --- the cluster --------------------------------------------------------------------------------------------------

    def _sidecar(self, *flags: str) -> Sidecar:
        args, environ = (*FLAGS, *flags), {"NODE_NAME": FROM, "NAMESPACE": "default"}
        sidecar = Sidecar(self.work, node=FROM, address=self.driver.socket, kubeconfig=self.plane.kubeconfig, args=args, environ=environ)
        put_into_a_pod(sidecar, self.plane.kubeconfig)
        return sidecar

    def _until_judged(self, sidecar: Sidecar) -> None:
        wait(sidecar.ready, sidecar, "has not listed everything")
        report = f"{REPORTS}/{names.drain_report(FROM, self.driver.driver)}"
        until(lambda: self.plane.serves(report) and "status" in self.plane.request("GET", report), "the node is judged", seconds=60)

    def _make(self, app: str, replicas: int, *, budget: bool) -> None:
        labels = {"app": app}
        pod: Json = {
            "containers": [{"name": "main", "image": "none"}],
            "volumes": [{"name": "scratch", "csi": {"driver": self.driver.driver}}],
            "terminationGracePeriodSeconds": 1,
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
        if budget:
            allowed = {"metadata": {"name": app}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}}
            self.plane.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", allowed)
        self.plane.request("POST", "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": app}, "spec": spec})

    def _pods(self) -> list[Json]:
        time.sleep(POLL)
        items: list[Json] = self.plane.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return items

    def _ready(self, node: str) -> int:
        """Of those on this node; 0 while any other is left elsewhere."""
        pods = self._pods()
        ready = (item for pod in pods for item in pod["status"].get("conditions") or () if item["type"] == "Ready")
        return sum(item["status"] == "True" for item in ready) if all(pod["spec"].get("nodeName") == node for pod in pods) else 0

    def _cordon(self, node: str, on: bool) -> None:
        self.plane.kubectl("cordon" if on else "uncordon", node)

    def _taint(self, on: bool) -> None:
        taint = f"{names.EVACUATE_TAINT}=retire:NoSchedule"
        if on:
            self.plane.kubectl("taint", "node", FROM, "--overwrite", taint)
        elif any(
            item["key"] == names.EVACUATE_TAINT for item in self.plane.request("GET", f"/api/v1/nodes/{FROM}")["spec"].get("taints", ())
        ):
            self.plane.kubectl("taint", "node", FROM, f"{taint}-")
