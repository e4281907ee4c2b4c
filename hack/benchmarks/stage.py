"""Where both programs are measured: one control plane, one CSI driver that both talk to, and the same flags for both."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hack.benchmarks.pod import compile_bytecode, put_into_a_pod
from hack.lib.command import above_zero, say
from hack.lib.control_plane import ControlPlane, binaries
from hack.lib.processes import Cost
from hack.lib.programs import LATE, PEER, GoDriver, Json, Peer, Sidecar, provisioner, storage_class
from sidecar.kube.api import MERGE_PATCH, Resource
from sidecar.kube.client import KubeClient

NODE = "bench-node"
CLASS = "late"
CAPACITIES = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
# As drivers deploy them on nodes. -v=2 is also the least at which the peer says that a cache is complete.
FLAGS = ("--node-deployment", "--enable-capacity", "--capacity-ownerref-level=-1", "--feature-gates=Topology=true", "-v=2")
SETTLE = 5.0
ENVIRONMENT = {"NODE_NAME": NODE, "NAMESPACE": "default"}

WRITES_AT_ONCE = 48
# What the programs ask for, and when: others' requests are none of their business.
AUDIT_POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": ["system:serviceaccount:default:csi-provisioner"]}, {"level": "None"}],
}


@dataclass(frozen=True)
class Ground:
    """What outlives a driver: the control plane, and the rights both programs have there."""

    plane: ControlPlane
    role: Path
    """A kubeconfig with the rights of upstream's sample role."""
    bin_dir: Path


@dataclass(frozen=True)
class Stage(Ground):
    driver: GoDriver
    work: Path

    def program(self, name: str, *flags: str, rights: Path | None = None) -> Sidecar | Peer:
        """As a pod starts it. `rights`: others than those of upstream's role."""
        where: Json = {"node": NODE, "address": self.driver.socket, "kubeconfig": rights or self.role, "environ": ENVIRONMENT}
        process = provisioner(name, self.work, bin_dir=self.bin_dir, args=(*FLAGS, *flags), **where)
        put_into_a_pod(process, rights or self.role)
        process.log.unlink(missing_ok=True)
        return process

    def at_rest(self, name: str, *flags: str, rights: Path | None = None, awaited: Callable[[], None] = lambda: None) -> tuple[float, Cost]:
        """Seconds from its start until it has listed everything once (ours is ready then), and what it costs when it has settled."""
        self.forget_capacity()
        process, started = self.program(name, *flags, rights=rights), time.monotonic()
        with process:
            process.until(process.ready, "it has listed everything")
            synced = time.monotonic() - started
            process.until(self.has_capacity, "it has published its capacity")
            awaited()
            time.sleep(SETTLE)
            return synced, process.cost()

    def has_capacity(self) -> bool:
        """The proof that a program works, not only runs."""
        return bool(self.plane.request("GET", CAPACITIES)["items"])

    def forget_capacity(self) -> None:
        """The objects outlive the program that made them, and the next one would adopt them."""
        self.plane.request("DELETE", CAPACITIES)


def add_runs(parser: argparse.ArgumentParser, default: int = 1) -> None:
    text = "measure N times, print the medians (default: %(default)s)"
    parser.add_argument("--runs", type=above_zero, default=default, metavar="N", help=text)


@contextmanager
def a_ground(
    work: Path, *parts: str, components: Sequence[str] = (), extra_args: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[Ground]:
    """`parts` are built besides the servers and the peer, `components` started besides etcd and the API server."""
    bin_dir = binaries("core", PEER, *parts)
    with ControlPlane(bin_dir, work / "plane", components=components, extra_args=extra_args) as plane:
        compile_bytecode()
        yield Ground(plane, plane.upstream_role(), bin_dir)


@contextmanager
def a_stage(work: Path, **how: Any) -> Iterator[Stage]:
    """Everything is started, nothing of what is to be measured."""
    say("starting etcd, kube-apiserver and the CSI driver")
    with a_ground(work, "mock-driver", **how) as ground, GoDriver(work, node=NODE, binary=ground.bin_dir / "mock-driver") as driver:
        ground.plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class(CLASS, driver.driver, LATE))
        yield Stage(ground.plane, ground.role, ground.bin_dir, driver, work)


async def set_status(kube: KubeClient, resource: Resource, name: str, status: Json, *, namespace: str = "") -> None:
    await kube.patch(resource, name, {"status": status}, content_type=MERGE_PATCH, namespace=namespace, subresource="status")


async def in_parallel(items: Iterable[Any], work: Callable[[Any], Awaitable[object]]) -> None:
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITES_AT_ONCE):
            group.create_task(worker())


# --- what it costs the API server -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Audit:
    """The API server's log of what the programs have asked for."""

    file: Path

    def flags(self) -> list[str]:
        policy = self.file.with_suffix(".policy")
        policy.write_text(json.dumps(AUDIT_POLICY))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.file}", "--audit-log-maxsize=10000"]

    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def since(self, already: int) -> list[Json]:
        """All but watches, after so many bytes."""
        if not self.file.exists():
            return []
        with self.file.open("rb") as file:
            file.seek(already)
            events: list[Json] = [json.loads(line) for line in file]
        return [event for event in events if event["verb"] != "watch" and "objectRef" in event]

    def wait_for_quiet(self, *, quiet: float = 3.0, limit: float = 60.0) -> None:
        """Until nothing has been asked for a while: events come after the volumes that they tell of."""
        end = time.monotonic() + limit
        size, since = -1, time.monotonic()
        while time.monotonic() < min(since + quiet, end):
            if (now := self.size()) != size:
                size, since = now, time.monotonic()
            time.sleep(0.1)


def kind_of(event: Json) -> str:
    """Such as `create persistentvolumes 201`."""
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource", ""))))
    return f"{event['verb']} {resource} {event['responseStatus']['code']}"


def time_of(event: Json) -> float:
    return datetime.fromisoformat(event["stageTimestamp"]).timestamp()
