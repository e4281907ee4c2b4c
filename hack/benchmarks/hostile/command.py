"""`hack/bench hostile`: what tenants, drivers and clients can do to one instance, each attack as a run with figures.

The program runs as in a pod, with the memory that `deploy/` allows it (where this machine lets us make such a limit), against the
simulated API server.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.hostile.attacks import ATTACKS, Attack
from hack.benchmarks.hostile.bounds import LIMIT
from hack.benchmarks.hostile.scene import a_scene
from hack.benchmarks.hostile.watcher import Figures
from hack.benchmarks.pod import compile_bytecode
from hack.benchmarks.stage import new_file, words_of
from hack.benchmarks.stalls import MOST, RULE, Stalls, broken_stalls, told, total
from hack.lib.progress import each, say

_OWN_FILES = 4096


@dataclass(frozen=True)
class Result:
    attack: str
    caged: bool
    figures: Figures
    stalls: Stalls
    endings: list[str]
    """How the program ended, where it did."""
    own: float | None
    """The attack's own figure."""


def add_to(commands: Any) -> None:
    parser = commands.add_parser("hostile", help="one instance under attack", description=__doc__)
    parser.add_argument("--only", type=words_of(tuple(ATTACKS)), default=list(ATTACKS), metavar="NAMES", help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every figure here")
    parser.add_argument("--gate", action="store_true", help=f"fail if an attack goes beyond its bounds, or stalls beyond {RULE}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    _allow_files()
    compile_bytecode()
    results = [measure(ATTACKS[name]) for name in each(arguments.only, "attacks")]
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    broken = [f"{result.attack}: {fault}" for result in results for fault in faults_of(result)]
    broken += broken_stalls(total(result.stalls for result in results))
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


def measure(attack: Attack) -> Result:
    say(f"{attack.name}: {attack.what}")
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        surroundings = a_scene(
            Path(folder), fill=attack.fill, count=attack.count, manner=attack.manner, faults=attack.faults, flags=attack.flags
        )
        with surroundings as scene:
            own = attack.act(scene)
        say(told(scene.stalls))
        return Result(attack.name, scene.cage is not None, _largest(scene.figures), scene.stalls, scene.endings, own)


def table(results: Sequence[Result]) -> str:
    """Markdown, one row for each attack."""
    rows = [
        "| attack | lived | peak MiB | longest stall ms | longest /healthz s | unanswered | open files | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for result in results:
        attack, figures = ATTACKS[result.attack], result.figures
        own = f"{result.own:.3g} {attack.figure}" if result.own is not None else ""
        lived = f"no: {', '.join(result.endings)}" if result.endings else "yes"
        stall = f"{1000 * result.stalls.longest:.0f}"
        cells = (lived, f"{figures.peak:.1f}", stall, f"{figures.healthz:.2f}", str(figures.unanswered), str(figures.files), own)
        rows.append(f"| {attack.name} | " + " | ".join(cells) + " |")
    limit = f"{LIMIT} MiB" if all(result.caged for result in results) else "none could be made here"
    return "\n".join([*rows, "", f"Limit of memory: {limit}. {told(total(result.stalls for result in results))}"])


def faults_of(result: Result) -> Iterator[str]:
    """What goes beyond the bounds."""
    attack, figures = ATTACKS[result.attack], result.figures
    bounds = attack.bounds
    yield from (f"the program {ending}" for ending in result.endings)
    measured = (
        ("MiB at its peak", figures.peak, bounds.peak),
        ("open files", figures.files, bounds.files),
        ("s for /healthz", figures.healthz, bounds.healthz),
        ("s in which the event loop stood still", result.stalls.longest, MOST),
        ("requests for /healthz without an answer", figures.unanswered, bounds.unanswered),
    )
    yield from (f"{found:.4g} {what}, allowed are {most:g}" for what, found, most in measured if found > most)
    if not result.stalls.moments:
        yield "the program has told no stalls"
    if not figures.answered:
        yield "/healthz never answered"
    if bounds.figure is not None and (result.own is None or result.own > bounds.figure):
        yield f"{result.own} {attack.figure}, allowed are {bounds.figure:g}"


def _largest(lives: Iterable[Figures]) -> Figures:
    found = [asdict(life) for life in lives]
    return Figures(**{name: max(life[name] for life in found) for name in found[0]})


def _allow_files() -> None:
    """An attack opens more connections than a process usually may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if 0 < hard < _OWN_FILES else _OWN_FILES, hard))
