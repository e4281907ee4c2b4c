"""An event loop whose clock jumps: when nothing can run, it is at once the time of the next timer.

    elapsed = run_virtual(main())      # main() may sleep for an hour; this takes a millisecond

A test can then assert how much time passed, exactly, on `asyncio.get_running_loop().time()`, which starts at 0. What can
never happen is refused instead of waited for: `Deadlock` when nothing is left that could wake anybody, `Runaway` when time
stands still for ever or runs past the limit. Sockets and threads live in real time, where a jump leaps past every
deadline, so they are refused too.

Equal programs run equally: tasks are numbered, and sets of them, of which asyncio is full, are walked by number and not by
address. With a seed, what is ready at one instant runs in an order drawn from it, so that no program can rely on more than
it awaits; the same seed always gives the same order.
"""

import asyncio
import itertools
import math
import random
import selectors
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

# Rounds of the event loop at one instant. A test that needs more is running in a circle.
MAX_ROUNDS_PER_INSTANT = 500_000


EPOCH = 1_767_225_600.0
"""The wall clock when virtual time begins."""


class Deadlock(RuntimeError):
    """Everybody waits, and nothing is scheduled."""


class Runaway(RuntimeError):
    """The test would never end."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self, *, limit: float, seed: int | str | None = None) -> None:
        self._virtual_now = 0.0
        self._limit = limit
        self._rounds = 0
        self._dice = None if seed is None else random.Random(f"order {seed}")
        super().__init__(_NoWaiting(self))
        self._move_to(0.0)
        numbers = itertools.count()
        self.set_task_factory(lambda loop, coro, **options: _NumberedTask(coro, loop=loop, number=next(numbers), **options))

    def time(self) -> float:
        return self._virtual_now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise RuntimeError(f"virtual time does not wait for threads: run_in_executor({func!r})")

    def pass_time(self, timeout: float | None) -> None:
        """Called by asyncio when it would sleep: 0 means that callbacks are ready, None that no timer is set."""
        if timeout is None:
            raise Deadlock(f"at {self._virtual_now:g} s everybody waits and nothing is scheduled; waiting: {self._waiting()}")
        if timeout > 0:
            # The timer's own time and not now + timeout, whose rounding would spoil exact comparisons.
            self._move_to(max(self._virtual_now, self._scheduled[0].when()))  # type: ignore[attr-defined]
            self._rounds = 0
        elif self._dice is not None:
            self._shuffle(self._dice)
        self._rounds += 1
        if self._virtual_now > self._limit:
            raise self._runaway(f"virtual time went past the limit of {self._limit:g} s; waiting: {self._waiting()}")
        if self._rounds > MAX_ROUNDS_PER_INSTANT:
            raise self._runaway(f"time stands still at {self._virtual_now:g} s while callbacks keep each other busy")

    def _move_to(self, now: float) -> None:
        self._virtual_now = now
        # asyncio runs timers that are due within so long of now, and this clock does not move by itself meanwhile: whoever has a timer that
        # is a hair later than now would be woken without end before it is due.
        self._clock_resolution = math.ulp(now)

    def _shuffle(self, dice: random.Random) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            order = list(ready)
            dice.shuffle(order)
            ready.clear()
            ready.extend(order)

    def _runaway(self, why: str) -> Runaway:
        self._limit, self._rounds = 2 * self._virtual_now + 60.0, 0  # asyncio now cancels all tasks, which takes time too
        return Runaway(why)

    def _waiting(self) -> str:
        places = [(task.get_name(), task.get_stack(limit=1)) for task in asyncio.all_tasks(self)]
        told = [f"{name} at {at[0].f_code.co_filename}:{at[0].f_lineno}" if at else f"{name} not started" for name, at in places]
        return ", ".join(sorted(told)) or "no task"


class _NumberedTask(asyncio.Task[T]):
    """Its place in a set is the same in every run."""

    def __init__(self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], *, number: int, **options: Any) -> None:
        self._number = number  # first: a task's hash is asked for while it is being made
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _NoWaiting(selectors.DefaultSelector):
    """Never sleeps: it hands the request to sleep to the clock. Knows no file but asyncio's own wake-up pipe."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.get_map():
            raise RuntimeError(f"virtual time and real files do not mix: {fileobj!r}")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.pass_time(timeout)
        return []


def run_virtual(main: Coroutine[Any, Any, T], *, limit: float = 7 * 86_400.0, seed: int | str | None = None) -> T:
    """`asyncio.run` in virtual time. `limit` is the virtual time at which it is given up; `seed` draws the order of what is ready."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(limit=limit, seed=seed)) as runner:
        return runner.run(main)
