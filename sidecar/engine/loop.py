"""Workers over a queue: gives each due key to the handler, a bounded number at a time, each with a deadline.

One dispatcher takes due keys while a worker is free, and starts one task for each. A free worker is a number and not a task, so a hundred
of them cost nothing. The dispatcher sleeps until a key is added, a task ends, or the earliest key becomes due; it never polls. A key that
waits is a row in the queue and keeps no worker.

Most keys turn out to need nothing that must be awaited. So a loop may have a `glance`, which is called first and without a task: a task
costs more than most decisions. Only a key that needs more gets a worker.

Everything runs on the event loop's thread. The loop does not know what a key means: the handler returns when to look at it again, and
decides what a failure means. Only a handler that raises is retried by the loop.
"""

import asyncio
import contextvars
import logging
import math
from collections.abc import Awaitable, Callable, Hashable
from enum import Enum
from typing import Final, Generic, Literal, Protocol, TypeVar

from sidecar.engine.backoff import Attempts, Backoff
from sidecar.engine.grouped_line import CURRENT
from sidecar.engine.queue import Counts, Row, WorkQueue

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

Ending = Literal["settled", "waits", "crashed", "overdue", "cancelled"]

# Cancelled handlers may clean up for so long. One that ignores its cancellation must not delay the end of the program.
CANCEL_GRACE = 5.0


# After so many glances in a row the event loop runs other tasks.
_MOST_GLANCES = 100


class NeedsWork(Enum):
    """What a glance returns if the key must be handled."""

    WORK = "work"


WORK: Final = NeedsWork.WORK


class Observer(Protocol):
    """Callbacks for metrics. They must neither block nor raise."""

    def added(self, key: object) -> None:
        """A key was added that was not in the queue already."""

    def started(self, key: object, *, queued: float) -> None:
        """A worker took the key, `queued` seconds after it became due."""

    def finished(self, key: object, *, worked: float, ending: Ending) -> None:
        """The handler ended, `worked` seconds after it was started."""


class Quiet:
    """The observer of a loop without metrics."""

    def added(self, key: object) -> None:
        pass

    def started(self, key: object, *, queued: float) -> None:
        pass

    def finished(self, key: object, *, worked: float, ending: Ending) -> None:
        pass


class Overdue(TimeoutError):
    """The handler's deadline has passed, as opposed to a TimeoutError that the handler raised itself."""


