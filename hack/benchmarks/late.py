"""A thousand late-binding claims for one node at the same moment, and a driver that answers at once.

What is measured is how fast the program itself is, and what each volume costs in requests and CPU time. To create a thousand claims
takes longer than to serve them, so the program is halted meanwhile and finds them all when it goes on. Nobody binds the volumes: the
volume controller takes claims one by one, and with the servers on the same few CPUs it would be what is measured.

With `--live` it is as in a cluster: the claims come one after another while the program works, and the volume controller binds them.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.benchmarks.stage import CLASS, NODE, Audit, Stage, a_stage, add_runs, kind_of, time_of
from hack.lib.command import say
from hack.lib.control_plane import ControlPlane
from hack.lib.programs import OURS, PEER, claim
from sidecar.kube.api import CLAIMS
from sidecar.kube.client import open_client
from sidecar.model import names

CLAIMS_AT_ONCE = 1000
LIMITERS = ("--kube-api-qps=500", "--kube-api-burst=1000")
STORED = "create persistentvolumes 201"
VOLUMES = "/api/v1/persistentvolumes"
REST = 1.0
"""Seconds, in which the servers catch their breath."""
# Of the peer's: volumes a second and CPU time, halted and live.
LEAST_SPEED, LEAST_SPEED_LIVE = 0.9, 1.0
MOST_CPU, MOST_CPU_LIVE = 2.0, 1.2
MOST_REQUESTS = 3.1
"""Per volume, should the peer happen to need less."""
LIMITS = (
    f"ours stores {LEAST_SPEED:g} of the peer's volumes a second for {MOST_CPU:g} times its CPU time (with --live {LEAST_SPEED_LIVE:g} "
    f"and {MOST_CPU_LIVE:g}), and needs no more than the larger of its requests per volume and {MOST_REQUESTS:g}"
)
BINDER = "persistentvolume-binder-controller"
# With the default of a cluster. The tests' second would have it look at every claim each second.
BINDER_FLAGS = (f"--controllers={BINDER},serviceaccount-controller", "--pvclaimbinder-sync-period=15s")


@dataclass(frozen=True)
class Measurement:
    """One turn of one program."""

    speed: float
    """Volumes a second, from the moment it may go on, or else from the first claim, to the last PersistentVolume."""
    requests: float
    """For each volume; watches are left out."""
    cpu: float
    """Milliseconds for each volume, until all is quiet."""
    peak: float
    """MiB."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    text = "let the program work while the claims come, and the volume controller bind them"
    parser.add_argument("--live", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> Iterator[str]:
    """The two take turns, so that a machine that gets slower does so for both."""
    groups: dict[str, list[Measurement]] = {OURS: [], PEER: []}
    for number in range(arguments.runs):
        for program, group in groups.items():
            say(f"{program}, run {number + 1} of {arguments.runs}")
            with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
                group.append(_turn(program, live=arguments.live, work=Path(folder)))
    print("| program | volumes/s | API requests per volume | CPU ms per volume | peak MiB |\n|---|--:|--:|--:|--:|")
    for program, group in groups.items():
        speed, requests, cpu, peak = (_median(group, name) for name in ("speed", "requests", "cpu", "peak"))
        print(f"| {program} | {speed:.0f} | {requests:.2f} | {cpu:.2f} | {peak:.1f} |")
    return _broken(groups, live=arguments.live)


def _broken(groups: Mapping[str, list[Measurement]], *, live: bool) -> Iterator[str]:
    """By the medians: one turn says more about the machine."""
    ours, peer = groups[OURS], groups[PEER]
    least = (LEAST_SPEED_LIVE if live else LEAST_SPEED) * _median(peer, "speed")
    most_requests = max(_median(peer, "requests"), MOST_REQUESTS)
    most_cpu = (MOST_CPU_LIVE if live else MOST_CPU) * _median(peer, "cpu")
    if (speed := _median(ours, "speed")) < least:
        yield f"{speed:.0f} volumes a second, at least {least:.0f} are due"
    if (requests := _median(ours, "requests")) > most_requests:
        yield f"{requests:.2f} requests per volume, the limit is {most_requests:.2f}"
    if (cpu := _median(ours, "cpu")) > most_cpu:
        yield f"{cpu:.2f} ms of CPU per volume, the limit is {most_cpu:.2f}"


def _median(group: Iterable[Measurement], name: str) -> float:
    return float(statistics.median(getattr(item, name) for item in group))


# --- one turn ---------------------------------------------------------------------------------------------------------


def _turn(program: str, *, live: bool, work: Path) -> Measurement:
    """Each has servers of its own, so that no program meets what another one has left."""
    audit = Audit(work / "audit.log")
    components = ("controller-manager",) if live else ()
    extra_args = {"apiserver": audit.flags(), "controller-manager": list(BINDER_FLAGS)}
    with a_stage(work, components=components, extra_args=extra_args) as stage:
        return _measure(stage, audit, program, live=live)


def _measure(stage: Stage, audit: Audit, program: str, *, live: bool) -> Measurement:
    process = stage.program(program, *LIMITERS)
    with process:
        process.until(process.ready, "it has listed everything")
        process.until(stage.has_capacity, "it has published its capacity")
        audit.wait_for_quiet()
        already, before, began = audit.size(), process.cost(), time.time()
        if not live:
            process.signal(signal.SIGSTOP)
        asyncio.run(_ask(stage.plane.kubeconfig, driver=stage.driver.driver))
        if not live:
            time.sleep(REST)
            began = time.time()
            process.signal(signal.SIGCONT)
        process.until(lambda: _stored(stage.plane) >= CLAIMS_AT_ONCE, "it has stored all volumes")
        if live:
            process.until(lambda: _all_bound(stage.plane), f"{BINDER} has bound all volumes")
        audit.wait_for_quiet()
        after = process.cost()
    events = audit.since(already)
    seconds = max(time_of(event) for event in events if kind_of(event) == STORED) - began
    kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(map(kind_of, events)).most_common())
    say(f"{program}: {CLAIMS_AT_ONCE / seconds:.0f} volumes/s; {kinds}")
    cpu = 1000 * (after.cpu - before.cpu) / CLAIMS_AT_ONCE
    return Measurement(CLAIMS_AT_ONCE / seconds, len(events) / CLAIMS_AT_ONCE, cpu, after.peak)


async def _ask(kubeconfig: Path, *, driver: str) -> None:
    """Claims as the scheduler and the volume controller leave them."""
    marks = {names.STORAGE_PROVISIONER: driver, names.STORAGE_PROVISIONER_BETA: driver, names.SELECTED_NODE: NODE}
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube, asyncio.TaskGroup() as group:
        for number in range(CLAIMS_AT_ONCE):
            group.create_task(kube.create(CLAIMS, claim(f"bench-{number}", CLASS, annotations=marks), namespace="default"))


def _stored(plane: ControlPlane) -> int:
    """Without reading them all: whoever counts uses the same CPUs."""
    page = plane.request("GET", f"{VOLUMES}?limit=1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)


def _all_bound(plane: ControlPlane) -> bool:
    time.sleep(REST)  # the answer is large, and whoever asks uses the same CPUs
    return all(volume["status"].get("phase") == "Bound" for volume in plane.request("GET", VOLUMES)["items"])
