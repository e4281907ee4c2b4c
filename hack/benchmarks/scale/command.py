"""`hack/bench scale`: a large cluster on one machine: volumes a second, and what each sidecar and the API server pay for them.

A hundred nodes that kwok keeps alive, a driver for each, and on all of them real instances of ours (ranked; ranked with claims watched by
label; random) and of the peer, or the peer once for the whole cluster. Each turn has servers of its own and five phases: claims that bind
immediately at a rate that the machine carries, which is what the time to an owner is taken from; a burst of such claims; a burst of claims
that bind late; rest, in which nothing happens; and a roll, in which all instances are replaced, as by an update of the DaemonSet, while
volumes are there.

Late claims come with their node chosen, and no pods. Both were tried, with 600 claims on 20 nodes: where the real scheduler places pods, a
volume takes twice the CPU time of everything together (86 against 41 ms), and four fifths of what is added are the servers' and the
scheduler's: pods are what would be measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hack.benchmarks.race.drivers import node_name
from hack.benchmarks.race.judge import Measurement
from hack.benchmarks.race.load import Phase
from hack.benchmarks.race.report import line
from hack.benchmarks.race.stage import LATER, MAIN, Program, Scene, Setting, a_scene, programs
from hack.benchmarks.race.turn import a_place, made, measure_phase
from hack.benchmarks.scale import costs, plot, report, upkeep
from hack.benchmarks.scale.files import Earlier, as_json, read_earlier
from hack.benchmarks.scale.upkeep import Upkeep
from hack.benchmarks.stage import PEER, count, new_file, new_folder, not_negative, positive, words_of
from hack.benchmarks.stalls import Lives
from hack.lib.control_plane import binaries
from hack.lib.progress import each, say

PHASES = ("steady", "burst", "late", "rest", "roll")
UPKEEP = {"rest", "roll"}
NOTHING = "none"
ALIKE = ("rate", "latency", "base_delay")
"""What has to be the same for all rows of a table; how many nodes and claims they had, each says itself."""
QUICK = {"nodes": 10, "claims": 200, "steady": 40, "present": 200, "rest": 20.0}

SERVERS_MIB = 3000.0
"""etcd, the API server with its watchers, the controllers, the drivers of all nodes, and room to breathe."""
OURS_MIB, OURS_MIB_PER_CLAIM = 92.0, 0.001
PEER_MIB, PEER_MIB_PER_CLAIM = 62.0, 0.015
"""The peer keeps every claim and volume of the cluster."""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "scale",
        help="a hundred nodes and thousands of claims: volumes a second, cost of each sidecar, load on the API server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [program.name for program in programs("")]
    add = parser.add_argument
    add("--nodes", type=count, default=100, metavar="N", help="nodes, each with an instance (default: %(default)s)")
    add("--claims", type=count, default=3000, metavar="N", help="claims of each burst (default: %(default)s)")
    add("--steady", type=count, default=120, metavar="N", help="claims of the steady phase (default: %(default)s)")
    add("--rate", type=positive, default=2.0, metavar="N", help="claims a second of the steady phase (default: %(default)g)")
    add(
        "--only",
        type=words_of([*known, NOTHING]),
        default=known,
        metavar="NAME,...",
        help=f"programs, each a turn (default: {','.join(known)}); {NOTHING}: only show what is given with --beside",
    )
    add("--phases", type=words_of(PHASES), default=PHASES, metavar="NAME,...", help=f"of each turn (default: {','.join(PHASES)})")
    add("--rest", type=positive, default=60.0, metavar="S", help="how long nothing happens in that phase (default: %(default)g)")
    add(
        "--present",
        type=count,
        default=1000,
        metavar="N",
        help="volumes that are there when rest or roll begins: what the phases before have not made is made first (default: %(default)s)",
    )
    add("--at-once", type=count, default=1, metavar="K", help="instances that a roll replaces together (default: %(default)s)")
    add("--latency", type=not_negative, default=0.05, metavar="S", help="what a driver takes for CreateVolume (default: %(default)g)")
    add("--base-delay", default="", metavar="DURATION", help="--node-deployment-base-delay for all programs (default: theirs, 20s)")
    add(
        "--patience",
        type=positive,
        default=60.0,
        metavar="S",
        help="a phase ends when no claim was bound for so long (default: %(default)g)",
    )
    add("--quick", action="store_true", help="few nodes and claims: minutes, for a first look")
    add("--json", type=new_file, metavar="FILE", help="write every measurement here, after each phase")
    add("--svg", type=new_file, metavar="FILE", help="draw the bursts here, beside the published figures")
    add(
        "--beside",
        type=read_earlier,
        action="append",
        default=[],
        metavar="FILE",
        help="what --json has written earlier, to be shown in the same table and picture: turns may be hours apart",
    )
    add("--keep", type=new_folder, metavar="DIR", help="a new folder for all logs, the audit log and the drivers' record among them")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.quick:
        vars(arguments).update(QUICK)
    chosen = [program for program in programs(arguments.base_delay) if program.name in arguments.only]
    beside: list[Earlier] = vars(arguments).pop("beside")
    complaint = lack_of_memory(chosen, nodes=arguments.nodes, claims=_all_claims(arguments), available=_available())
    complaint = complaint or disagreement(beside, arguments)
    if complaint:
        say(f"error: {complaint}")
        return 1
    found: dict[tuple[int, str, str], Measurement | Upkeep] = {}
    for earlier in beside:
        found.update((_place(item), item) for item in earlier.measurements)
        found.update((_place(item), item) for item in earlier.upkeep)
    lives = Lives()
    for item in _measure(chosen, arguments, lives):
        found[_place(item)] = item
        if arguments.json:
            arguments.json.write_text(as_json(*_sorted(found.values()), arguments))
    measurements, kept_up = _sorted(found.values())
    if not found:
        say(f"error: nothing was measured, and nothing was given with --beside: --only {NOTHING}")
        return 1
    print(report.everything(arguments, measurements, kept_up))
    print(lives.told())
    for complaint in lives.broken():
        say(f"warning: {complaint}")
    if arguments.svg:
        arguments.svg.write_text(plot.draw(measurements, nodes=arguments.nodes))
    return 0


def phases(program: Program, arguments: argparse.Namespace) -> list[Phase]:
    """Those in which claims are made."""
    every = {
        "steady": Phase("steady", MAIN, arguments.steady, arguments.rate),
        "burst": Phase("burst", MAIN, arguments.claims),
        "late": _late("late", arguments.claims, program, arguments),
    }
    return [phase for name, phase in every.items() if name in arguments.phases]


def stock(program: Program, arguments: argparse.Namespace, *, bound: int) -> Phase | None:
    """What is made and not measured, so that an upkeep meets as many volumes as it should."""
    missing = arguments.present - bound if UPKEEP & {*arguments.phases} else 0
    return _late("stock", missing, program, arguments) if missing > 0 else None


def _late(name: str, claims: int, program: Program, arguments: argparse.Namespace) -> Phase:
    # The one for the cluster has the driver of the first node beside it, which makes volumes for no other.
    nodes = [node_name(number) for number in range(1, 2 if program.central else arguments.nodes + 1)]
    return Phase(name, LATER, claims, nodes=nodes)


def lack_of_memory(chosen: Iterable[Program], *, nodes: int, claims: int, available: float) -> str:
    """Which turn has no room and how much it needs, in MiB; empty if all have. Turns follow one another."""
    for program in chosen:
        each = memory_of(program, claims=claims)
        needed = SERVERS_MIB + (1 if program.central else nodes) * each
        if needed > available:
            fitting = max(0, int((available - SERVERS_MIB) / each))
            return (
                f"{program.name} on {nodes} nodes needs {needed:.0f} MiB of memory, {each:.0f} for each instance and "
                f"{SERVERS_MIB:.0f} for the servers; {available:.0f} are available, which is room for {fitting} nodes"
            )
    return ""


def disagreement(beside: Iterable[Earlier], arguments: argparse.Namespace) -> str:
    """Why rows cannot stand in one table; empty if they can."""
    for earlier in beside:
        for name in ALIKE:
            if (then := earlier.arguments.get(name)) != (now := getattr(arguments, name)):
                return f"{earlier.file} was measured with another --{name.replace('_', '-')}: {then or 'none'} there, {now or 'none'} here"
    return ""


def memory_of(program: Program, *, claims: int) -> float:
    """MiB of one instance when that many claims have their volumes."""
    return OURS_MIB + OURS_MIB_PER_CLAIM * claims if program.ours else PEER_MIB + PEER_MIB_PER_CLAIM * claims


def _measure(chosen: Sequence[Program], arguments: argparse.Namespace, lives: Lives) -> Iterator[Measurement | Upkeep]:
    """The drivers' pools for filling stay empty here."""
    if not chosen:
        return
    started = time.monotonic()
    with a_place(arguments.keep) as folder:
        setting = Setting(binaries("core", "kwok", PEER), fill=1, latency=arguments.latency, kwok=True)
        for program in each(chosen, "programs measured"):
            say(f"{program.name} on {arguments.nodes} nodes: starting")
            began = time.monotonic()
            with a_scene(setting, program, arguments.nodes, made(folder / program.name)) as scene:
                say(f"{len(scene.instances)} instances are ready after {time.monotonic() - began:.0f} s")
                bound = 0
                for phase in phases(program, arguments):
                    item = measure_phase(scene, program, arguments.nodes, phase, patience=arguments.patience)
                    say(line(item))
                    bound += item.bound
                    yield item
                # What is replaced tells no more.
                lives.note(*scene.instances)
                if (phase_before := stock(program, arguments, bound=bound)) is not None:
                    bound += measure_phase(scene, program, arguments.nodes, phase_before, patience=arguments.patience).bound
                for kept in _keep_up(scene, program, arguments, bound):
                    say(costs.line(kept))
                    yield kept
    say(f"all turns took {time.monotonic() - started:.0f} s")


def _keep_up(scene: Scene, program: Program, arguments: argparse.Namespace, bound: int) -> Iterator[Upkeep]:
    if "rest" in arguments.phases:
        yield upkeep.rest(scene, program, arguments.nodes, volumes=bound, seconds=arguments.rest)
    if "roll" in arguments.phases:
        yield upkeep.roll(scene, program, arguments.nodes, volumes=bound, at_once=arguments.at_once)


def _sorted(found: Iterable[Measurement | Upkeep]) -> tuple[list[Measurement], list[Upkeep]]:
    items = list(found)
    return [item for item in items if isinstance(item, Measurement)], [item for item in items if isinstance(item, Upkeep)]


def _place(item: Measurement | Upkeep) -> tuple[int, str, str]:
    return item.nodes, item.program, item.phase


def _all_claims(arguments: argparse.Namespace) -> int:
    return int(max(arguments.steady + 2 * arguments.claims, arguments.present))


def _available() -> float:
    """MiB."""
    lines = dict(text.split(":", 1) for text in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) / 1024
