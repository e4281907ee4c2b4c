"""Tests that are coroutines, in virtual time."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from hack.sim.clock import run_virtual

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def virtual(test: AsyncTest) -> Callable[..., None]:
    """Hours take a moment, and time is exact; sockets and threads are refused."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        run_virtual(test(*args, **fixtures), limit=1e6)

    return run


def staged(play: Callable[[AsyncTest], None], story: AsyncTest) -> Callable[[], None]:
    """A test to which `play` gives its scene, which is no fixture that pytest would look for."""

    def run() -> None:
        play(story)

    run.__name__, run.__doc__, run.__module__ = story.__name__, story.__doc__, story.__module__
    return run
