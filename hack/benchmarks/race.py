"""Who takes a claim that binds immediately, how soon, and how much work is done in vain, when many nodes could.

Instances of ours, ranked and random, and of the peer, one for each node, on servers of their own for each turn. A turn has claims at a
steady rate, then a burst of claims. Work in vain is a write of a claim that another node has taken first (a conflict).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hack.benchmarks.stage import Audit, a_ground, in_parallel, kind_of
from hack.lib.command import above_zero, say
from hack.lib.control_plane import ControlPlane
from hack.lib.programs import IMMEDIATE, OURS, PEER, OurDriver, Peer, Sidecar, all_of, claim, provisioner, storage_class
from sidecar.kube.api import CLAIMS
from sidecar.kube.client import KubeClient, open_client
from sidecar.model import names

CLASS, NAMESPACE, DRIVER = "now", "default", "race.csi-node-sidecar.io"
FLAGS = ("--feature-gates=Topology=true", "--kube-api-qps=500", "--kube-api-burst=1000", "-v=2")
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "ours, ranked": ("--node-deployment", "--node-deployment-placement=ranked"),
    "ours, random": ("--node-deployment", "--node-deployment-placement=random"),
    PEER: ("--node-deployment",),
}
LATENCY = 0.05
"""Seconds that a driver takes to create a volume."""
RATE = 5.0
"""Claims a second, while they come steadily."""
PATIENCE = 60.0
"""A phase ends when no claim was bound for so long."""
CONFLICT, STORED = "update persistentvolumeclaims 409", "create persistentvolumes 201"
# Of the ranked ones: seconds to an owner, conflicts for each claim.
MOST_SECONDS, MOST_CONFLICTS, MOST_CONFLICTS_IN_A_BURST = 0.15, 0.01, 0.05
LIMITS = (
    f"ranked placement takes at most {MOST_SECONDS:g} s to an owner and {MOST_CONFLICTS:g} conflicts per volume "
    f"({MOST_CONFLICTS_IN_A_BURST:g} in a burst), and ours leave no claim open"
)


@dataclass
class Seen:
    """One claim, by the wall clock as the observer was told; infinity: not yet."""

    created: float
    asked: float = float("inf")
    """The volume controller has named the provisioner: from here on the race is open."""
    owned: float = float("inf")
    """The first time a node was selected."""
    bound: float = float("inf")


@dataclass(frozen=True)
class Measurement:
    program: str
    nodes: int
    phase: str
    claims: int
    open: int
    """Claims that were not bound."""
    owner: float
    """Seconds until one was found: the median."""
    speed: float
    """Bound claims a second, from the first one's creation."""
    conflicts: float
    """For each volume, and so `requests`."""
    requests: float
    cpu: float
    """Milliseconds of each instance for each volume."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=above_zero, nargs="+", default=[3, 10], metavar="N", help="each in its turn (default: 3 10)")
    parser.add_argument("--steady", type=above_zero, default=60, metavar="N", help=f"claims, {RATE:g} a second (default: %(default)s)")
    parser.add_argument("--claims", type=above_zero, default=200, metavar="N", help="claims of the burst (default: %(default)s)")


def run(arguments: argparse.Namespace) -> Iterator[str]:
    measurements: list[Measurement] = []
    for nodes, program in itertools.product(arguments.nodes, PROGRAMS):
        say(f"{program} on {nodes} nodes")
        with (
            tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
            _a_scene(Path(folder), program, nodes) as it,
        ):
            measurements.append(it.measure("steady", arguments.steady, rate=RATE))
            measurements.append(it.measure("burst", arguments.claims))
    print("| nodes | program | phase | claims | bound/s | owner s (median) | conflicts per volume | requests per volume |", end="")
    print(" CPU ms of an instance per volume | left open |\n|--:|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for item in measurements:
        print(f"| {item.nodes} | {item.program} | {item.phase} | {item.claims} | {item.speed:.1f} | {item.owner:.2f}", end="")
        print(f" | {item.conflicts:.3f} | {item.requests:.2f} | {item.cpu:.2f} | {item.open} |")
    return _broken(measurements)


def _broken(measurements: Sequence[Measurement]) -> Iterator[str]:
    for item in measurements:
        name = f"{item.program} on {item.nodes} nodes, {item.phase}"
        if item.open and item.program != PEER:
            yield f"{name}: {item.open} claims are left open"
        if item.program != "ours, ranked":
            continue
        most = MOST_CONFLICTS if item.phase == "steady" else MOST_CONFLICTS_IN_A_BURST
        if item.conflicts > most:
            yield f"{name}: {item.conflicts:.3f} conflicts per volume, the limit is {most:g}"
        if item.phase == "steady" and item.owner > MOST_SECONDS:
            yield f"{name}: {item.owner:.2f} s to an owner, the limit is {MOST_SECONDS:g}"


# --- where ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """Servers with the volume controller, and a driver and an instance of the program on each node."""

    plane: ControlPlane
    program: str
    instances: Sequence[Sidecar | Peer]
    audit: Audit

    def measure(self, phase: str, claims: int, *, rate: float | None = None) -> Measurement:
        already, before = self.audit.size(), self._cpu()
        seen = asyncio.run(_play(self.plane.kubeconfig, phase, claims, rate=rate))
        self.audit.wait_for_quiet()
        for instance in self.instances:
            instance.until(instance.ready, f"{instance.name} is ready still")  # one that has ended would look as if it cost nothing
        kinds = [kind_of(event) for event in self.audit.since(already)]
        bound = [item for item in seen.values() if item.bound < float("inf")]
        stored = kinds.count(STORED) or 1
        seconds = max((item.bound for item in bound), default=float("inf")) - min(item.created for item in seen.values())
        return Measurement(
            program=self.program,
            nodes=len(self.instances),
            phase=phase,
            claims=claims,
            open=claims - len(bound),
            owner=statistics.median(item.owned - item.asked for item in bound) if bound else float("inf"),
            speed=len(bound) / seconds,
            conflicts=kinds.count(CONFLICT) / stored,
            requests=len(kinds) / stored,
            cpu=1000 * (self._cpu() - before) / len(self.instances) / stored,
        )

    def _cpu(self) -> float:
        return sum(instance.cost().cpu for instance in self.instances)


@contextmanager
def _a_scene(work: Path, program: str, nodes: int) -> Iterator[Scene]:
    """All caches are filled, and all contenders known to all, when this begins."""
    audit = Audit(work / "audit.log")
    # The default. The tests' second would have the volume controller look at every claim each second.
    extra_args = {"apiserver": audit.flags(), "controller-manager": ["--pvclaimbinder-sync-period=15s"]}
    with a_ground(work, components=("controller-manager",), extra_args=extra_args) as ground:
        drivers = [OurDriver(work, node=f"node-{number}", name=DRIVER, pools={"main": "100Ti"}) for number in range(1, nodes + 1)]
        for driver in drivers:
            driver.misbehave({"method": "CreateVolume", "hang": LATENCY})
            ground.plane.add_node(driver.node, {driver.key: driver.node}, managed=False)
            ground.plane.add_csinode(driver.node, DRIVER, driver.node, [driver.key])
        ground.plane.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class(CLASS, DRIVER, IMMEDIATE, pool="main"))
        instances = [
            provisioner(
                PEER if program == PEER else OURS,
                work,
                bin_dir=ground.bin_dir,
                node=driver.node,
                address=driver.socket,
                kubeconfig=ground.role,
                args=(*FLAGS, *PROGRAMS[program]),
                environ={"NODE_NAME": driver.node, "NAMESPACE": NAMESPACE},
            )
            for driver in drivers
        ]
        with all_of(drivers), all_of(instances):
            for instance in instances:
                instance.until(lambda: _is_ready(instance, program, nodes), f"{instance.name} is ready", seconds=180)  # noqa: B023 - called at once
            yield Scene(ground.plane, program, instances, audit)


def _is_ready(instance: Sidecar | Peer, program: str, nodes: int) -> bool:
    """It has listed everything, and the ranked ones know of all others."""
    contenders = re.search(rf"Contenders for claims that bind immediately.* nodes={nodes}$", instance.output(), re.MULTILINE)
    return instance.ready() and ("ranked" not in program or contenders is not None)


# --- one phase --------------------------------------------------------------------------------------------------------


async def _play(kubeconfig: Path, phase: str, claims: int, *, rate: float | None) -> dict[str, Seen]:
    """Until every claim is bound, or none has been for a while. Without a rate they come as fast as they can be written."""
    seen: dict[str, Seen] = {}
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube:
        page = await kube.list_page(CLAIMS, namespace=NAMESPACE, limit=1)
        watcher = asyncio.create_task(_observe(kube, seen, since=page.resource_version))
        try:
            await _create(kube, seen, phase, claims, rate)
            moved, bound = time.monotonic(), 0
            while bound < claims and time.monotonic() < moved + PATIENCE and not watcher.done():
                await asyncio.sleep(0.1)
                if (now := sum(item.bound < float("inf") for item in seen.values())) > bound:
                    moved, bound = time.monotonic(), now
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
    return seen


async def _create(kube: KubeClient, seen: dict[str, Seen], phase: str, claims: int, rate: float | None) -> None:
    started = time.monotonic()

    async def write(number: int) -> None:
        if rate is not None:
            await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
        name = f"{phase}-{number}"
        seen[name] = Seen(time.time())
        await kube.create(CLAIMS, claim(name, CLASS), namespace=NAMESPACE)

    await in_parallel(range(claims), write)


async def _observe(kube: KubeClient, seen: dict[str, Seen], *, since: str) -> NoReturn:
    """Begun again where it ended: a server that is short of breath ends watches, and nothing may be missed."""
    while True:
        async for event in kube.watch(CLAIMS, namespace=NAMESPACE, resource_version=since):
            since, now, meta = event.resource_version, time.time(), event.object["metadata"]
            item = seen.get(meta.get("name", ""))  # a bookmark has none
            if item is None:
                continue
            notes = meta.get("annotations") or {}
            if names.STORAGE_PROVISIONER in notes:
                item.asked = min(item.asked, now)
            if notes.get(names.SELECTED_NODE):
                item.owned = min(item.owned, now)
            if (event.object.get("status") or {}).get("phase") == "Bound":
                item.bound = min(item.bound, now)
