"""`hack/fire`: what it tells of a world that does not come to its end."""

from types import ModuleType
from typing import Any

import pytest

from hack.lib.scripts import script
from hack.sim.world import world


@pytest.fixture(scope="module")
def fire() -> ModuleType:
    return script("fire")


def _breaks(plan: Any) -> None:
    raise ExceptionGroup("tasks", [ExceptionGroup("tasks", [KeyError("n0")])])


def test_a_world_that_breaks_is_told_with_its_seed(fire: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "play", _breaks)
    result = fire.play_one(fire.Order("claims", 7, 0, ()))
    assert (result.seed, result.violations) == (7, ["the world itself broke: KeyError('n0')"])
    totals = fire.Totals()
    totals.add(result)
    said = fire.summary(totals, seconds=1.0, replay="hack/fire --seed")
    assert "violations: the world itself broke in 1" in said and "hack/fire --seed 7    # the world itself broke" in said


def test_with_its_seed_alone_all_of_it_is_told(fire: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "play", _breaks)
    with pytest.raises(ExceptionGroup):
        fire.play_one(fire.Order("claims", 7, 0, ()), transcript=True)
