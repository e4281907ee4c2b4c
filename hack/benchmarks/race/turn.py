"""One phase of one turn, from its first claim to what it came to; and the folder in which turns leave their logs."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hack.benchmarks.race import load as race_load
from hack.benchmarks.race.judge import Measurement, judge
from hack.benchmarks.race.load import Phase, Played
from hack.benchmarks.race.opening import Opening
from hack.benchmarks.race.stage import Program, Scene
from hack.lib.programs import Json
from hack.sim.driver.calls import read_calls

# What instances still do when the last claim is bound belongs to the phase.
AFTERMATH = 2.0


def measure_phase(scene: Scene, program: Program, nodes: int, phase: Phase, *, patience: float) -> Measurement:
    opening = Opening.of(scene)
    played = asyncio.run(race_load.play(scene.plane.kubeconfig, phase, patience=patience))
    _note_down(scene.audit.parent / f"{phase.name}.seen", played)
    time.sleep(AFTERMATH)
    expense = opening.spent(scene)
    return judge(
        program.name,
        phase,
        nodes=nodes,
        instances=len(scene.instances),
        played=played,
        events=opening.logged(scene),
        calls=[call for call in read_calls(scene.calls) if call.at >= opening.at],
        expense=expense,
    )


def as_json(measurements: Iterable[Measurement], arguments: argparse.Namespace, **more: Iterable[Any]) -> str:
    """What is infinite or no number is null. `more`: lists of other values, by name."""
    asked = {key: value for key, value in vars(arguments).items() if key != "run"}
    lists = {name: [_row(item) for item in items] for name, items in {"measurements": measurements, **more}.items()}
    return json.dumps({"arguments": asked, **lists}, indent=1, default=str) + "\n"


def _row(item: Any) -> Json:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in asdict(item).items()}


def _note_down(file: Path, played: Played) -> None:
    """For whoever keeps the folder and wonders."""
    file.write_text("".join(json.dumps({"claim": name, **asdict(item)}) + "\n" for name, item in played.seen.items()))


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
