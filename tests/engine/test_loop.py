import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

import pytest

from hack.sim.clock import run_virtual
from sidecar.engine.backoff import Backoff
from sidecar.engine.loop import CANCEL_GRACE, WORK, Loop, NeedsWork

Handle = Callable[[str], Awaitable[float | None]]


def now() -> float:
    return asyncio.get_running_loop().time()


class NotebookLog:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, object, object]] = []

    def added(self, key: object) -> None:
        self.lines.append(("added", key, now()))

    def started(self, key: object, *, queued: float) -> None:
        self.lines.append(("started", key, queued))

    def finished(self, key: object, *, worked: float, ending: str) -> None:
        self.lines.append((ending, key, worked))


def a_loop(handle: Handle, *, workers: int = 1, deadline: float = 100.0, **rest: object) -> Loop[str]:
    return Loop("keys", handle, workers=workers, deadline=deadline, backoff=Backoff(start=1.0, cap=300.0), **rest)


def run_for(seconds: float, loop: Loop[str], script: Callable[[], Awaitable[None]] | str = "") -> None:
    """Run the loop beside a script in virtual time, or with one key, and stop it in good order."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run())
            if callable(script):
                group.create_task(script())
            elif script:
                loop.add(script)
            await asyncio.sleep(seconds)
            assert await loop.drain(1_000.0)

    run_virtual(main())


class Script:
    """A handler that keeps a record and plays its part for each key from a list of replies; after the last it settles."""

    def __init__(self, **replies: list[object]) -> None:
        self.seen: list[tuple[str, float]] = []
        self._replies = replies

    async def __call__(self, key: str) -> float | None:
        self.seen.append((key, now()))
        reply = self._replies[key].pop(0) if self._replies.get(key) else None
        if isinstance(reply, BaseException):
            raise reply
        return reply


def test_an_event_during_the_work_is_not_silenced_by_the_wait_it_returns():
    seen = []

    async def handle(key: str) -> float | None:
        seen.append(now())
        await asyncio.sleep(10.0)
        return 80.0 if len(seen) == 1 else None

    loop = a_loop(handle, workers=5)

    async def script() -> None:
        loop.add("a")
        await asyncio.sleep(3.0)
        loop.add("a")
        loop.add("a")

    run_for(100.0, loop, script)
    assert seen == [0.0, 10.0]


def test_there_are_never_more_handlers_than_workers_nor_two_for_one_key():
    running: list[str] = []
    most = 0

    async def handle(key: str) -> None:
        nonlocal most
        assert key not in running
        running.append(key)
        most = max(most, len(running))
        await asyncio.sleep(1.0)
        running.remove(key)

    loop = a_loop(handle, workers=4)

    async def script() -> None:
        for round in range(3):
            for number in range(10):
                loop.add(f"{number}")
            await asyncio.sleep(0.4 + round)

    run_for(100.0, loop, script)
    assert most == 4
    assert loop.retries == 0


def test_a_thousand_waiting_keys_hold_no_worker():
    finished = {}

    async def handle(key: str) -> float | None:
        if key == "urgent" or now() > 0.0:
            finished[key] = now()
            return None
        return 1_000.0

    loop = a_loop(handle)

    async def script() -> None:
        for number in range(1_000):
            loop.add(f"waits {number}")
        await asyncio.sleep(1.0)
        assert (loop.counts().delayed, loop.counts().held) == (1_000, 0)
        assert len(asyncio.all_tasks()) == 3, "this one, its parent and the dispatcher"
        loop.add("urgent")

    run_for(2_000.0, loop, script)
    assert finished.pop("urgent") == 1.0
    assert set(finished.values()) == {1_000.0}
    assert len(finished) == 1_000


class Woken(Loop[str]):
    """Notes the times at which its dispatcher was awake."""

    def _dispatch(self) -> None:
        self.times = [*getattr(self, "times", []), now()]
        super()._dispatch()


def woken_loop() -> Woken:
    return Woken("keys", Script(), workers=100, deadline=1.0, backoff=Backoff(start=1.0, cap=1.0))


def test_an_idle_loop_never_wakes_up():
    loop = woken_loop()
    run_for(86_400.0, loop)
    assert loop.times == [0.0]


def test_a_crash_is_logged_once_and_tried_again_later_and_others_do_not_notice(caplog):
    handler = Script(bad=[RuntimeError("boom"), KeyError("again"), RuntimeError("boom")])
    loop = a_loop(handler)

    async def script() -> None:
        loop.add("bad")
        loop.add("good")
        await asyncio.sleep(2.0)
        assert [(row.key, row.attempts) for row in loop.snapshot()] == [("bad", 2)]

    run_for(100.0, loop, script)
    assert handler.seen == [("bad", 0.0), ("good", 0.0), ("bad", 1.0), ("bad", 3.0), ("bad", 7.0)]
    assert loop.retries == 3
    assert [(r.getMessage(), r.key, r.error, r.attempt, r.retry_in) for r in caplog.records] == [
        ("Handler crashed", "bad", "RuntimeError", 1, 1.0),
        ("Handler crashed", "bad", "KeyError", 2, 2.0),
        ("Handler crashed", "bad", "RuntimeError", 3, 4.0),
    ]
    assert all(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


def test_the_handlers_own_failures_are_forgotten_when_it_settles():
    seen = []

    async def handle(key: str) -> float | None:
        seen.append(now())
        if len(seen) in (1, 2, 4):
            return now() + 10.0 * (1 + loop.attempts.next(key))
        return None

    loop = a_loop(handle)

    async def script() -> None:
        loop.add("a")
        await asyncio.sleep(50.0)
        loop.add("a")

    run_for(100.0, loop, script)
    assert seen == [0.0, 10.0, 30.0, 50.0, 60.0]
    assert (loop.retries, loop.attempts.count("a")) == (3, 0)


def test_a_handler_past_its_deadline_is_cancelled_and_tried_again(caplog):
    seen, cancelled = [], []

    async def handle(key: str) -> None:
        seen.append(now())
        try:
            await asyncio.sleep(50.0 if len(seen) == 1 else 1.0)
        except asyncio.CancelledError:
            cancelled.append(now())
            raise

    diary = NotebookLog()
    loop = a_loop(handle, deadline=10.0, observer=diary)
    run_for(100.0, loop, "slow")
    assert (seen, cancelled) == ([0.0, 11.0], [10.0])
    assert [(r.getMessage(), r.key) for r in caplog.records] == [("Handler exceeded its deadline and was cancelled", "slow")]
    assert ("overdue", "slow", 10.0) in diary.lines


def test_what_looks_like_an_end_is_a_crash_and_loses_no_key(caplog):
    """A time that never comes; a future that somebody else cancels, as if the handler were; a timeout of the handler's own."""
    for reply, error in [(math.inf, "ValueError"), (asyncio.CancelledError(), "CancelledError"), (TimeoutError("a call"), "TimeoutError")]:
        caplog.clear()
        handler = Script(a=[reply])
        run_for(100.0, a_loop(handler), "a")
        assert handler.seen == [("a", 0.0), ("a", 1.0)]
        assert [(record.getMessage(), record.error) for record in caplog.records] == [("Handler crashed", error)]


