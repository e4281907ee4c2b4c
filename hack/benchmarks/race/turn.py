"""One phase of one turn, from its first claim to what it came to; and the folder in which turns leave their logs."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.process_cost import cost_of
from hack.benchmarks.race import load as race_load
from hack.benchmarks.race.judge import Expense, Measurement, Served, judge
from hack.benchmarks.race.load import Phase, Played
from hack.benchmarks.race.stage import Program, Scene
from hack.lib.programs import Json
from sidecar.simulation.driver.calls import read_calls

# What instances still do when the last claim is bound belongs to the phase.
AFTERMATH = 2.0


def measure_phase(scene: Scene, program: Program, nodes: int, phase: Phase, *, patience: float) -> Measurement:
    already, served = scene.audit.stat().st_size if scene.audit.exists() else 0, scene.served()
    cpu, busy, own, began = scene.cpu(), _busy(), time.process_time(), time.time()
    played = asyncio.run(race_load.play(scene.plane.kubeconfig, phase, patience=patience))
    _note_down(scene.audit.parent / f"{phase.name}.seen", played)
    time.sleep(AFTERMATH)
    used = {part: seconds - cpu[part] for part, seconds in scene.cpu().items()}
    others, seconds = _busy() - busy - sum(used.values()) - (time.process_time() - own), time.time() - began
    scene.check()
    expense = Expense(
        seconds=seconds,
        cpu=used,
        others=max(0.0, others) / seconds,
        load=os.getloadavg()[0],
        resident=[cost_of(item.child.pid).resident for item in scene.instances],
        served=scene.served().since(served),
    )
    return judge(
        program.name,
        phase,
        nodes=nodes,
        instances=len(scene.instances),
        played=played,
        events=logged(scene.audit, already),
        calls=[call for call in read_calls(scene.calls) if call.at >= began],
        expense=expense,
    )


def as_json(measurements: Iterable[Measurement], arguments: argparse.Namespace) -> str:
    """What is infinite or no number is null."""
    asked = {key: value for key, value in vars(arguments).items() if key != "run"}
    rows = [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in asdict(item).items()}
        for item in measurements
    ]
    return json.dumps({"arguments": asked, "measurements": rows}, indent=1, default=str) + "\n"


@dataclass(frozen=True)
class Earlier:
    """What `as_json` has written."""

    file: str
    arguments: Mapping[str, Any]
    measurements: Sequence[Measurement]


def read_earlier(word: str) -> Earlier:
    """For argparse. Null is no number."""
    try:
        content = json.loads(Path(word).read_text())
        return Earlier(word, dict(content["arguments"]), [_measurement(row) for row in content["measurements"]])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{word} holds no measurements: {error}") from error


def _measurement(row: Json) -> Measurement:
    spent: Json = row["expense"]
    figures: Json = {key: math.nan if value is None else value for key, value in row.items()}
    figures["expense"] = Expense(**{**spent, "served": Served(**spent["served"])})
    return Measurement(**figures)


def _note_down(file: Path, played: Played) -> None:
    """For whoever keeps the folder and wonders."""
    file.write_text("".join(json.dumps({"claim": name, **asdict(item)}) + "\n" for name, item in played.seen.items()))


def logged(audit: Path, already: int) -> list[Json]:
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
def a_place(kept: Path | None) -> Iterator[Path]:
    """The folder to keep, or one that is removed."""
    if kept is not None:
        yield made(kept.absolute())
        return
    with tempfile.TemporaryDirectory(prefix="race-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
