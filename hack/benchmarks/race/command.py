"""`hack/bench race`: who takes a claim that binds immediately, how soon, and at what price, when many nodes could.

Real instances of ours, random and ranked, and of the peer, one for each node, and the peer once for the whole cluster. Each turn has
three phases: claims at a steady rate, a burst of claims, and a burst that fills all pools to the last byte.

With --impossible instead: claims that can be made, beside some of another tenant that never can.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.benchmarks.race import beside, report
from hack.benchmarks.race.judge import Measurement
from hack.benchmarks.race.load import Phase
from hack.benchmarks.race.stage import FILL, MAIN, Program, Setting, a_scene, programs
from hack.benchmarks.race.turn import a_place, as_json, made, measure_phase
from hack.benchmarks.stage import PEER, count, new_file, new_folder, not_negative, positive, words_of
from hack.benchmarks.stalls import RULE, Lives
from hack.lib.control_plane import binaries
from hack.lib.progress import each, say

QUICK = {"nodes": [3, 10], "steady": 60, "claims": 200, "fill": 5}


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "race",
        help="who takes a claim that binds immediately: latency, throughput, conflicts and cost, beside csi-provisioner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [program.name for program in programs("") if not program.labelled]
    add = parser.add_argument
    add("--nodes", type=_counts, default=[3, 10, 30], metavar="N,N,...", help="nodes of the cluster, each in its turn (default: 3,10,30)")
    add("--only", type=words_of(known), default=known, metavar="NAME,...", help=f"programs (default: {','.join(known)})")
    add("--rate", type=positive, default=5.0, metavar="N", help="claims a second of the steady phase (default: %(default)g)")
    add("--steady", type=count, default=150, metavar="N", help="claims of the steady phase (default: %(default)s)")
    add("--claims", type=count, default=1000, metavar="N", help="claims of the burst (default: %(default)s)")
    add("--fill", type=count, default=10, metavar="N", help="volumes that fill a node; all nodes are filled (default: %(default)s)")
    add("--latency", type=not_negative, default=0.05, metavar="S", help="what a driver takes for CreateVolume (default: %(default)g)")
    add("--base-delay", default="", metavar="DURATION", help="--node-deployment-base-delay for all programs (default: theirs, 20s)")
    add(
        "--patience",
        type=positive,
        default=45.0,
        metavar="S",
        help="a phase ends when no claim was bound for so long (default: %(default)g)",
    )
    add(
        "--impossible",
        type=_counts_or_none,
        default=[],
        metavar="N,N,...",
        help=f"so many claims that fit on no node stand for a minute; then {beside.CLAIMS} that fit come, {beside.RATE:g} a second; "
        "all with the programs' own limits of requests",
    )
    add("--late", action="store_true", help="with --impossible: all claims bind late, and those that cannot be made name a node themselves")
    add("--quick", action="store_true", help="fewer nodes and claims: a few minutes, for a first look")
    add("--json", type=new_file, metavar="FILE", help="write every measurement here, after each turn")
    add(
        "--keep",
        type=new_folder,
        metavar="DIR",
        help="a new folder for all logs, the audit log and the drivers' record among them",
    )
    add("--gate", action="store_true", help=f"fail unless ours keeps its promises, which are checked in any case, and stalls to {RULE}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.quick:
        vars(arguments).update(QUICK)
    started, lives = time.monotonic(), Lives()
    if arguments.impossible:
        return stand_beside(arguments)
    with a_place(arguments.keep) as folder:
        setting = Setting(binaries("core", PEER), arguments.fill, arguments.latency)
        chosen = [program for program in programs(arguments.base_delay) if program.name in arguments.only]
        measurements: list[Measurement] = []
        # Programs take turns on the same number of nodes, so that a machine that gets slower does so for all.
        for nodes, program in each(list(itertools.product(arguments.nodes, chosen)), "nodes measured", weight=lambda turn: turn[0]):
            measurements += measure(setting, program, nodes, arguments, work=made(folder / f"{program.name}-{nodes}"), lives=lives)
            if arguments.json:
                arguments.json.write_text(as_json(measurements, arguments))
    say(f"all turns took {time.monotonic() - started:.0f} s")
    print(report.table(measurements))
    print()
    print(report.footnotes(arguments, measurements, setting))
    print(lives.told())
    broken = report.broken_limits(measurements) + lives.broken()
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


def stand_beside(arguments: argparse.Namespace) -> int:
    rows = []
    with a_place(arguments.keep) as folder:
        setting = Setting(binaries("core", PEER), arguments.fill, arguments.latency, flags=beside.FLAGS)
        chosen = [program for program in programs(arguments.base_delay) if program.name in arguments.only and not program.central]
        turns = list(itertools.product(arguments.nodes, arguments.impossible, chosen))
        for nodes, impossible, program in each(turns, "nodes measured", weight=lambda turn: turn[0]):
            say(f"{program.name} on {nodes} nodes, beside {impossible}: starting")
            work = made(folder / f"{program.name}-{nodes}-{impossible}")
            rows.append(beside.measure(setting, program, nodes, impossible, late=arguments.late, work=work))
            say(beside.line(rows[-1]))
    print(beside.table(rows))
    return 0


def measure(
    setting: Setting, program: Program, nodes: int, arguments: argparse.Namespace, *, work: Path, lives: Lives
) -> Iterator[Measurement]:
    """One turn."""
    say(f"{program.name} on {nodes} nodes: starting")
    with a_scene(setting, program, nodes, work) as scene:
        for phase in phases(program, nodes, arguments):
            measurement = measure_phase(scene, program, nodes, phase, patience=arguments.patience)
            say(report.line(measurement))
            yield measurement
        lives.note(*scene.instances)


def phases(program: Program, nodes: int, arguments: argparse.Namespace) -> list[Phase]:
    steady = Phase("steady", MAIN, arguments.steady, arguments.rate)
    burst = Phase("burst", MAIN, arguments.claims)
    # In the central mode there is one driver, and no space to share out.
    return [steady, burst] if program.central else [steady, burst, Phase("fill", FILL, arguments.fill * nodes)]


def _counts(word: str) -> list[int]:
    return [count(part) for part in word.split(",")]


def _counts_or_none(word: str) -> list[int]:
    return [int(not_negative(part)) for part in word.split(",")]
