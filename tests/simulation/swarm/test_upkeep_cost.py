"""The reckoning of what rest and a roll cost the API server, held to what `hack/bench scale` has measured and to what the program does."""

import pytest

from sidecar.kube.client import open_client
from sidecar.local import claim_hearing_io, left_claims_io
from sidecar.ownership import controller
from sidecar.simulation.swarm import upkeep_cost
from sidecar.simulation.swarm.server_cost import ALL, LABELLED, SCOPES
from sidecar.simulation.swarm.upkeep_cost import rest_cost, roll_cost

NEAR = 0.2


@pytest.mark.parametrize(
    ("nodes", "scope", "volumes", "requests", "watches", "kilobytes", "milliseconds"),
    [
        (10, ALL, 1000, 8 + 1, 4, 255, 97),
    ],
)
def test_a_roll_is_as_measured(
    nodes: int, scope: str, volumes: int, requests: int, watches: int, kilobytes: float, milliseconds: float
) -> None:
    """The measured figures are for each instance, requests with the access review that came later; CPU without what the server took at
    rest."""
    roll = roll_cost(nodes, scope=scope, volumes=volumes)
    assert (roll.requests, roll.watches) == (nodes * requests, nodes * watches)
    assert 1000 * roll.megabytes / nodes == pytest.approx(kilobytes, rel=NEAR)
    assert 1000 * roll.seconds / nodes == pytest.approx(milliseconds, rel=NEAR)


def test_the_program_looks_as_often_as_is_reckoned() -> None:
    assert claim_hearing_io._WAITING_EVERY == upkeep_cost._WAITING_EVERY
    assert left_claims_io._AT_LEAST_EVERY == upkeep_cost._LEFT_EVERY
    assert pytest.approx(1.1 * controller._USUAL) == upkeep_cost._CONTENDERS_EVERY
    shortest, longest = open_client.__kwdefaults__["watch_seconds"]
    assert (shortest + longest) / 2 == upkeep_cost._SECONDS_OF_A_WATCH


@pytest.mark.parametrize("scope", SCOPES)
def test_who_draws_delays_by_chance_lists_no_contenders(scope: str) -> None:
    ranked, random = (roll_cost(100, scope=scope, volumes=0, ranked=ranked) for ranked in (True, False))
    assert ranked.requests - random.requests == 2 * 100
    at_rest = [rest_cost(100, scope=scope, volumes=0, ranked=ranked) for ranked in (True, False)]
    assert at_rest[1].kilobytes == 0.0 < at_rest[0].kilobytes


@pytest.mark.parametrize("scope", SCOPES)
def test_what_a_node_asks_for_at_rest_is_the_same_in_every_cluster_of_up_to_a_hundred(scope: str) -> None:
    each = [rest_cost(nodes, scope=scope, volumes=500).requests / nodes for nodes in (30, 100)]
    assert each[0] == pytest.approx(each[1])


def test_by_label_all_claims_and_volumes_are_listed_now_and_then() -> None:
    more, less = (rest_cost(1000, scope=LABELLED, volumes=volumes) for volumes in (20_000, 10_000))
    assert more.requests - less.requests == pytest.approx(20 * 100 / 1800), "a thousand nodes ask together as often as a hundred"
    assert more.kilobytes > 1.5 * less.kilobytes
    assert rest_cost(1000, scope=ALL, volumes=10_000) == rest_cost(1000, scope=ALL, volumes=0)


def test_by_label_a_start_lists_what_is_on_its_node_and_without_it_everything() -> None:
    more, less = (roll_cost(1000, scope=LABELLED, volumes=volumes) for volumes in (20_000, 10_000))
    assert more.requests == less.requests
    assert more.megabytes < 1.5 * less.megabytes
    wide = [roll_cost(1000, scope=ALL, volumes=volumes) for volumes in (20_000, 10_000)]
    assert wide[0].requests - wide[1].requests == 1000 * 2 * 20
    assert wide[0].megabytes > 1.8 * wide[1].megabytes


def test_a_small_list_is_sent_as_it_is_and_a_large_one_compressed() -> None:
    """600 contenders are less on the wire than 200."""
    assert roll_cost(600, scope=ALL, volumes=0).megabytes / 600 < roll_cost(200, scope=ALL, volumes=0).megabytes / 200
