"""The rooms of drain broken on purpose: drain worlds find every mutation, where they find nothing wrong with the rooms as they are."""

from functools import cache

import pytest

from hack.sim.drains.drain_world import plan_of, play
from tests.world.drain_mutations import DRAIN_MUTATIONS
from tests.world.mutations import Mutation

MOST = 120
# Where they were found before, so that the search need not begin at 0. A seed that no longer finds one costs time and nothing else.
FOUND_BEFORE = {
    "only pods with a node are seen": 1,
    "what a pod mounts here is taken to lie elsewhere": 5,
    "a volume that two nodes reach counts for neither": 15,
    "labels outrank the driver's own list": 34,
    "a snapshot without a place counts nowhere": 34,
    "what an earlier process said stays at the start": 5,
    "what an earlier process said stays while the driver is dead": 115,
    "no gate stands in peace": 1,
    "an announced reboot needs no cordon": 25,
    "an announced reboot does not end with the uncordon": 96,
    "what kured leaves behind counts at every cordon": 96,
    "the guard leaves a node that does not answer": 25,
    "a claim that a pod owns is taken for an ephemeral volume": 23,
    "an acknowledgement is never void": 80,
    "every volume that is heard of is noted as lying here": 0,
    "a cordon is noted as the node's leaving": 1,
    "whatever names this node is a creation under way": 6,
    "tenants hold up nodes though they may not": 4,
    "a volume whose label no node has counts on all of them": 9,
}


@cache
def unbroken(seed: int) -> frozenset[str]:
    """What the world of this seed finds wrong with the rooms as they are. Several mutations share a seed."""
    return frozenset(play(plan_of(seed)).kinds)


@pytest.mark.parametrize("mutation", [pytest.param(each, id=each.name) for each in DRAIN_MUTATIONS])
def test_it_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch):
    seeds = sorted(range(MOST), key=lambda seed: seed != FOUND_BEFORE.get(mutation.name))
    with monkeypatch.context() as patch:
        mutation.breaks(patch)
        found = next((seed for seed in seeds if play(plan_of(seed)).kinds & mutation.kinds), None)
    assert found is not None, f"{MOST} worlds did not find that {mutation.name}"
    assert not unbroken(found) & mutation.kinds, "the unbroken rooms fail there, too"
