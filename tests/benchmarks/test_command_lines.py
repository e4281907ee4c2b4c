"""What hack/bench and hack/parity refuse before they build and measure for hours: numbers with which nothing would be measured."""

from __future__ import annotations

import argparse

import pytest

from hack.benchmarks import drain, emptying, late, start
from hack.benchmarks.capacity import command as capacity
from hack.benchmarks.hostile import command as hostile
from hack.benchmarks.memory import command as memory
from hack.benchmarks.race import command as race
from hack.benchmarks.scale import command as scale
from hack.parities import command as parity

BENCHMARKS = {
    "memory": memory,
    "start": start,
    "capacity": capacity,
    "race": race,
    "late": late,
    "scale": scale,
    "drain": drain,
    "emptying": emptying,
    "hostile": hostile,
}


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack")
    commands = parser.add_subparsers(required=True)
    for benchmark in BENCHMARKS.values():
        benchmark.add_to(commands)
    parity.add_to(commands.add_parser("parity"))
    return parser


@pytest.mark.parametrize(
    "line",
    [
        "memory --objects 0",
        "memory --runs 0",
        "memory --settle -1",
        "start --turns 0",
        "start --objects 0",
        "capacity --rate 0",
        "capacity --seconds nan",
        "race --nodes 3,0",
        "race --rate 0",
        "race --steady 0",
        "race --claims -5",
        "race --fill 0",
        "race --latency -1",
        "race --patience 0",
        "race --impossible 0,-1",
        "emptying --runs 0",
        "late --claims 0",
        "late --runs -1",
        "scale --nodes 0",
        "scale --claims 0",
        "scale --steady 0",
        "scale --rate 0",
        "scale --latency -1",
        "scale --rest 0",
        "scale --present 0",
        "scale --at-once 0",
        "scale --patience nan",
        "drain --runs 0",
        "parity --generated -1",
    ],
)
def test_nothing_is_not_measured(parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str], line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(line.split())
    assert ended.value.code == 2
    assert f"argument {line.split()[1]}: must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", [*BENCHMARKS, "race --latency 0", "scale --nodes 1 --latency 0", "memory --settle 0", "parity --generated 0"]
)
def test_what_can_be_measured_is(parser: argparse.ArgumentParser, line: str) -> None:
    assert parser.parse_args(line.split())
