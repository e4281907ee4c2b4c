"""What the benches read of a program's stalls, and what they find too long."""

from __future__ import annotations

import math

import pytest

from hack.benchmarks.stalls import Stalls, broken_stalls, read, told, total
from sidecar.observe.metrics import Metrics


def page(*stalls: tuple[float, float], moments: int = 2000) -> str:
    """A program's own: whole and own seconds of each stall, among moments at which nobody waited."""
    metrics = Metrics("0")
    metrics.stalls.stalled(0.0, 0.0, moments - len(stalls))
    for whole, own in stalls:
        metrics.stalls.stalled(whole, own)
        metrics.stalls.stood_still(whole, own)
    return metrics.render()[0].decode()


def test_both_bounds_can_be_told_from_the_programs_page() -> None:
    calm = read(page((0.05, 0.05), (0.05, 0.05), (0.2, 0.2)))
    assert (calm.moments, calm.usual, calm.longest) == (2000, 0.05, 0.2)
    assert list(broken_stalls(calm)) == []


def test_stalls_of_the_machine_are_told_and_not_judged() -> None:
    starved = read(page(*[(2.0, 0.01)] * 100))
    assert list(broken_stalls(starved)) == []
    assert "the longest 10 ms (2000 ms with what it waited for a processor)" in told(starved)


@pytest.mark.parametrize(
    ("stalls", "fault"),
    [
        ([(0.06, 0.06)] * 3, "at p99.9 the event loop stands still for up to 100 ms, allowed are 50 ms"),
        ([(0.26, 0.26)], "the event loop stood still for 260 ms, allowed are 250"),
    ],
)
def test_each_bound_is_judged(stalls: list[tuple[float, float]], fault: str) -> None:
    assert list(broken_stalls(read(page(*stalls)))) == [fault]


@pytest.mark.parametrize("nothing", ["", "csi_node_sidecar_ready 1\n"])
def test_a_program_that_tells_nothing_is_not_within_the_bounds(nothing: str) -> None:
    assert list(broken_stalls(total([read(nothing)]))) == ["the program has told no stalls"]


def test_lives_are_judged_together() -> None:
    long, short = read(page((0.06, 0.06), moments=100)), read(page(moments=1900))
    assert long.usual == 0.1
    both = total([long, short])
    assert (both.moments, both.usual, both.longest) == (2000, 0.005, 0.06)
    assert Stalls().usual == math.inf
