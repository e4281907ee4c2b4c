"""At rest one look for what gone nodes have left is not held against the program; anything more is."""

from collections import Counter

import pytest

from hack.sim.world.hourly_look import Asked, without_one_look
from sidecar.kube.api import CAPACITIES, CSI_NODES, NODES

LEFT = {"a": "gone", "b": "gone", "c": "gone-too"}


def look(by: str) -> Asked:
    gone = sorted(set(LEFT.values()))
    asked = Counter({(by, f"get {NODES} {node}"): 2 for node in gone})
    asked |= Counter({(by, f"get {CSI_NODES} {node}"): 1 for node in gone})
    return asked | Counter({(by, f"delete {CAPACITIES} {name}"): 1 for name in LEFT})


def test_one_look_of_one_node_does_not_count() -> None:
    assert without_one_look(look("n1"), LEFT) == Counter()
    assert without_one_look(Counter(), LEFT) == Counter()


def test_a_second_look_counts_whoever_makes_it() -> None:
    assert without_one_look(look("n1") + look("n1"), LEFT) == look("n1")
    assert without_one_look(look("n1") + look("n2"), LEFT) in (look("n1"), look("n2"))


@pytest.mark.parametrize(
    "what",
    [
        f"get {NODES} n2",
        f"get {CSI_NODES} n2",
        f"delete {CAPACITIES} of-n2",
        f"update {CAPACITIES} a",
        f"list {CAPACITIES}",
        "get persistentvolumes gone",
        "delete persistentvolumes a",
    ],
)
def test_what_is_no_part_of_a_look_counts(what: str) -> None:
    assert without_one_look(look("n1") + Counter({("n1", what): 1}), LEFT) == Counter({("n1", what): 1})


def test_where_nothing_was_left_nothing_is_excused() -> None:
    assert without_one_look(look("n1"), {}) == look("n1")