def test_after_stop_nothing_new_starts_and_run_ends_with_what_is_held():
    finished = []

    async def handle(key: str) -> None:
        await asyncio.sleep(float(key))
        finished.append((key, now()))

    async def main() -> float:
        loop = a_loop(handle, workers=2)
        for key in ("5", "8", "1"):
            loop.add(key)
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(1.0)
        loop.stop_taking()
        loop.add("2")
        await running
        assert [row.key for row in loop.snapshot()] == ["1", "2"]
        return now()

    assert run_virtual(main()) == 8.0
    assert finished == [("5", 5.0), ("8", 8.0)]


def test_drain_cancels_what_takes_too_long():
    tidied = []

    async def handle(key: str) -> None:
        try:
            await asyncio.sleep(50.0)
        finally:
            await asyncio.sleep(2.0)
            tidied.append((key, now()))

    diary = NotebookLog()

    async def main() -> float:
        loop = a_loop(handle, observer=diary)
        loop.add("slow")
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(1.0)
        assert not await loop.drain(10.0)
        await running
        assert loop.snapshot() == []
        return now()

    assert run_virtual(main()) == 13.0
    assert tidied == [("slow", 13.0)]
    assert diary.lines[-1] == ("cancelled", "slow", 13.0)


def test_a_handler_that_ignores_being_cancelled_does_not_hold_up_the_end(caplog):
    async def handle(key: str) -> None:
        try:
            await asyncio.sleep(500.0)
        except asyncio.CancelledError:
            await asyncio.sleep(500.0)

    async def main() -> float:
        loop = a_loop(handle, deadline=10_000.0)
        loop.add("stubborn")
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(1.0)
        assert not await loop.drain(10.0)
        await running
        return now()

    assert run_virtual(main()) == 11.0 + CANCEL_GRACE
    assert [(r.getMessage(), r.key) for r in caplog.records] == [("Handler did not end although it was cancelled", "stubborn")]


def test_cancelling_run_cancels_the_handlers_once():
    tidied = []

    async def handle(key: str) -> None:
        try:
            await asyncio.sleep(50.0)
        finally:
            await asyncio.sleep(2.0)
            tidied.append(now())

    async def main() -> None:
        loop = a_loop(handle)
        loop.add("a")
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(1.0)
        draining = asyncio.create_task(loop.drain(0.0))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not await draining

    run_virtual(main())
    assert tidied == [3.0]


def test_a_glance_that_is_enough_takes_no_worker() -> None:
    glances: list[tuple[str, float]] = []

    def glance(key: str) -> float | NeedsWork | None:
        glances.append((key, now()))
        return WORK if key == "big" else now() + 5.0 if len(glances) == 1 else None

    worker, diary = Script(big=[None]), NotebookLog()
    loop = a_loop(worker, glance=glance, observer=diary)

    async def script() -> None:
        loop.add("small")
        loop.add("big")
        loop.attempts.next("small")

    run_for(20.0, loop, script)
    assert glances == [("small", 0.0), ("big", 0.0), ("small", 5.0)]
    assert worker.seen == [("big", 0.0)]
    assert [line[0] for line in diary.lines if line[1] == "small"] == ["added", "started", "added", "waits", "started", "settled"]
    assert loop.attempts.count("small") == 0


@pytest.mark.parametrize("seen", [ZeroDivisionError("no"), math.nan])
def test_a_glance_that_crashes_is_tried_again_as_a_handler_is(seen: float | Exception) -> None:
    times = []

    def glance(key: str) -> float | None:
        times.append(now())
        if isinstance(seen, Exception):
            raise seen
        return seen

    worker = Script()
    loop = a_loop(worker, glance=glance)
    run_for(10.0, loop, "key")
    assert times == [0.0, 1.0, 3.0, 7.0] and worker.seen == []
    assert loop.retries == 4
