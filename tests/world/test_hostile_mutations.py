"""The bounds against tenants, drivers and forged files, broken on purpose: worlds or tests of rooms find each of them."""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.sim.world.world import play
from tests.world.hostile_mutations import HOSTILE_MUTATIONS, ROOM_MUTATIONS, RoomMutation
from tests.world.mutations import Mutation

MOST = 200
# Where they were found before, so that the search need not begin at 0. A seed that no longer finds one costs time and nothing else.
FOUND_BEFORE = {
    "large claims are held whole": 1,
    "a large claim is written over what others have made of it": 12,
    "any class that a claim names is a series": 6,
    "when a deletion began is kept for ever": 5,
    "any growth wakes all claims that found no room": 0,
    "secrets stay in what drivers say": 150,
    "a claim that leaves takes its pace along": 17,
    "whatever happens to a claim that fails counts at once": 9,
    "a claim that can never be made holds space back": 2,
    "a driver is believed about who made a volume": 21,
    "an answer that was lost is taken for a refusal": 19,
    "a denial is believed while an earlier call may be under way": 5,
    "a volume is given to two claims": 70,
    "a driver may name any number of places": 1,
    "what was begun under another name ends with the claim's volume": 5,
    "a line of the journal deletes what a PersistentVolume names": 42,
    "a line of the journal reads any Secret": 3,
}


@pytest.mark.parametrize("mutation", [pytest.param(each, id=each.name) for each in HOSTILE_MUTATIONS])
def test_a_world_finds_it(mutation: Mutation, monkeypatch: pytest.MonkeyPatch):
    seeds = sorted(range(MOST), key=lambda seed: seed != FOUND_BEFORE.get(mutation.name))
    with monkeypatch.context() as patch:
        mutation.breaks(patch)
        found = next((seed for seed in seeds if play(mutation.plan(seed)).kinds & mutation.kinds), None)
    assert found is not None, f"{MOST} worlds did not find that {mutation.name}"
    assert not play(mutation.plan(found)).kinds & mutation.kinds, "the unbroken rooms fail there, too"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The socket, as tests of the driver's door call it."""
    return tmp_path / "csi.sock"


@pytest.mark.parametrize("mutation", [pytest.param(each, id=f"{each.name}: {each.test.partition(':')[2]}") for each in ROOM_MUTATIONS])
def test_a_test_of_its_room_finds_it(mutation: RoomMutation, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Without the mutation the same test passes, in its own file."""
    test = _test(mutation.test)
    mutation.breaks(monkeypatch)
    given = mutation.given()
    fixtures = {name: request.getfixturevalue(name) for name in inspect.signature(test).parameters if name not in given}
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(**given, **fixtures)


def _test(where: str) -> Callable[..., None]:
    module, _, name = where.partition(":")
    found: Callable[..., None] = getattr(importlib.import_module(f"tests.{module}"), name)
    return found
