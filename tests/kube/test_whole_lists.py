"""Each node asks for all objects the less often, the more nodes there are: together they ask as often as a hundred nodes do."""

import pytest

from sidecar.kube.whole_lists import WholeList, whole_lists_apart

HALF_AN_HOUR = 1800.0


@pytest.mark.parametrize("nodes", [None, 0, 1, 99, 100])
def test_in_a_small_cluster_it_is_every_half_hour(nodes: int | None) -> None:
    assert whole_lists_apart(nodes) == HALF_AN_HOUR


@pytest.mark.parametrize("nodes", [200, 500, 1000, 2400])
def test_many_nodes_ask_together_as_often_as_a_hundred(nodes: int) -> None:
    assert nodes / whole_lists_apart(nodes) == pytest.approx(100 / HALF_AN_HOUR)


def test_twice_a_day_it_is_anywhere() -> None:
    assert whole_lists_apart(100_000) == 12 * 3600.0


def test_it_is_put_off_when_it_becomes_known_that_there_are_many() -> None:
    """Nodes that start together do not know yet how many they are."""
    whole = WholeList(10.0, 0.5)
    assert (whole.due(None), whole.due(1000)) == (910.0, 9010.0)
