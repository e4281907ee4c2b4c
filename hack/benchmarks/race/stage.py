"""A cluster for one turn of the race: servers with the volume controller, nodes whose drivers answer, and one program on all of them.

Each turn gets servers of its own, so that no program meets what another one has left.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hack.benchmarks.policy import install_policy
from hack.benchmarks.process_cost import cpu_seconds
from hack.benchmarks.race import drivers
from hack.benchmarks.race.drivers import DRIVER, TOPOLOGY_KEY, calls_of, node_name, socket_of
from hack.benchmarks.race.served import Served, served
from hack.benchmarks.stage import PEER, SERVICE_ACCOUNT
from hack.lib.control_plane import REPOSITORY, ControlPlane, ControlPlaneError
from hack.lib.programs import IMMEDIATE, LATE, Json, Process, Sidecar, all_of, connects, storage_class

MAIN, FILL, LATER = "main", "fill", "later"
"""Classes, and the pools they take their space from; the third binds late, and shares the first one's pool."""
MAIN_SIZE = "100Ti"
USER = f"system:serviceaccount:default:{SERVICE_ACCOUNT}"
# Who asked for what and with which answer: the server's own counters do not tell the volume controller's requests from a program's.
AUDIT_POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}
FLAGS = ("--feature-gates=Topology=true", "--kube-api-qps=500", "--kube-api-burst=1000", "-v=2")
SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok")
CENTRAL_CACHES = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
START_LIMIT = 180.0
START_LIMIT_EACH = 3.0
"""More, for each instance: they start at the same time."""
_PATIENT = 180.0
RANKED = ("--node-deployment-placement=ranked",)


@dataclass(frozen=True)
class Program:
    """One row of the table for each number of nodes."""

    name: str
    flags: tuple[str, ...]
    ours: bool = False
    central: bool = False
    """One process serves the cluster, beside the driver of the first node."""
    ranked: bool = False
    labelled: bool = False
    """It hears of claims by the label that an admission policy keeps."""


def programs(base_delay: str) -> tuple[Program, ...]:
    """`base_delay` as the flag takes it; empty for the default of both."""
    delay = (f"--node-deployment-base-delay={base_delay}",) if base_delay else ()
    distributed = ("--node-deployment", *delay)
    return (
        Program("ours-ranked", (*distributed, *RANKED), ours=True, ranked=True),
        Program("ours-labelled", (*distributed, *RANKED, "--watch-scope=labelled"), ours=True, ranked=True, labelled=True),
        Program("ours-random", (*distributed, "--node-deployment-placement=random"), ours=True),
        Program("peer", distributed),
        Program("peer-central", ("--immediate-topology",), central=True),
    )


@dataclass(frozen=True)
class Setting:
    """What is the same for every turn."""

    bin_dir: Path
    fill: int
    """Volumes of 1 GiB that a node's pool for filling holds."""
    latency: float
    """Seconds a driver takes to create a volume."""
    kwok: bool = False
    """It keeps the nodes alive, as kubelets would; else they are objects that nobody looks after."""
    flags: tuple[str, ...] = FLAGS


@dataclass(frozen=True)
class Scene:
    """Everything that runs in one turn."""

    plane: ControlPlane
    instances: Sequence[Process]
    servers: Mapping[str, int]
    """Process ids by program."""
    driver: Process
    audit: Path
    calls: Path
    gone: list[float] = field(default_factory=list)
    """CPU seconds of instances that have been replaced."""

    def cpu(self) -> dict[str, float]:
        """Seconds so far, by part; the instances together."""
        seconds = {name: cpu_seconds(pid) for name, pid in self.servers.items()}
        seconds["driver"] = cpu_seconds(self.driver.child.pid)
        seconds["instances"] = sum(self.gone) + sum(cpu_seconds(item.child.pid) for item in self.instances)
        return seconds

    def check(self) -> None:
        """A program that has died would look as if it cost nothing."""
        for process in (*self.instances, self.driver):
            if process.child.poll() is not None:
                raise _failed(process, f"ended with {process.child.returncode}")

    def served(self) -> Served:
        """After a burst the API server may be too busy to shake hands for a while."""
        until = time.monotonic() + _PATIENT
        while True:
            try:
                return served(self.plane.kubectl("get", "--raw", "/metrics"))
            except ControlPlaneError:
                if time.monotonic() >= until:
                    raise
                time.sleep(1.0)


@contextmanager
def a_scene(setting: Setting, program: Program, nodes: int, work: Path) -> Iterator[Scene]:
    """All caches are filled, and all contenders known to all, when this begins."""
    audit = work / "audit.log"
    with _a_plane(setting, work, audit) as plane:
        servers = _servers()
        role = _populate(plane, nodes, managed=setting.kwok)
        if program.labelled:
            install_policy(plane, class_name=LATER)
        driver = _drivers(setting, nodes, work)
        hosts = [node_name(1)] if program.central else [node_name(number) for number in range(1, nodes + 1)]
        instances = [_instance(setting, program, node=node, role=role, work=work) for node in hosts]
        with all_of([driver]):
            _wait(lambda: all(connects(socket_of(work, node)) for node in hosts), [driver], "does not serve")
            with all_of(instances):
                limit = START_LIMIT + START_LIMIT_EACH * len(instances)
                for instance in instances:
                    _wait(lambda: _is_ready(instance, program, nodes), [instance], "is not ready", limit=limit)  # noqa: B023 - called before the next one
                yield Scene(plane, instances, servers, driver, audit, calls_of(work))


