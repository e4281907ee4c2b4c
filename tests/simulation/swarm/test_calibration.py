"""Random placement: what is known of upstream's rule comes out of the thin model, and so does what plain dice say."""

import random

import pytest

from sidecar.simulation.swarm.counts import Summary
from sidecar.simulation.swarm.race import play
from sidecar.simulation.swarm.scenario import Scenario
from sidecar.simulation.world.network import Latency

NEAR = 0.2


def raced(**settings: object) -> Summary:
    return play(Scenario(**settings), "thin")[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(("nodes", "mean"), [(3, 5.1), (10, 1.8), (30, 0.74)])
def test_waiting_with_the_default_delays(nodes: int, mean: float) -> None:
    summary = raced(nodes=nodes, claims=4000, window=0.007, space=(10 << 40,))
    assert summary.mean == pytest.approx(mean, rel=NEAR)
    assert summary.bound == 4000


def test_a_short_base_delay_costs_conflicts() -> None:
    summary = raced(nodes=30, claims=4000, window=0.007, base_delay=1.0)
    assert summary.mean == pytest.approx(0.066, rel=NEAR)
    assert summary.conflicts == pytest.approx(0.20, rel=NEAR)


@pytest.mark.parametrize(
    ("nodes", "base_delay", "window", "conflicts"),
    [(50, 10.0, 0.012, 0.06), (100, 20.0, 0.030, 0.17), (1000, 20.0, 0.030, 1.5), (5000, 20.0, 0.030, 7.7)],
)
def test_conflicts_grow_with_nodes_and_window(nodes: int, base_delay: float, window: float, conflicts: float) -> None:
    claims = 5000 if nodes <= 100 else 1000
    summary = raced(nodes=nodes, claims=claims, window=window, base_delay=base_delay)
    assert summary.conflicts == pytest.approx(conflicts, rel=NEAR)


@pytest.mark.parametrize("base_delay", [2.0, 20.0])
def test_the_heap_of_events_finds_what_dice_for_every_node_find(base_delay: float) -> None:
    """All nodes of all claims drawn, none left out: the shortcuts of the model must not change what comes of it."""
    dice, nodes, claims = random.Random(1), 30, 4000
    watch, write, capacity = Latency(0.010, 0.200), Latency(0.005, 0.050), Latency(0.002, 0.020)
    waited, conflicts = 0.0, 0
    for _ in range(claims):
        delays = [(base_delay * dice.random() + capacity.draw(dice), watch.draw(dice) + write.draw(dice)) for _ in range(nodes)]
        owned = min(map(sum, delays))
        waited += owned
        # Who hears of the claim late hears of its owner as late, so only the delay counts.
        conflicts += sum(delay < owned for delay, _ in delays) - 1
    summary = raced(nodes=nodes, claims=12_000, base_delay=base_delay)
    assert summary.mean == pytest.approx(waited / claims, rel=0.05)
    assert summary.conflicts == pytest.approx(conflicts / claims, rel=0.05 if base_delay < 10 else 0.2)
