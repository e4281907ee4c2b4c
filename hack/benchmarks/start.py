"""`hack/bench start`: what a start costs: CPU time from the start of the process until it has listed everything once.

A roll of the DaemonSet costs that once for each node. Measured on an empty cluster and on a full one, with all claims heard and with claims
by label; the programs take turns, so that a machine that gets slower does so for all. With `--against` another checkout of this
repository takes turns too: what a change is worth shows there, and not beside a figure of yesterday.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.memory.command import EMPTY, FULL, fill
from hack.benchmarks.pod import compile_bytecode, put_into_a_pod
from hack.benchmarks.policy import install_policy
from hack.benchmarks.process_cost import cost_of, cpu_so_far
from hack.benchmarks.stage import CLASS, OURS, PEER, Stage, a_stage, count, is_synced, new_file, not_negative, wait
from hack.lib.control_plane import REPOSITORY
from hack.lib.programs import Process, Sidecar
from hack.lib.progress import each, say

ALL, LABELLED = "all", "labelled"
LIMITS = {(EMPTY, ALL): 0.20, (EMPTY, LABELLED): 0.20, (FULL, LABELLED): 0.25}
"""Seconds of CPU time, of the median."""
# As the console script of the image: without the module that finds modules for `python -m`.
_ENTRY = "import sys\nfrom sidecar.cli import main\nsys.exit(main())\n"


@dataclass(frozen=True)
class Program:
    """`home`: the folder of a copy of its source, with bytecode as in the image; None: the peer."""

    name: str
    scope: str
    home: Path | None = None


@dataclass(frozen=True)
class Measurement:
    """One start."""

    program: str
    scope: str
    cluster: str
    cpu: float
    """Seconds, of the process, until everything was listed once."""
    synced: float
    """Seconds of the wall clock until then."""
    resident: float
    """MiB, after a rest."""


def add_to(commands: Any) -> None:
    parser = commands.add_parser("start", help="CPU time of a start, beside csi-provisioner or another checkout", description=__doc__)
    parser.add_argument("--turns", type=count, default=7, metavar="N", help="starts of each program on each cluster (default: %(default)s)")
    parser.add_argument("--objects", type=count, default=10_000, metavar="N", help="claims, and as many volumes (default: %(default)s)")
    parser.add_argument(
        "--settle", type=not_negative, default=0.0, metavar="SECONDS", help="rest before memory is read (default: %(default)s)"
    )
    parser.add_argument("--against", type=checkout, metavar="FOLDER", help="another checkout of this repository, which takes turns too")
    parser.add_argument("--also", action="append", default=[], metavar="FLAG", help="one more flag for ours, e.g. --also=--drain-report")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every single measurement here")
    parser.add_argument("--gate", action="store_true", help=f"fail unless ours takes at most {_limits()}")
    parser.set_defaults(run=run)


def checkout(word: str) -> Path:
    """For argparse."""
    folder = Path(word).absolute()
    if not (folder / "sidecar" / "cli.py").exists():
        raise argparse.ArgumentTypeError(f"{word} is no checkout of this repository")
    return folder


def run(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, a_stage(Path(folder), say=say) as stage:
        install_policy(stage.plane, class_name=CLASS)
        compile_bytecode()
        programs = [*_ours(stage, arguments.against), Program(PEER, ALL)]
        measurements = []
        for cluster, turn in each(list(itertools.product((EMPTY, FULL), range(1, arguments.turns + 1))), "turns"):
            if cluster == FULL and turn == 1:
                fill(stage, arguments.objects)
            say(f"{cluster} cluster, turn {turn} of {arguments.turns}")
            measurements += [measure(stage, program, cluster, settle=arguments.settle, also=arguments.also) for program in programs]
        versions = stage.versions()
    print(table(measurements))
    print(f"\nMedians of {arguments.turns}, and the least and the most; on {os.cpu_count()} CPUs shared with etcd and kube-apiserver.")
    print("Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(item) for item in measurements], indent=1) + "\n")
    broken = broken_limits(measurements)
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


# --- measuring --------------------------------------------------------------------------------------------------------


def _ours(stage: Stage, against: Path | None) -> list[Program]:
    sources = [(OURS, REPOSITORY), *([(f"{OURS}, {against.name}", against)] if against else [])]
    homes = {name: as_in_the_image(source, stage.work / f"home-{number}") for number, (name, source) in enumerate(sources)}
    return [Program(name, scope, home) for scope in (ALL, LABELLED) for name, home in homes.items()]


def as_in_the_image(source: Path, home: Path) -> Path:
    """A copy with bytecode that is trusted unseen."""
    for package in ("sidecar", "csi_proto"):
        shutil.copytree(source / package, home / package, ignore=shutil.ignore_patterns("__pycache__"))
    (home / "entry.py").write_text(_ENTRY)
    compiling = [sys.executable, "-m", "compileall", "-q", "-o", "2", "--invalidation-mode", "unchecked-hash", str(home)]
    subprocess.run(compiling, check=True)
    return home


def measure(stage: Stage, program: Program, cluster: str, *, settle: float, also: Sequence[str]) -> Measurement:
    stage.forget_capacity()
    process = stage.peer() if program.home is None else stage.ours(f"--watch-scope={program.scope}", *also)
    if program.home is not None:
        process.command[1:3] = [str(program.home / "entry.py")]
    put_into_a_pod(process, stage.role)
    process.log.unlink(missing_ok=True)
    started = time.monotonic()
    with process:
        wait(lambda: _says_that_all_is_listed(process), process, "has not listed everything")
        cpu, synced = cpu_so_far(process.child.pid), time.monotonic() - started
        time.sleep(settle)
        return Measurement(program.name, program.scope, cluster, cpu, synced, cost_of(process.child.pid).resident)


def _says_that_all_is_listed(process: Process) -> bool:
    """By its log: to answer probes every few milliseconds would be a part of what is measured."""
    return '"Caches are complete"' in process.output() if isinstance(process, Sidecar) else is_synced(process)


# --- what is said about it --------------------------------------------------------------------------------------------


def table(measurements: Iterable[Measurement]) -> str:
    """Markdown, one row for each program on each cluster."""
    rows = [
        "| cluster | claims heard | program | CPU s | least, most | synced after s | resident MiB |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for (cluster, scope, program), group in _grouped(measurements).items():
        cpu = [item.cpu for item in group]
        cells = [
            f"{statistics.median(cpu):.3f}",
            f"{min(cpu):.3f}, {max(cpu):.3f}",
            f"{statistics.median(item.synced for item in group):.2f}",
            f"{statistics.median(item.resident for item in group):.1f}",
        ]
        rows.append(f"| {cluster} | {scope} | {program} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def broken_limits(measurements: Iterable[Measurement]) -> list[str]:
    broken = []
    for (cluster, scope, program), group in _grouped(measurements).items():
        limit, cpu = LIMITS.get((cluster, scope)), statistics.median(item.cpu for item in group)
        if program == OURS and limit is not None and cpu > limit:
            broken.append(f"{cpu:.3f} s of CPU on the {cluster} cluster, claims heard: {scope}; the limit is {limit:g}")
    return broken


def _limits() -> str:
    return ", ".join(f"{limit:g} s ({cluster} cluster, claims heard: {scope})" for (cluster, scope), limit in LIMITS.items())


def _grouped(measurements: Iterable[Measurement]) -> dict[tuple[str, str, str], list[Measurement]]:
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for item in measurements:
        groups.setdefault((item.cluster, item.scope, item.program), []).append(item)
    return groups
