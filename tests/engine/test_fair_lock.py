import asyncio

import pytest

from hack.sim.clock import run_virtual
from sidecar.engine.fair_lock import FairLock
from sidecar.engine.grouped_line import CURRENT, Group, Whose


class Line:
    """Tasks that each hold the lock for a second."""

    def __init__(self) -> None:
        self.lock = FairLock()
        self.order: list[str] = []

    def join(self, name: str) -> "asyncio.Task[None]":
        return asyncio.create_task(self._hold(name))

    async def _hold(self, name: str) -> None:
        CURRENT.set(Whose(name[0], Group.NEW))
        async with self.lock:
            self.order.append(name)
            await asyncio.sleep(1.0)


def test_parties_take_turns_and_each_keeps_its_order():
    async def story():
        line = Line()
        for number in range(4):
            line.join(f"loud {number}")
        await asyncio.sleep(0.5)
        line.join("quiet 0"), line.join("quiet 1")
        await asyncio.sleep(10.0)
        return line.order

    assert run_virtual(story()) == ["loud 0", "loud 1", "quiet 0", "loud 2", "quiet 1", "loud 3"]


@pytest.mark.parametrize("at", [0.5, 1.0])
def test_who_is_cancelled_while_waiting_leaves_the_line_to_others(at: float):
    """At 1.0 the lock has just been handed to the one who is cancelled."""

    async def story():
        line = Line()
        line.join("a")
        gone = line.join("b")
        line.join("c")
        await asyncio.sleep(0.0)
        asyncio.get_running_loop().call_at(at, gone.cancel)
        await asyncio.sleep(5.0)
        return line.order, line.lock._locked

    for seed in range(10):
        order, locked = run_virtual(story(), seed=seed)
        assert [name for name in order if name != "b"] in (["a", "c"], ["c", "a"])
        assert not locked


def test_nobody_overtakes_one_to_whom_the_lock_is_being_handed():
    async def story():
        line = Line()
        first = line.join("a")
        await asyncio.sleep(0.5)
        line.join("b")
        await first
        line.join("c")
        await asyncio.sleep(5.0)
        return line.order

    assert run_virtual(story()) == ["a", "b", "c"]
