import asyncio
import time

import pytest

from sidecar.engine.stalls import PERIOD, watch
from sidecar.simulation.clock import run_virtual


def test_a_loop_that_stands_still_is_measured() -> None:
    async def main() -> list[float]:
        seen: list[float] = []
        task = asyncio.create_task(watch(seen.append, period=0.01))
        await asyncio.sleep(0.03)
        time.sleep(0.15)  # noqa: ASYNC251 - which is what must not happen
        await asyncio.sleep(0.03)
        task.cancel()
        return seen

    seen = asyncio.run(main())
    assert max(seen) > 0.13
    assert sum(late > 0.1 for late in seen) == 1, "one stall is one, and not one for each period"


def test_a_loop_that_runs_is_not_late() -> None:
    async def main() -> list[float]:
        seen: list[float] = []
        task = asyncio.create_task(watch(seen.append))
        await asyncio.sleep(100.1 * PERIOD)
        task.cancel()
        return seen

    seen = run_virtual(main())
    assert len(seen) == 100
    assert max(seen) == pytest.approx(0.0, abs=1e-3)
