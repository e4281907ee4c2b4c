"""Tests that are coroutines: in real time, on real sockets."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
LIMIT = 120.0
"""Seconds after which a test in real time hangs. None takes a tenth of it."""


def _is_ours(context: dict[str, Any]) -> bool:
    """Not what grpc.aio's one poller hears for a loop of an earlier test: the program has one loop."""
    return "PollerCompletionQueue" not in f"{context.get('message')} {context.get('handle')!r}"


def run(main: Coroutine[Any, Any, T]) -> T:
    """Not for ever, and nothing may be left behind: no task, no socket, no complaint of the event loop."""
    complaints: list[dict[str, Any]] = []

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context) if _is_ours(context) else None)
        async with asyncio.timeout(LIMIT):
            result = await main
        gc.collect()  # gRPC's servers clean up when they are collected, and then need the loop they were made in
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with warnings.catch_warnings(record=True) as leaks:
        warnings.simplefilter("always")
        result = asyncio.run(watched())
        gc.collect()
    assert [str(leak.message) for leak in leaks] == []
    assert complaints == []
    return result


async def until(condition: Callable[[], object]) -> None:
    """Waits for what comes to be outside of this loop's control; the limit of `run` ends it."""
    while not condition():
        await asyncio.sleep(0.005)


def real(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def played(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return played
