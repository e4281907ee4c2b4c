"""`hack/bench memory`: what an instance costs that has nothing to do, on an empty cluster and on a full one.

Every node runs one, and none can ask the API server for its own claims alone: this is the price of a node, times all nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.memory import load
from hack.benchmarks.pod import compile_bytecode, put_into_a_pod
from hack.benchmarks.process_cost import Cost, cost_of
from hack.benchmarks.stage import OURS, PEER, Stage, a_stage, count, is_synced, new_file, not_negative, wait
from hack.benchmarks.stalls import RULE, Lives
from hack.lib.progress import each, say

EMPTY, FULL = "empty", "full"


@dataclass(frozen=True)
class Limit:
    """MiB and seconds."""

    resident: float
    synced: float


# What an instance may cost; imports alone are 55 MiB.
LIMITS = {EMPTY: Limit(resident=66.0, synced=1.5), FULL: Limit(resident=80.0, synced=4.0)}


@dataclass(frozen=True)
class Measurement:
    program: str
    cluster: str
    synced: float
    """Seconds from the start of the process until it has listed everything once; ours is ready then."""
    cost: Cost


def add_to(commands: Any) -> None:
    parser = commands.add_parser("memory", help="resident memory and start-up, beside csi-provisioner", description=__doc__)
    parser.add_argument("--objects", type=count, default=10_000, metavar="N", help="claims, and as many volumes (default: %(default)s)")
    parser.add_argument("--runs", type=count, default=1, metavar="N", help="measure N times, print the medians (default: %(default)s)")
    parser.add_argument("--settle", type=not_negative, default=5.0, metavar="SECONDS", help="rest before looking (default: %(default)s)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every single measurement here")
    parser.add_argument("--gate", action="store_true", help=f"fail unless ours needs at most {_limits()}, and stalls {RULE}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    lives = Lives()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, a_stage(Path(folder), say=say) as stage:
        compile_bytecode()
        measurements = measure_all(stage, objects=arguments.objects, runs=arguments.runs, settle=arguments.settle, lives=lives)
        sizes = asyncio.run(load.mean_sizes(stage.plane.kubeconfig))
        versions = stage.versions()
    print(table(measurements))
    print()
    print(footnotes(arguments.objects, arguments.runs, arguments.settle, sizes, versions))
    print(lives.told())
    if arguments.json:
        arguments.json.write_text(as_json(measurements, arguments, sizes, versions))
    broken = broken_limits(measurements) + lives.broken()
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


# --- measuring --------------------------------------------------------------------------------------------------------


def measure_all(stage: Stage, *, objects: int, runs: int, settle: float, lives: Lives) -> list[Measurement]:
    """The two take turns, so that a machine that gets slower does so for both."""
    measurements: list[Measurement] = []
    for cluster, number, program in each(list(itertools.product((EMPTY, FULL), range(1, runs + 1), (OURS, PEER))), "runs"):
        if cluster == FULL and not any(item.cluster == FULL for item in measurements):
            fill(stage, objects)
        say(f"{program} on the {cluster} cluster, run {number} of {runs}")
        measurements.append(measure(stage, program, cluster, settle=settle, lives=lives))
    return measurements


def fill(stage: Stage, objects: int) -> None:
    say(f"writing {objects} claims and {objects} volumes")
    started = time.monotonic()
    driver = stage.driver
    asyncio.run(load.fill(stage.plane.kubeconfig, count=objects, driver=driver.driver, topology_key=driver.key, say=say))
    say(f"written in {time.monotonic() - started:.0f} s")


def measure(stage: Stage, program: str, cluster: str, *, settle: float, lives: Lives) -> Measurement:
    stage.forget_capacity()
    process = stage.ours() if program == OURS else stage.peer()
    put_into_a_pod(process, stage.role)
    process.log.unlink(missing_ok=True)
    started = time.monotonic()
    with process:
        wait(lambda: is_synced(process), process, "has not listed everything")
        synced = time.monotonic() - started
        wait(stage.has_capacity, process, "has not published its capacity")
        time.sleep(settle)
        lives.note(process)
        return Measurement(program, cluster, synced, cost_of(process.child.pid))


# --- what is said about it --------------------------------------------------------------------------------------------


def table(measurements: Iterable[Measurement]) -> str:
    """Markdown, one row for each program on each cluster."""
    rows = [
        "| program | cluster | resident MiB | peak MiB | synced after s | CPU s |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for (program, cluster), group in _grouped(measurements).items():
        cells = [
            _median([item.cost.resident for item in group], 1),
            _median([item.cost.peak for item in group], 1),
            _median([item.synced for item in group], 2),
            _median([item.cost.cpu for item in group], 2),
        ]
        rows.append(f"| {program} | {cluster} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def footnotes(objects: int, runs: int, settle: float, sizes: dict[str, int], versions: dict[str, str]) -> str:
    counted = ", ".join(f"a {kind} has {size} bytes on average" for kind, size in sizes.items())
    return "\n".join(
        [
            f"Full: {objects} claims and {objects} volumes, half of another driver, half of this driver on other nodes; {counted}.",
            f"{'One run' if runs == 1 else f'Medians of {runs} runs'} on {os.cpu_count()} CPUs shared with etcd and kube-apiserver; "
            "synced is 200 from /readyz for ours, the last complete cache in its log for the peer; "
            f"memory and CPU time are taken {settle:g} s after the first capacity object.",
            "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        ]
    )


def as_json(measurements: Iterable[Measurement], arguments: argparse.Namespace, sizes: dict[str, int], versions: dict[str, str]) -> str:
    content = {
        "objects": arguments.objects,
        "settle_seconds": arguments.settle,
        "mean_bytes": sizes,
        "versions": versions,
        "measurements": [asdict(item) for item in measurements],
    }
    return json.dumps(content, indent=1) + "\n"


def broken_limits(measurements: Iterable[Measurement]) -> list[str]:
    """Memory must hold in each run. Time is judged by the median: one slow start says more about the machine."""
    broken = []
    for (program, cluster), group in _grouped(measurements).items():
        if program != OURS:
            continue
        limit = LIMITS[cluster]
        resident = max(item.cost.resident for item in group)
        synced = statistics.median(item.synced for item in group)
        if resident > limit.resident:
            broken.append(f"{resident:.1f} MiB resident on the {cluster} cluster, the limit is {limit.resident:g}")
        if synced > limit.synced:
            broken.append(f"synced after {synced:.2f} s on the {cluster} cluster, the limit is {limit.synced:g}")
    return broken


def _limits() -> str:
    return " and ".join(f"{limit.resident:g} MiB and {limit.synced:g} s on the {cluster} cluster" for cluster, limit in LIMITS.items())


def _grouped(measurements: Iterable[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for item in measurements:
        groups.setdefault((item.program, item.cluster), []).append(item)
    return groups


def _median(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f}"