class Loop(Generic[K]):
    """Drives one queue. `handle` returns the time on `clock` at which to look at the key again, or None. `glance` returns the same without
    awaiting anything, or `WORK` if the key must be handled; in that case it must not have changed anything.

    `attempts` is for the handlers' own failures (`backoff.delay(loop.attempts.next(key))`) and is reset when a handler returns None.
    Crashes are counted apart and reset as soon as the handler returns at all: otherwise a key that always waits, and crashes once a year,
    would reach the longest back-off in the end.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[K], Awaitable[float | None]],
        *,
        workers: int,
        deadline: float,
        backoff: Backoff,
        glance: Callable[[K], float | NeedsWork | None] = lambda key: WORK,
        queue: WorkQueue[K] | None = None,
        attempts: Attempts[K] | None = None,
        clock: Callable[[], float] | None = None,
        observer: Observer | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"loop {name} needs at least one worker, not {workers}")
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue() if queue is None else queue
        self.attempts: Attempts[K] = Attempts() if attempts is None else attempts
        self._crashes: Attempts[K] = Attempts()
        self._handle = handle
        self._glance = glance
        self._workers = workers
        self._deadline = deadline
        self._backoff = backoff
        self._clock = clock if clock is not None else _loop_time
        self._observer: Observer = observer if observer is not None else Quiet()
        self._tasks: dict[asyncio.Task[float | None], K] = {}
        self._wake = asyncio.Event()
        self._taking = True
        self._abandoned = False

    def add(self, key: K, at: float | None = None) -> None:
        """Have the key handled at `at`, or as soon as a worker is free. To be called on the event loop's thread only."""
        now = self._clock()
        # A time in the past becomes now: the key must not overtake others, nor seem to have waited in the queue since then.
        if self.queue.add(key, now if at is None else max(at, now)):
            self._observer.added(key)
        self._wake.set()

    async def run(self) -> None:
        """Run until `stop_taking`, and then until the last handler has ended. If cancelled, it cancels the handlers."""
        try:
            while self._taking or (self._tasks and not self._abandoned):
                self._wake.clear()
                if self._dispatch():
                    await asyncio.sleep(0)  # other tasks must run even if each glance wants another one at once
                else:
                    await self._woken()
        finally:
            self._taking = False
            await self._cancel_held()

    def stop_taking(self) -> None:
        """Start no more handlers. Keys may still be added; they stay in the queue."""
        self._taking = False
        self._wake.set()

    async def drain(self, timeout: float) -> bool:
        """Stop taking, wait for the running handlers, and cancel those that still run after `timeout`. True if none was cancelled."""
        self.stop_taking()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        in_time = not self._tasks
        await self._cancel_held()
        return in_time

    def counts(self) -> Counts:
        return self.queue.counts(self._clock())

    @property
    def retries(self) -> int:
        """All failures so far, the handlers' own and crashes, for metrics. A handler that waits has not failed."""
        return self.attempts.total + self._crashes.total

    def failures(self, key: K) -> int:
        """In a row, the handlers' own and crashes."""
        return self.attempts.count(key) + self._crashes.count(key)

    def snapshot(self) -> list[Row[K]]:
        return self.queue.snapshot(self._clock(), attempts=self.failures)

    def _dispatch(self) -> bool:
        """Take keys while workers are free. Returns whether a glance settled some."""
        glanced = 0
        while glanced < _MOST_GLANCES and self._has_slot() and (key := self.queue.take(self._clock())) is not None:
            self._observer.started(key, queued=self.queue.hold(key).queued)
            seen = self._look_quickly(key)
            if seen is WORK:
                self._start(key)
            else:
                glanced += 1
                self._conclude(key, seen)
        return glanced > 0

    def _look_quickly(self, key: K) -> float | NeedsWork | Exception | None:
        try:
            seen = self._glance(key)
            return seen if seen is WORK else _checked(seen)
        except Exception as error:  # noqa: BLE001 - counts as a crash of the handler
            return error

    def _start(self, key: K) -> None:
        context = contextvars.copy_context()
        context.run(CURRENT.set, self.queue.hold(key).whose)
        task = asyncio.create_task(self._bounded(key), name=f"{self.name} {key}", context=context)
        self._tasks[task] = key
        task.add_done_callback(self._end)

    def _has_slot(self) -> bool:
        return self._taking and len(self._tasks) < self._workers

    async def _woken(self) -> None:
        """Sleep until `_wake` is set, or until the next key is due if a worker is free for it."""
        timer = None
        if self._has_slot() and (at := self.queue.next_at()) is not None:
            # An interval and not a time, because the event loop's clock may be another one.
            timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock()), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _bounded(self, key: K) -> float | None:
        limit = asyncio.timeout(self._deadline)
        try:
            async with limit:
                return _checked(await self._handle(key))
        except TimeoutError as error:
            if limit.expired():
                raise Overdue(f"not done within {self._deadline:g} s") from error.__cause__  # which shows where it hung
            raise

    def _end(self, task: asyncio.Task[float | None]) -> None:
        """A done callback, so that the key is given back however the task ended."""
        key = self._tasks.pop(task)
        if task.cancelled():
            self._conclude(key, asyncio.CancelledError())
        else:
            self._conclude(key, task.exception() or task.result())
        self._wake.set()

    def _conclude(self, key: K, outcome: float | BaseException | None) -> None:
        worked = self.queue.done(key, self._clock())
        ending = self._file(key, outcome)
        self._observer.finished(key, worked=worked, ending=ending)

    def _file(self, key: K, outcome: float | BaseException | None) -> Ending:
        """Put the key back into the queue, or forget it, as the outcome requires."""
        if isinstance(outcome, asyncio.CancelledError) and not self._taking:
            return "cancelled"
        if isinstance(outcome, BaseException):  # also CancelledError, if what the handler awaited was cancelled elsewhere
            return self._retry(key, outcome)
        self._crashes.forget(key)
        if outcome is None:
            self.attempts.forget(key)
            return "settled"
        self.add(key, outcome)
        return "waits"

    def _retry(self, key: K, error: BaseException) -> Ending:
        attempt = self._crashes.next(key)
        delay = self._backoff.delay(attempt)
        fields = {"loop": self.name, "key": str(key), "error": type(error).__name__, "attempt": attempt + 1, "retry_in": delay}
        self.add(key, self._clock() + delay)
        if isinstance(error, Overdue):
            log.error("Handler exceeded its deadline and was cancelled", extra=fields, exc_info=error)
            return "overdue"
        log.error("Handler crashed", extra=fields, exc_info=error)
        return "crashed"

    async def _cancel_held(self) -> None:
        if self._abandoned:
            return
        for task in self._tasks:
            if not task.cancelling():  # a second cancel would interrupt the clean-up that the first one began
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_GRACE)
        self._abandoned = True
        self._wake.set()
        for key in self._tasks.values():
            log.error("Handler did not end although it was cancelled", extra={"loop": self.name, "key": str(key)})


def _checked(until: float | None) -> float | None:
    if until is not None and not math.isfinite(until):
        raise ValueError(f"the handler returned {until} as the time to look again")
    return until


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
