"""The parts of the model, one by one: lines, turns, and what is reckoned from what was counted."""

import itertools
import random

import pytest

from sidecar.ownership.placement import SINGLE_STEPS, RandomDelay, Ranked
from sidecar.ownership.roster import Roster
from sidecar.simulation.swarm.counts import Counts, chance_of, quantile, spread_of
from sidecar.simulation.swarm.lines import Lines
from sidecar.simulation.swarm.scenario import Scenario
from sidecar.simulation.swarm.turns import merged, random_turns, ranked_turns
from sidecar.simulation.world.network import Latency


def test_delays_are_met_as_they_are_stated() -> None:
    lines = Lines(Latency(0.010, 0.200), random.Random(1))
    delays = sorted(lines.heard(node, 0.37 * step) - 0.37 * step for node in range(40) for step in range(1000))
    assert quantile(delays, 0.5) == pytest.approx(0.010, rel=0.1)
    assert quantile(delays, 0.99) == pytest.approx(0.200, rel=0.2)
    assert sum(delays) / len(delays) == pytest.approx(lines.usual, rel=0.1)
    assert delays[0] > 0 and delays[-1] <= lines.longest + 1e-9


def test_nothing_overtakes_on_a_line() -> None:
    lines = Lines(Latency(0.010, 0.500), random.Random(1))
    for node in range(20):
        heard = [lines.heard(node, 0.01 * step) for step in range(2000)]
        assert heard == sorted(heard)


def test_the_shortest_of_many_delays_come_first_and_are_drawn_fairly() -> None:
    placement, dice, nodes = RandomDelay(20.0, 60.0), random.Random(1), list(range(9))
    drawn = [list(random_turns(nodes, placement, dice)) for _ in range(4000)]
    assert all(sorted(turns) == turns and sorted(node for _, node in turns) == nodes for turns in drawn)
    assert sum(turns[0][0] for turns in drawn) / 4000 == pytest.approx(20.0 / 10, rel=0.05)
    assert sum(turns[4][0] for turns in drawn) / 4000 == pytest.approx(10.0, rel=0.05)
    assert sum(turns[0][1] for turns in drawn) / 4000 == pytest.approx(4.0, rel=0.05)


def test_turns_by_rank_are_those_the_nodes_find_for_themselves() -> None:
    names = [f"n{number}" for number in range(200)]
    roster, placement = Roster.of(names, {}), Ranked(RandomDelay(20.0, 60.0))
    turns = list(ranked_turns({name: name for name in names}, roster, placement, random.Random(1), uid="u", needed=1))
    assert sorted(name for _, name in turns) == sorted(names)
    assert [delay for delay, _ in turns] == sorted(delay for delay, _ in turns)
    for number, (delay, name) in enumerate(turns[:SINGLE_STEPS]):
        rank = roster.rank(name, "u", 1, exact=SINGLE_STEPS)
        assert (rank, delay) == (number, placement.delay(rank, 0.0))


def test_nodes_that_are_not_there_leave_gaps() -> None:
    roster, placement = Roster.of("abcd", {}), Ranked(RandomDelay(20.0, 60.0), 1.0)
    order = roster.order("u", 1)
    there = {name: name for name in order[1:3]}
    assert list(ranked_turns(there, roster, placement, random.Random(1), uid="u", needed=1)) == [(1.0, order[1]), (2.0, order[2])]


def test_kinds_of_nodes_race_together() -> None:
    assert list(merged([iter([(1.0, "a"), (4.0, "b")]), iter([(2.0, "c")])])) == [(1.0, "a"), (2.0, "c"), (4.0, "b")]


@pytest.mark.parametrize(("square", "freedom", "chance"), [(3.84, 1, 0.05), (9.49, 4, 0.05), (42.56, 29, 0.05), (135.8, 99, 0.0083)])
def test_chi_square_is_as_in_tables(square: float, freedom: int, chance: float) -> None:
    assert chance_of(square, freedom) == pytest.approx(chance, abs=0.004)


def test_spread_is_judged_by_space() -> None:
    scenario = Scenario(nodes=4, space=(100, 300), size=1)
    fair, unfair = Counts(), Counts()
    fair.volumes.update({"n0": 100, "n1": 300, "n2": 100, "n3": 300})
    unfair.volumes.update({"n0": 200, "n1": 200, "n2": 200, "n3": 200})
    assert spread_of(scenario, fair).furthest == 0.0 and spread_of(scenario, fair).p > 0.99
    assert spread_of(scenario, unfair).furthest == 1.0 and spread_of(scenario, unfair).p < 0.001


def test_claims_come_at_the_rate() -> None:
    times = Scenario(claims=5000, rate=50.0).arrivals()
    assert times == sorted(times) and times[-1] == pytest.approx(100.0, rel=0.1)
    assert all(at == 0.0 for at in Scenario(claims=5, burst=True).arrivals())


def test_the_cast_has_the_shares_that_were_asked_for() -> None:
    cast = Scenario(nodes=20, dead=0.2, full=0.1, rolling=0.5).cast()
    assert (sum(part.dead for part in cast), sum(part.full for part in cast), sum(part.upstream for part in cast)) == (4, 2, 10)
    assert not any(part.dead and (part.full or part.upstream) for part in cast)
    spaces = itertools.islice(itertools.cycle((1, 2, 3)), 20)
    assert [part.space for part in Scenario(nodes=20, space=(1, 2, 3)).cast()] == list(spaces)
