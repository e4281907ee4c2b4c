"""Tests that are coroutines: how they are run, and how they wait."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.lib.patience import patient


async def until(condition: Callable[[], Awaitable[Any] | Any], what: str, *, limit: float = 0.0) -> None:
    """Waits for it, on the clock of the loop, which may be virtual."""
    clock = asyncio.get_running_loop().time
    end = clock() + patient(limit)
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        assert clock() < end, f"in vain for {patient(limit):g} s: {what}"
        await asyncio.sleep(0.05)


def run_in_runner(test: pytest.Function) -> bool | None:
    """For `pytest_pyfunc_call`: a test that is a coroutine is run by the `asyncio.Runner` of its fixture `runner`."""
    if not inspect.iscoroutinefunction(test.obj):
        return None
    arguments = {name: test.funcargs[name] for name in inspect.signature(test.obj).parameters}
    test.funcargs["runner"].run(test.obj(**arguments))
    return True


def break_off(runner: asyncio.Runner) -> None:
    """Ends what is left of connections: one that was being opened when its task was cancelled would be closed by a loop that is gone."""

    async def abort() -> None:
        for transport in list(asyncio.get_running_loop()._transports.values()):  # type: ignore[attr-defined]
            transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    runner.run(abort())
