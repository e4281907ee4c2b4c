"""`hack/bench race`: who takes a claim that binds immediately, how soon, and at what price, when many nodes could.

Real instances of ours, random and ranked, and of the peer, one for each node, and the peer once for the whole cluster. Each turn has
three phases: claims at a steady rate, a burst of claims, and a burst that fills all pools to the last byte.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import race_load, race_report
from benchmarks.process_cost import cost_of
from benchmarks.race_judge import Expense, Measurement, judge
from benchmarks.race_load import Phase, Played
from benchmarks.race_stage import FILL, MAIN, Program, Scene, Setting, a_scene, programs
from benchmarks.stage import PEER, new_file, new_folder, say
from sidecar.simulation.calls import read_calls
from tests.e2e.actors import Json
from tests.e2e.controlplane import binaries

# What instances still do when the last claim is bound belongs to the phase.
AFTERMATH = 2.0
QUICK = {"nodes": [3, 10], "steady": 60, "claims": 200, "fill": 5}


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "race",
        help="who takes a claim that binds immediately: latency, throughput, conflicts and cost, beside csi-provisioner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [program.name for program in programs("")]
    add = parser.add_argument
    add("--nodes", type=_counts, default=[3, 10, 30], metavar="N,N,...", help="nodes of the cluster, each in its turn (default: 3,10,30)")
    add("--only", type=_words(known), default=known, metavar="NAME,...", help=f"programs (default: {','.join(known)})")
    add("--rate", type=float, default=5.0, metavar="N", help="claims a second of the steady phase (default: %(default)g)")
    add("--steady", type=int, default=150, metavar="N", help="claims of the steady phase (default: %(default)s)")
    add("--claims", type=int, default=1000, metavar="N", help="claims of the burst (default: %(default)s)")
    add("--fill", type=int, default=10, metavar="N", help="volumes that fill a node; all nodes are filled (default: %(default)s)")
    add("--latency", type=float, default=0.05, metavar="S", help="what a driver takes for CreateVolume (default: %(default)g)")
    add("--base-delay", default="", metavar="DURATION", help="--node-deployment-base-delay for all programs (default: theirs, 20s)")
    add("--patience", type=float, default=45.0, metavar="S", help="a phase ends when no claim was bound for so long (default: %(default)g)")
    add("--quick", action="store_true", help="fewer nodes and claims: a few minutes, for a first look")
    add("--json", type=new_file, metavar="FILE", help="write every measurement here, after each turn")
    add(
        "--keep",
        type=new_folder,
        metavar="DIR",
        help="a new folder for all logs, the audit log and the drivers' record among them",
    )
    add("--gate", action="store_true", help="fail unless ours keeps its promises, which are checked in any case")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.quick:
        vars(arguments).update(QUICK)
    started = time.monotonic()
    with _a_place(arguments.keep) as folder:
        setting = Setting(binaries("core", PEER), arguments.fill, arguments.latency)
        chosen = [program for program in programs(arguments.base_delay) if program.name in arguments.only]
        measurements: list[Measurement] = []
        # Programs take turns on the same number of nodes, so that a machine that gets slower does so for all.
        for nodes, program in itertools.product(arguments.nodes, chosen):
            measurements += measure(setting, program, nodes, arguments, work=_made(folder / f"{program.name}-{nodes}"))
            if arguments.json:
                arguments.json.write_text(as_json(measurements, arguments))
    say(f"all turns took {time.monotonic() - started:.0f} s")
    print(race_report.table(measurements))
    print()
    print(race_report.footnotes(arguments, measurements, setting))
    broken = race_report.broken_limits(measurements)
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


def measure(setting: Setting, program: Program, nodes: int, arguments: argparse.Namespace, *, work: Path) -> Iterator[Measurement]:
    """One turn."""
    say(f"{program.name} on {nodes} nodes: starting")
    with a_scene(setting, program, nodes, work) as scene:
        for phase in phases(program, nodes, arguments):
            measurement = measure_phase(scene, program, nodes, phase, patience=arguments.patience)
            say(race_report.line(measurement))
            yield measurement


def phases(program: Program, nodes: int, arguments: argparse.Namespace) -> list[Phase]:
    steady = Phase("steady", MAIN, arguments.steady, arguments.rate)
    burst = Phase("burst", MAIN, arguments.claims)
    # In the central mode there is one driver, and no space to share out.
    return [steady, burst] if program.central else [steady, burst, Phase("fill", FILL, arguments.fill * nodes)]


def measure_phase(scene: Scene, program: Program, nodes: int, phase: Phase, *, patience: float) -> Measurement:
    logged, refused = scene.audit.stat().st_size if scene.audit.exists() else 0, scene.refused()
    cpu, busy, own, began = scene.cpu(), _busy(), time.process_time(), time.time()
    played = asyncio.run(race_load.play(scene.plane.kubeconfig, phase, patience=patience))
    _note_down(scene.audit.parent / f"{phase.name}.seen", played)
    time.sleep(AFTERMATH)
    used = {part: seconds - cpu[part] for part, seconds in scene.cpu().items()}
    others = _busy() - busy - sum(used.values()) - (time.process_time() - own)
    scene.check()
    expense = Expense(
        cpu=used,
        others=max(0.0, others) / (time.time() - began),
        load=os.getloadavg()[0],
        resident=[cost_of(item.child.pid).resident for item in scene.instances],
        refused=scene.refused() - refused,
    )
    return judge(
        program.name,
        phase,
        nodes=nodes,
        instances=len(scene.instances),
        played=played,
        events=_logged(scene.audit, logged),
        calls=[call for call in read_calls(scene.calls) if call.at >= began],
        expense=expense,
    )


def as_json(measurements: Iterable[Measurement], arguments: argparse.Namespace) -> str:
    """What is infinite or no number is null."""
    asked = {key: str(value) if isinstance(value, Path) else value for key, value in vars(arguments).items() if key != "run"}
    rows = [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in asdict(item).items()}
        for item in measurements
    ]
    return json.dumps({"arguments": asked, "measurements": rows}, indent=1) + "\n"


def _note_down(file: Path, played: Played) -> None:
    """For whoever keeps the folder and wonders."""
    file.write_text("".join(json.dumps({"claim": name, **asdict(item)}) + "\n" for name, item in played.seen.items()))


def _logged(audit: Path, already: int) -> list[Json]:
    """What the programs have asked of the API server since then."""
    with suppress(FileNotFoundError), audit.open("rb") as file:
        file.seek(already)
        return [json.loads(line) for line in file]
    return []


def _busy() -> float:
    """CPU seconds that the whole machine has worked."""
    user, nice, system, _idle, _waiting, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _a_place(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield _made(kept.absolute())
        return
    with tempfile.TemporaryDirectory(prefix="race-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _counts(word: str) -> list[int]:
    numbers = [int(part) for part in word.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return numbers


def _words(known: list[str]) -> Any:
    def read(word: str) -> list[str]:
        unknown = [part for part in word.split(",") if part not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no such program: {', '.join(unknown)}; there are {', '.join(known)}")
        return word.split(",")

    return read
