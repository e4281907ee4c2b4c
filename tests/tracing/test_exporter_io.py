"""The task that sends spans: nobody waits for it, what it holds is bounded, and what is lost is counted. On virtual time."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.tracing.answers import Lost, Outcome, Taken, TryAgain
from sidecar.tracing.encoding import head_of
from sidecar.tracing.exporter_io import Exporter
from sidecar.tracing.waiting_spans import Bounds, WaitingSpans

HEAD = head_of({}, scope="s", version="1")
AWAY = TryAgain("it does not answer in time")


class Scripted:
    """Answers in turn, the last one for ever. `slow`: seconds that it takes."""

    def __init__(self, *answers: Outcome | Exception, slow: float = 0.0) -> None:
        self.answers, self.slow = list(answers) or [Taken()], slow
        self.batches: list[list[int]] = []
        self.times: list[float] = []

    async def send(self, body: bytes) -> Outcome:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.slow)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Taken):
            self.batches.append(json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"])
        return answer


def played(collector: Scripted, story: Callable[[Exporter], Coroutine[Any, Any, Any]], *, bounds: Bounds | None = None) -> Exporter:
    async def life() -> Exporter:
        clock = asyncio.get_running_loop().time
        exporter = Exporter(collector, WaitingSpans(bounds or Bounds()), HEAD, delay=5.0, rng=lambda: 0.0, clock=clock)
        task = asyncio.create_task(exporter.run())
        await story(exporter)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await exporter.flush(1.0)
        return exporter

    return run_virtual(life())


def put(exporter: Exporter, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        exporter.put(b"%d" % number)


def test_spans_wait_for_each_other_and_then_go_together() -> None:
    collector = Scripted()

    async def story(exporter: Exporter) -> None:
        await asyncio.sleep(60)
        put(exporter, 1)
        await asyncio.sleep(3)
        put(exporter, 1, first=1)
        await asyncio.sleep(3)
        assert collector.batches == [[0, 1]]
        await asyncio.sleep(60)

    played(collector, story)
    assert collector.batches == [[0, 1]]
    assert len(collector.times) == 1


@pytest.mark.parametrize("collector", [Scripted(AWAY), Scripted(AWAY, slow=10.0), Scripted(TryAgain("busy", 300.0)), Scripted(Lost("no"))])
def test_a_collector_that_takes_nothing_costs_spans_and_nothing_else(collector: Scripted) -> None:
    """For an hour: `put` returns at once, what is held is bounded, and the collector is asked ever less often."""
    bounds = Bounds(spans=50, size=200, batch=10, batch_size=100)
    count = 0

    async def story(exporter: Exporter) -> None:
        nonlocal count
        for _ in range(3600):
            before = asyncio.get_running_loop().time()
            put(exporter, 5, first=count)
            count += 5
            assert asyncio.get_running_loop().time() == before
            assert exporter.numbers().waiting <= 50
            await asyncio.sleep(1)

    numbers = played(collector, story, bounds=bounds).numbers()
    assert numbers.sent == 0
    assert sum(numbers.dropped.values()) + numbers.waiting == count
    if not isinstance(collector.answers[0], Lost):
        assert len(collector.times) <= 80


def test_it_is_tried_again_and_nothing_is_lost_or_sent_twice() -> None:
    collector = Scripted(AWAY, TryAgain("busy", 30.0), Taken())

    async def story(exporter: Exporter) -> None:
        put(exporter, 3)
        await asyncio.sleep(120)

    numbers = played(collector, story).numbers()
    assert collector.batches == [[0, 1, 2]]
    assert (numbers.sent, sum(numbers.dropped.values())) == (3, 0)
    assert collector.times[2] - collector.times[1] >= 30


def test_a_batch_is_not_tried_for_ever() -> None:
    collector = Scripted(AWAY, AWAY, AWAY, AWAY, AWAY, AWAY, Taken())

    async def story(exporter: Exporter) -> None:
        put(exporter, 1)
        await asyncio.sleep(600)
        put(exporter, 1, first=1)
        await asyncio.sleep(600)

    numbers = played(collector, story).numbers()
    assert collector.batches == [[1]]
    assert numbers.dropped["unreachable"] == 1


def test_a_bug_costs_a_batch_and_not_the_program(caplog: pytest.LogCaptureFixture) -> None:
    collector = Scripted(RuntimeError("bug"), Taken())

    async def story(exporter: Exporter) -> None:
        put(exporter, 2)
        await asyncio.sleep(10)
        put(exporter, 1, first=2)
        await asyncio.sleep(120)

    numbers = played(collector, story).numbers()
    assert collector.batches == [[2]]
    assert (numbers.sent, numbers.dropped["unreachable"], numbers.waiting) == (1, 2, 0)
    assert [line.message for line in caplog.records] == ["Bug: spans could not be sent"]


def test_what_is_left_is_sent_at_the_end_but_nobody_waits_long() -> None:
    quick, slow = Scripted(), Scripted(slow=30.0)

    async def story(exporter: Exporter) -> None:
        put(exporter, 1)
        await asyncio.sleep(0)

    assert played(quick, story).numbers().sent == 1
    ended: list[float] = []

    async def timed(exporter: Exporter) -> None:
        await story(exporter)
        ended.append(asyncio.get_running_loop().time())

    played(slow, timed)
    assert slow.times[-1] <= ended[0] + 1