def _a_plane(setting: Setting, work: Path, audit: Path) -> ControlPlane:
    policy = audit.with_suffix(".policy")
    policy.write_text(json.dumps(AUDIT_POLICY))
    extra_args = {
        "apiserver": [f"--audit-policy-file={policy}", f"--audit-log-path={audit}", "--audit-log-maxsize=10000"],
        # The default. The tests' second would have it look at every claim each second.
        "controller-manager": ["--pvclaimbinder-sync-period=15s"],
    }
    components = ("etcd", "apiserver", "controller-manager", *(("kwok",) if setting.kwok else ()))
    return ControlPlane(setting.bin_dir, work / "plane", components=components, extra_args=extra_args)


def _populate(plane: ControlPlane, nodes: int, *, managed: bool) -> Path:
    """Rights, nodes and classes; the answer is the kubeconfig of the programs."""
    plane.apply((REPOSITORY / "tests" / "e2e" / "upstream-role.yaml").read_text())
    for number in range(1, nodes + 1):
        name = node_name(number)
        plane.add_node(name, {TOPOLOGY_KEY: name}, managed=managed)
        plane.add_csinode(name, DRIVER, name, [TOPOLOGY_KEY])
    for name, binding, pool in ((MAIN, IMMEDIATE, MAIN), (FILL, IMMEDIATE, FILL), (LATER, LATE, MAIN)):
        plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class(name, DRIVER, binding, pool=pool))
    return plane.kubeconfig_for(namespace="default", service_account=SERVICE_ACCOUNT)


def _drivers(setting: Setting, nodes: int, work: Path) -> Process:
    command = [
        *(sys.executable, "-m", drivers.__name__, f"--folder={work}", f"--nodes={nodes}"),
        *(f"--pool={MAIN}={MAIN_SIZE}", f"--pool={FILL}={setting.fill}Gi", f"--fault=CreateVolume:hang={setting.latency}"),
    ]
    return _dying_with_us(Process("drivers", command, work, environ={"PYTHONPATH": str(REPOSITORY)}))


def _instance(setting: Setting, program: Program, *, node: str, role: Path, work: Path) -> Process:
    environ = {"NODE_NAME": node, "NAMESPACE": "default"}
    flags, socket = (*setting.flags, *program.flags), socket_of(work, node)
    if program.ours:
        return _dying_with_us(Sidecar(work, node=node, address=socket, kubeconfig=role, args=flags, environ=environ))
    places = (f"--csi-address={socket}", f"--kubeconfig={role}", "--http-endpoint=127.0.0.1:0")
    return _dying_with_us(Process(f"peer-{node}", [str(setting.bin_dir / PEER), *places, *flags], work, environ=environ))


def _dying_with_us(process: Process) -> Process:
    """Where the system has a command for it: a hundred processes without a cluster are a nuisance, should we be killed."""
    if setpriv := shutil.which("setpriv"):
        process.command[:0] = [setpriv, "--pdeathsig", "KILL"]
    return process


def _is_ready(instance: Process, program: Program, nodes: int) -> bool:
    log = instance.output()
    return is_synced(instance, log) and (not program.ranked or _knows_contenders(log, nodes))


def is_synced(instance: Process, log: str) -> bool:
    """Everything it watches has been listed once. `log` is what this life of it has written."""
    if isinstance(instance, Sidecar):
        return instance.ready()
    complete = [line for line in log.splitlines() if "Caches populated" in line]
    return all(any(f'type="*v1.{kind}"' in line for line in complete) for kind in CENTRAL_CACHES)


def _knows_contenders(log: str, nodes: int) -> bool:
    return any("Contenders for claims that bind immediately" in line and line.endswith(f"nodes={nodes}") for line in log.splitlines())


def _wait(condition: Callable[[], bool], processes: Iterable[Process], complaint: str, *, limit: float = START_LIMIT) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        for process in processes:
            if process.child.poll() is not None or time.monotonic() > deadline:
                raise _failed(process, complaint)
        time.sleep(0.1)


def _failed(process: Process, complaint: str) -> SystemExit:
    return SystemExit(f"hack/bench: {process.name} {complaint}; the end of its log:\n{process.output()[-4000:]}")


def _servers() -> dict[str, int]:
    """Our children by name, of those that are servers."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            program = Path((folder / "cmdline").read_bytes().split(b"\0")[0].decode()).name
        except (OSError, ValueError, IndexError):
            continue
        if parent == os.getpid() and program in SERVERS:
            found[program] = int(folder.name)
    return found
