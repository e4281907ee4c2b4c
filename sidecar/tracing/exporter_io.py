"""Sends what waits, batch by batch, in a task of its own. A collector that is slow, dead or hostile costs spans, and nothing else."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, assert_never

from sidecar.engine.backoff import Backoff, jittered
from sidecar.tracing.answers import Lost, Outcome, Taken, TryAgain
from sidecar.tracing.encoding import body_of
from sidecar.tracing.numbers import SpanNumbers
from sidecar.tracing.waiting_spans import WaitingSpans

log = logging.getLogger(__name__)

# One batch is tried so often. Meanwhile the newer ones wait, or find no place.
MOST_TRIES: Final = 6
_RETRY: Final = Backoff(start=1.0, cap=60.0)
_SPREAD: Final = 0.5
_AFTER_A_BUG: Final = 60.0
# Seconds between two lines of the log that say that it does not work.
_SELDOM: Final = 600.0

Sleep = Callable[[float], Awaitable[None]]


class Sends(Protocol):
    async def send(self, body: bytes) -> Outcome: ...


class Exporter:
    def __init__(
        self,
        collector: Sends,
        waiting: WaitingSpans,
        head: bytes,
        *,
        delay: float,
        rng: Callable[[], float],
        clock: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`head` stands before the spans of each request; `delay`: a span waits so long for others, more or less."""
        self._collector = collector
        self._waiting = waiting
        self._head = head
        self._delay = delay
        self._rng = rng
        self._clock = clock
        self._sleep = sleep
        self._some, self._full = asyncio.Event(), asyncio.Event()
        self._in_hand: list[bytes] = []
        self._posting: asyncio.Task[Outcome] | None = None
        self._failures = 0
        self._is_told, self._silent_until = False, -math.inf
        self.sent = self.refused = self.unreachable = 0

    def put(self, span: bytes) -> None:
        self._waiting.put(span)
        self._some.set()
        if self._waiting.has_batch:
            self._full.set()

    def numbers(self) -> SpanNumbers:
        dropped = {"no-room": self._waiting.dropped, "refused": self.refused, "unreachable": self.unreachable}
        return SpanNumbers(sent=self.sent, dropped=dropped, waiting=len(self._waiting) + len(self._in_hand))

    async def run(self) -> None:
        """Until cancelled. It ends for nothing else: the program goes on without spans."""
        while True:
            try:
                await self._export()
            except Exception:
                log.exception("Bug: spans could not be sent")
                self.unreachable += len(self._in_hand)
                self._settle()
                await self._sleep(_AFTER_A_BUG)

    async def flush(self, limit: float) -> None:
        """To be called when `run` has been cancelled. Each batch is tried once, and what was on its way is waited for."""
        try:
            async with asyncio.timeout(limit):
                while self._in_hand or len(self._waiting):
                    self._in_hand = self._in_hand or self._waiting.take()
                    if not isinstance(await self._post(), Taken):
                        return
                    self.sent += len(self._in_hand)
                    self._settle()
        except TimeoutError:
            pass
        except Exception:
            log.exception("Bug: the last spans could not be sent")
        finally:
            if self._posting is not None:
                self._posting.cancel()
                await asyncio.wait([self._posting])

    async def _export(self) -> None:
        if not len(self._waiting):
            self._some.clear()
            await self._some.wait()
        if not self._waiting.has_batch:
            self._full.clear()
            try:
                async with asyncio.timeout(jittered(self._delay, self._rng, spread=_SPREAD)):
                    await self._full.wait()
            except TimeoutError:
                pass
        self._in_hand = self._waiting.take()
        await self._deliver()
        self._settle()

    def _settle(self) -> None:
        self._in_hand = []
        self._waiting.settled()

    async def _deliver(self) -> None:
        for _ in range(MOST_TRIES):
            outcome = await self._post()
            match outcome:
                case Taken(rejected):
                    rejected = min(rejected, len(self._in_hand))
                    self.sent += len(self._in_hand) - rejected
                    self.refused += rejected
                    self._works()
                    return
                case Lost(why):
                    self.refused += len(self._in_hand)
                    self._fails(why)
                    return
                case TryAgain(why, after):
                    self._fails(why)
                    pause = max(after, _RETRY.delay(self._failures))
                    self._failures += 1
                    await self._sleep(jittered(pause, self._rng, spread=_SPREAD))
                case _:
                    assert_never(outcome)
        self.unreachable += len(self._in_hand)

    async def _post(self) -> Outcome:
        """The batch in hand. It goes on if who waits for it is cancelled: to send again what has arrived would double it."""
        posting = self._posting = self._posting or asyncio.create_task(self._collector.send(body_of(self._head, self._in_hand)))
        try:
            outcome = await asyncio.shield(posting)
        except Exception:
            self._posting = None
            raise
        self._posting = None  # not if cancelled: then `flush` looks at what has come of it, although it may have ended already
        return outcome

    def _works(self) -> None:
        self._failures = 0
        if self._is_told:
            self._is_told = False
            log.info("The trace collector takes spans again", extra={"fields": {"dropped": sum(self.numbers().dropped.values())}})

    def _fails(self, why: str) -> None:
        """Told seldom, however often it comes and goes. Spans that are lost show in the metric."""
        if not self._is_told and self._clock() >= self._silent_until:
            self._is_told, self._silent_until = True, self._clock() + _SELDOM
            log.warning("The trace collector does not take spans; provisioning goes on without them", extra={"fields": {"err": why}})
