"""The thin model agrees with the real rooms within a tenth."""

import statistics

import pytest

from sidecar.simulation.swarm import thin
from sidecar.simulation.swarm.race import play
from sidecar.simulation.swarm.scenario import RANDOM, RANKED, Scenario
from sidecar.simulation.swarm.tally import summarize

NEAR = 0.1


@pytest.mark.parametrize("placement", [RANDOM, RANKED])
def test_on_thirty_nodes(placement: str) -> None:
    compare(Scenario(nodes=30, claims=120, placement=placement, base_delay=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("placement", [RANDOM, RANKED])
def test_on_three_hundred_nodes(placement: str) -> None:
    compare(Scenario(nodes=300, claims=60, placement=placement))


def compare(scenario: Scenario) -> None:
    """With the same claims and the same weather. The thin model can try its luck often, the real rooms cannot: what their luck may
    be is known from the thin model, and is granted beside the tenth."""
    _, full = play(scenario, "full")
    often = [summarize(scenario, thin.play(scenario, again=number), model="thin", took=0.0) for number in range(40)]
    assert full.bound == scenario.claims and not full.failed and not any(each.failed for each in often)
    assert {each.bound for each in often} == {scenario.claims}
    for what in ("mean", "conflicts", "requests", "events_per_node"):
        tried, real = [getattr(each, what) for each in often], getattr(full, what)
        usual, luck = statistics.fmean(tried), statistics.stdev(tried)
        print(f"{scenario}: {what}: real rooms {real:.4f}, thin model {usual:.4f}, give or take {luck:.4f}")
        assert usual == pytest.approx(real, abs=NEAR * real + luck), what
