"""Ranked placement does what it must, at every size of cluster and with trouble."""

import time
from dataclasses import replace

import pytest

from sidecar.simulation.swarm.counts import Summary
from sidecar.simulation.swarm.race import play
from sidecar.simulation.swarm.scenario import RANDOM, RANKED, Scenario
from sidecar.simulation.world.network import Latency

GIB = 1 << 30
SIZES = [3, 10, 30, 100, 300]
LARGE = [pytest.param(nodes, marks=pytest.mark.slow) for nodes in (1000, 5000)]


def raced(**settings: object) -> Summary:
    return play(replace(Scenario(placement=RANKED), **settings), "thin")[1]  # type: ignore[arg-type]


@pytest.mark.parametrize("nodes", [*SIZES, *LARGE])
def test_somebody_owns_a_claim_at_once(nodes: int) -> None:
    begun, claims = time.process_time(), 2000 if nodes < 5000 else 800
    summary = raced(nodes=nodes, claims=claims)
    assert time.process_time() - begun < 300
    assert summary.mean <= 0.10
    assert summary.conflicts <= 0.01
    assert summary.failed <= 0.01
    assert summary.spread_p >= 0.01
    assert summary.bound == claims


@pytest.mark.parametrize("trouble", [{"dead": 0.2}, {"full": 0.2}, {"dead": 0.1, "full": 0.1}])
@pytest.mark.parametrize("nodes", [*SIZES, *LARGE])
def test_dead_and_full_nodes_cost_steps(nodes: int, trouble: dict[str, float]) -> None:
    claims = 1000 if nodes < 5000 else 400
    summary = raced(nodes=nodes, claims=claims, **trouble)
    assert summary.p99 <= 1.5
    assert summary.conflicts <= 0.01
    assert summary.bound == claims


def test_a_burst() -> None:
    summary = raced(nodes=30, claims=1000, burst=True)
    assert summary.mean <= 1.0
    assert summary.conflicts <= 0.01
    assert summary.spread_p >= 0.01


@pytest.mark.parametrize("filled", [0.9, 0.95, 1.0])
@pytest.mark.parametrize("nodes", [10, 30, pytest.param(300, marks=pytest.mark.slow)])
def test_filling_up_in_a_burst(nodes: int, filled: float) -> None:
    """At the end nothing is left, and nothing was promised twice."""
    claims = round(3000 * filled)
    summary = raced(nodes=nodes, claims=claims, space=(3000 // nodes * GIB,), burst=True)
    assert summary.failed <= 0.01
    assert summary.bound == claims


def test_what_is_too_much_is_left_over_and_nothing_else() -> None:
    summary = raced(nodes=10, claims=520, space=(30 * GIB, 70 * GIB), rate=100.0)
    assert (summary.bound, summary.fits) == (500, 0)


def test_shares_are_as_free_space_is() -> None:
    """1,000 claims a node."""
    summary = raced(nodes=10, claims=10_000, space=tuple(size * 10 * GIB for size in (512, 700, 1024, 2000, 3000)), rate=200.0)
    assert summary.spread_furthest <= 0.10


def test_nodes_that_run_upstreams_rule_may_take_part() -> None:
    summary = raced(nodes=30, claims=1000, rolling=0.3)
    assert summary.bound == 1000
    assert summary.failed == 0
    assert raced(nodes=30, claims=1000).mean < summary.mean < play(Scenario(claims=1000), "thin")[1].mean


def test_restarts_and_partitions_leave_nothing_open() -> None:
    summary = raced(nodes=10, claims=1000, restarts=20, partitions=20)
    assert summary.bound == 1000
    assert summary.p99 > raced(nodes=10, claims=1000).p99


@pytest.mark.parametrize("trouble", [{"restarts": 5}, {"partitions": 5}])
@pytest.mark.parametrize("placement", [RANDOM, RANKED])
def test_a_node_that_comes_back_takes_what_came_meanwhile(placement: str, trouble: dict[str, int]) -> None:
    """There is no other that could."""
    counts, summary = play(Scenario(nodes=1, claims=500, placement=placement, base_delay=0.1, **trouble), "thin")  # type: ignore[arg-type]
    assert summary.bound == 500
    assert 9.0 < max(counts.latencies) < 60.0


@pytest.mark.parametrize("load", [{"rate": 5.0}, {"burst": True}], ids=["one after another", "at once"])
def test_nodes_whose_watches_are_late_ask_once_and_not_for_each_claim(load: dict[str, object]) -> None:
    """Of twelve nodes seven asked about each claim that came while the watches were eight seconds late."""
    late = Scenario(placement=RANKED, nodes=12, claims=25, watch=Latency(8.0, 9.0), **load)  # type: ignore[arg-type]
    counts, summary = play(late, "full")
    assert counts.requests["get persistentvolumeclaims"] <= 1.5 * 25
    assert summary.conflicts <= 0.3
    assert summary.bound_longest <= 20.0
