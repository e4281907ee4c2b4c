"""What was measured, as a file that is read again: turns may be hours apart."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.race import turn
from hack.benchmarks.race.judge import Expense, Measurement
from hack.benchmarks.race.served import Served
from hack.benchmarks.scale.upkeep import Start, Upkeep
from hack.lib.programs import Json


@dataclass(frozen=True)
class Earlier:
    """What `as_json` has written."""

    file: str
    arguments: Mapping[str, Any]
    measurements: Sequence[Measurement]
    upkeep: Sequence[Upkeep]


def as_json(measurements: Iterable[Measurement], upkeep: Iterable[Upkeep], arguments: argparse.Namespace) -> str:
    return turn.as_json(measurements, arguments, upkeep=upkeep)


def read_earlier(word: str) -> Earlier:
    """For argparse. Null is no number."""
    try:
        content = json.loads(Path(word).read_text())
        measurements = [_measurement(row) for row in content["measurements"]]
        return Earlier(word, dict(content["arguments"]), measurements, [_upkeep(row) for row in content.get("upkeep", [])])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{word} holds no measurements: {error}") from error


def _measurement(row: Json) -> Measurement:
    figures: Json = {key: math.nan if value is None else value for key, value in row.items()}
    return Measurement(**{**figures, "expense": _expense(row["expense"])})


def _upkeep(row: Json) -> Upkeep:
    return Upkeep(**{**row, "expense": _expense(row["expense"]), "starts": [Start(**start) for start in row["starts"]]})


def _expense(spent: Json) -> Expense:
    return Expense(**{**spent, "served": Served(**spent["served"])})
