"""`hack/fire`: what it tells of a world that does not come to its end, and what it has found when it is interrupted."""

import signal
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
    result = fire.play_one(7, theme="claims", without=())
    assert (result.seed, result.violations) == (7, ("the world itself broke: KeyError('n0')",))
    said = fire.summary([result], replay="hack/fire --seed")
    assert "violations: the world itself broke in 1" in said and "hack/fire --seed 7    # the world itself broke" in said
    with pytest.raises(ExceptionGroup):
        fire.play_one(7, theme="claims", without=(), transcript=True)


def test_what_was_found_is_told_also_when_it_is_interrupted(
    fire: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After a night nobody wants to have waited for nothing."""

    class Ended(BaseException):
        pass

    def ended(status: int) -> None:
        raise Ended

    def result(seed: int, **_: Any) -> Any:
        if seed == 2:
            signal.raise_signal(signal.SIGINT)
        return fire.Result(seed, ("losses",), 5, frozenset({"lost"}), ("on purpose",) * seed)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(fire, "play_one", result)
    monkeypatch.setattr(fire.os, "_exit", ended)
    arguments = fire.argparse.Namespace(worlds="node-loss", seeds=10, start=0, jobs=1, without=[])
    try:
        with pytest.raises(Ended):
            fire.fire(arguments)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    told = capfd.readouterr().out
    assert told.startswith("2 worlds with 10 events") and "interrupted: 10 were asked for" in told.splitlines()[0]
    assert "  hack/fire --worlds node-loss --seed 1 " in told
