"""Simulating claims costs what their number says: the CPU for 1,000 of them on 10 nodes, beside that for 200, in one run."""

import time

import pytest

from hack.sim.world.plan import crowd
from hack.sim.world.world import play


def cost(claims: int) -> float:
    begun = time.process_time()
    report = play(crowd(claims=claims, nodes=10))
    assert report.ok, str(report)
    return time.process_time() - begun


@pytest.mark.slow
def test_a_thousand_claims_on_ten_nodes() -> None:
    few, many = cost(200), cost(1000)
    print(f"10 nodes: {few:.1f} s of CPU for 200 claims, {many:.1f} s for 1,000")
    assert many < 10 * few
