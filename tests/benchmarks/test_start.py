"""What `hack/bench start` makes of what it has measured, and how it prepares what it measures."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from hack.benchmarks import start
from hack.benchmarks.stage import OURS, PEER
from hack.lib.control_plane import REPOSITORY


def starts(*cpu: float, program: str = OURS, scope: str = start.LABELLED, cluster: str = start.FULL) -> list[start.Measurement]:
    return [start.Measurement(program, scope, cluster, seconds, synced=1.0, resident=50.0) for seconds in cpu]


def test_a_limit_is_held_to_the_median() -> None:
    assert start.broken_limits(starts(0.1, 0.25, 9.0)) == []
    (broken,) = start.broken_limits(starts(0.1, 0.26, 0.27))
    assert broken.startswith("0.260 s of CPU on the full cluster, claims heard: labelled")


def test_no_limit_is_held_to_others_nor_to_where_there_is_none() -> None:
    assert start.broken_limits(starts(9.0, program=PEER) + starts(9.0, scope=start.ALL)) == []


def test_each_program_has_a_row_for_each_cluster() -> None:
    table = start.table(starts(0.1, 0.3, 0.2) + starts(0.2, cluster=start.EMPTY) + starts(0.05, program=PEER, scope=start.ALL))
    assert table.splitlines()[2:] == [
        "| full | labelled | csi-node-sidecar | 0.200 | 0.100, 0.300 | 1.00 | 50.0 |",
        "| empty | labelled | csi-node-sidecar | 0.200 | 0.200, 0.200 | 1.00 | 50.0 |",
        "| full | all | csi-provisioner | 0.050 | 0.050, 0.050 | 1.00 | 50.0 |",
    ]


def test_what_is_compared_with_is_a_checkout(tmp_path: Path) -> None:
    assert start.checkout(str(REPOSITORY)) == REPOSITORY
    with pytest.raises(argparse.ArgumentTypeError):
        start.checkout(str(tmp_path))
