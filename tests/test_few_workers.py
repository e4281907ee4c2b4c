"""`--worker-threads` may be small, and one namespace whose calls hang in the driver still leaves a worker to the others."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.equipment import LoopMaker
from sidecar.observe.metrics import Metrics


@pytest.mark.parametrize("workers", [2, 5, 9, 10, 100])
def test_calls_of_one_namespace_that_hang_hold_not_all_workers(workers: int) -> None:
    async def story() -> None:
        done: list[str] = []

        async def handle(key: str) -> float | None:
            await asyncio.sleep(1000 if key.startswith("loud") else 1)
            done.append(key)
            return None

        tools: Any = SimpleNamespace(metrics=Metrics("1"), retry=Backoff(1.0, 60.0), clock=asyncio.get_running_loop().time)
        loops = LoopMaker(tools, call_timeout=2000.0)
        loop = loops("claims", handle, workers=workers, attempts=Attempts(), party_of=lambda key: key.partition("/")[0])
        running = asyncio.create_task(loop.run())
        for number in range(2 * workers):
            loop.add(f"loud/{number}")
        await asyncio.sleep(1)
        loop.add("quiet/0")
        await asyncio.sleep(3)
        assert done == ["quiet/0"]
        running.cancel()

    run_virtual(story())
