import asyncio

import pytest

from hack.sim.clock import run_virtual
from hack.sim.world.records import CREATIONS, DELETIONS, MEASURES, MOST, WRITES, Asker, RequestLog
from sidecar.engine.backoff import Backoff
from sidecar.engine.loop import Loop


def test_who_asks_is_told_from_the_task_of_a_loop() -> None:
    async def story() -> dict[Asker, int]:
        log = RequestLog(asyncio.get_running_loop().time)

        async def handle(key: str) -> None:
            log.called("n0", 1, "CreateVolume", f"pvc-{key}")
            log.called("n0", 1, "GetCapacity", "")
            log.wrote("n0", 2)
            await asyncio.create_task(other())

        async def other() -> None:
            log.wrote("n0", 1)  # such as an event
            log.called("n0", 1, "GetCapacity", "")
            log.called("n0", 1, "DeleteVolume", "vol-1")

        loop: Loop[str] = Loop("claims", handle, workers=1, deadline=10.0, backoff=Backoff(1.0, 1.0))
        running = asyncio.create_task(loop.run())
        loop.add("a")
        await asyncio.sleep(5)
        running.cancel()
        return dict(log.busiest())

    assert run_virtual(story()) == {
        Asker("n0", 1, "claims a", CREATIONS): 1,
        Asker("n0", 1, "claims a", MEASURES): 1,
        Asker("n0", 2, "claims a", WRITES): 1,
        Asker("n0", 1, "vol-1, for which no loop asks", DELETIONS): 1,
    }


@pytest.mark.parametrize("over", [0, 1])
def test_too_many_are_told(over: int) -> None:
    async def story() -> list[str]:
        log = RequestLog(lambda: 7.0)
        asyncio.current_task().set_name("claims a")  # type: ignore[union-attr]
        for life in (1, 2):
            for _ in range(MOST[WRITES] + over * (life == 2)):
                log.wrote("n0", life)
        return list(log.too_many())

    assert run_virtual(story()) == [f"life 2 of n0 asked {MOST[WRITES] + 1} times in a minute for claims a: {WRITES}"] * over
