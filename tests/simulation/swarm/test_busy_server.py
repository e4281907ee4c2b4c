"""A burst that is more than the API server can carry: requests wait, and watches are late by a minute on all nodes alike."""

import asyncio

import pytest

from sidecar.kube.api import CLAIMS
from sidecar.kube.errors import TooManyRequests
from sidecar.simulation.clock import run_virtual
from sidecar.simulation.cluster.inprocess import Call
from sidecar.simulation.swarm.busy_server import BusyServer
from sidecar.simulation.swarm.counts import Counts, Summary
from sidecar.simulation.swarm.race import play
from sidecar.simulation.swarm.scenario import RANKED, Scenario

GET = Call("get", CLAIMS)


def squeezed(**settings: object) -> tuple[Counts, Summary]:
    scenario = Scenario(placement=RANKED, burst=True, figures=False, patience=2000.0, **settings)  # type: ignore[arg-type]
    return play(scenario, "full")


def test_requests_and_events_wait_in_lines_of_their_own() -> None:
    async def story() -> list[float]:
        clock = asyncio.get_running_loop().time
        server = BusyServer(Scenario(server_requests=2.0, server_events=10.0), clock)
        assert server.send_event() == 0.0, "before the race it is quick"
        server.begin()
        late = [server.send_event() for _ in range(3)]
        await asyncio.gather(*(server.request(GET) for _ in range(4)))
        return [*late, clock()]

    assert run_virtual(story()) == pytest.approx([0.1, 0.2, 0.3, 2.0])


@pytest.mark.parametrize(("rate", "served", "seconds"), [(64.0, 400, 6.25), (1.0, 16, 16.0)], ids=["so many", "so long"])
def test_of_one_account_only_so_many_requests_wait_and_only_so_long(rate: float, served: int, seconds: float) -> None:
    async def story() -> tuple[int, float]:
        server = BusyServer(Scenario(server_requests=rate), asyncio.get_running_loop().time)
        server.begin()
        answers = await asyncio.gather(*(server.sidecars_request(GET) for _ in range(450)), return_exceptions=True)
        assert all(answer is None or isinstance(answer, TooManyRequests) for answer in answers)
        return answers.count(None), asyncio.get_running_loop().time()

    assert run_virtual(story()) == (served, pytest.approx(seconds))


def test_a_burst_beyond_its_strength_costs_few_requests() -> None:
    """A bid, a volume and two events are needed. When all nodes looked at all claims after a minute it was 5.9, and 44 with 30 nodes."""
    counts, summary = squeezed(nodes=12, claims=60, server_requests=5.0, server_events=25.0)
    assert summary.bound == 60
    assert summary.p50 > 30.0, "else the server was not busy"
    assert counts.requests["get persistentvolumeclaims"] <= 0.5 * 60
    assert summary.requests <= 5.0
    assert summary.conflicts <= 0.02


def test_while_it_refuses_the_bids_of_the_first_nobody_else_asks() -> None:
    """What is refused is tried again. When that counted as a quick answer, it was 12.4 requests, 5.6 of them looks, and 0.16 conflicts.

    When a lag that was over went on putting turns off it was 0.02 conflicts, and a claim whose first node was dead waited for minutes.
    """
    counts, summary = squeezed(nodes=12, claims=120, server_requests=5.0, server_events=200.0)
    assert summary.bound == 120
    assert counts.requests["update persistentvolumeclaims"] > 2.0 * 120, "else it refused few"
    assert counts.requests["get persistentvolumeclaims"] <= 0.5 * 120
    assert summary.requests <= 6.5
    assert summary.conflicts <= 0.12, "turns that were put off come as soon as the lag is over, and two may then ask at once"


def test_nodes_that_are_dead_cost_time_there_and_few_requests() -> None:
    counts, summary = squeezed(nodes=12, claims=60, server_requests=5.0, server_events=25.0, dead=0.25)
    assert summary.bound == 60
    assert counts.requests["get persistentvolumeclaims"] <= 1.0 * 60
    assert summary.requests <= 5.0
    assert summary.conflicts <= 0.12, "before it was 0.28: two that ask at once both hear that it is open"
    assert summary.bound_longest <= 180.0
