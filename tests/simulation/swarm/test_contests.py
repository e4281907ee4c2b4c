"""Claims that nodes hand to each other: each node has its try, and nobody has two before all others have had one."""

import pytest

from sidecar.simulation.swarm.counts import Summary
from sidecar.simulation.swarm.race import play
from sidecar.simulation.swarm.scenario import RANDOM, RANKED, Scenario

GIB = 1 << 30


def raced(placement: str, **settings: object) -> Summary:
    return play(Scenario(placement=placement, rate=1.0, patience=600.0, **settings), "full")[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(("nodes", "liars"), [(3, 2), (5, 1), (8, 7)])
def test_drivers_that_lie_about_room_hold_nobody_up(nodes: int, liars: int) -> None:
    """A liar says that it has room, and that it has none when it is to create a volume."""
    summary = raced(RANKED, nodes=nodes, claims=12, liars=liars)
    assert summary.bound == 12
    assert summary.bound_longest < 8.0
    assert summary.claim_writes <= 1 + 2 * liars
    assert summary.conflicts <= 0.25


def test_where_all_lie_the_rounds_are_spaced() -> None:
    summary = raced(RANKED, nodes=3, claims=4, liars=3)
    assert summary.bound == 0
    assert summary.claim_writes <= 2 * 3 * 6, "six rounds in ten minutes, in each at most one bid and one return of each node"


@pytest.mark.parametrize("placement", [RANDOM, RANKED])
def test_a_claim_for_a_snapshot_is_written_by_the_node_that_has_it_and_by_no_other(placement: str) -> None:
    summary = raced(placement, nodes=5, claims=10, snapshots=True)
    assert summary.bound == 10 and summary.claim_writes == 1.0
    assert summary.bound_longest < (5.0 if placement == RANKED else 60.0)


def test_a_limit_of_requests_slows_nodes_down_and_nothing_else() -> None:
    free, limited = (raced(RANKED, nodes=3, claims=30, burst=True, qps=qps) for qps in (None, 5.0))
    assert free.bound == limited.bound == 30
    assert limited.bound_p99 > free.bound_p99


@pytest.mark.parametrize("placement", [RANDOM, RANKED])
def test_claims_that_fit_nowhere_hold_up_none_that_fits(placement: str) -> None:
    """With the default limits of requests. What another tenant's claims cost is GetCapacity."""
    alone, beside = (raced(placement, nodes=3, claims=10, impossible=count, qps=5.0) for count in (0, 100))
    assert alone.bound == beside.bound == 10
    assert beside.bound_longest < 2 * alone.bound_longest + 5.0
