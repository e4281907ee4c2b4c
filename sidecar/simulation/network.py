"""What lies between a node and the API server: latency, loss, outages. Data and dice; the doors ask it how a request fares."""

import asyncio
import math
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Latency:
    """A log-normal delay with this median and 99th percentile, in seconds. Nothing takes three times the latter: connections end before."""

    median: float
    p99: float

    def draw(self, rng: random.Random) -> float:
        if self.median <= 0:
            return 0.0
        spread = math.log(max(self.p99 / self.median, 1.0)) / 2.326
        return min(self.median * math.exp(spread * rng.gauss(0.0, 1.0)), 3.0 * max(self.p99, self.median))


@dataclass(frozen=True, slots=True)
class Weather:
    """How the network is, apart from outages."""

    read: Latency = field(default_factory=lambda: Latency(0.002, 0.020))
    write: Latency = field(default_factory=lambda: Latency(0.005, 0.050))
    watch: Latency = field(default_factory=lambda: Latency(0.010, 0.200))
    driver: Latency = field(default_factory=lambda: Latency(0.010, 0.500))
    """To the driver and back; no network, but time that passes all the same."""
    lost_requests: float = 0.0
    """Share of writes that never arrive."""
    lost_answers: float = 0.0
    """Share of writes that are done, and whose answer never comes."""
    straying: float = 0.0
    """Share of writes that arrive up to a minute late, when their sender may have given up or be dead."""
    refused: float = 0.0
    """Share of requests that an overloaded server answers with 429."""


class Broken(ConnectionError):
    """The connection is gone."""


class Stream(Generic[T]):
    """An open stream: what is put in comes out in order, each item at its time. When it breaks, nothing more comes out."""

    def __init__(self) -> None:
        self._items: deque[tuple[float, T]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._last = 0.0
        self._broken = False

    def put(self, item: T, at: float) -> None:
        """It comes out at that time, or with the one before it if that is later."""
        self._last = max(self._last, at)
        self._items.append((self._last, item))
        if len(self._items) == 1:
            self._wake()

    def break_off(self) -> None:
        self._broken = True
        self._wake()

    async def next(self) -> T:
        """Raises Broken as soon as it breaks, whatever is still in it."""
        now = asyncio.get_running_loop().time
        while not self._broken:
            if self._items and self._items[0][0] <= now():
                return self._items.popleft()[1]
            await self._sleep(self._items[0][0] if self._items else None)
        raise Broken

    async def _sleep(self, until: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if until is None else loop.call_at(until, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Network:
    """One per world. An outage cuts every node off from the API server, a partition only the named one."""

    def __init__(self, rng: random.Random, weather: Weather) -> None:
        self.weather = weather
        self.rng = rng
        self._down: set[str] = set()
        self._lags: dict[str, float] = {}
        self._parts: dict[tuple[str, str], float] = {}
        # Dicts as ordered sets: they are walked, and in the same order in every run.
        self._streams: dict[str, dict[Stream[object], None]] = {}

    def up(self, node: str) -> bool:
        return node not in self._down

    @contextmanager
    def stream(self, node: str) -> Iterator[Stream[object]]:
        """A connection that an outage or a cut breaks."""
        stream: Stream[object] = Stream()
        open_ones = self._streams.setdefault(node, {})
        open_ones[stream] = None
        try:
            yield stream
        finally:
            open_ones.pop(stream, None)

    def break_connections(self, node: str) -> None:
        """Open watches end; the next request goes through."""
        for stream in list(self._streams.get(node, ())):
            stream.break_off()

    def take_down(self, node: str) -> None:
        self._down.add(node)
        self.break_connections(node)

    def bring_up(self, node: str) -> None:
        self._down.discard(node)

    def lag(self, node: str, seconds: float) -> None:
        """What watches tell that node comes up to so much later, each watch by a part of its own; 0 ends it."""
        self._lags[node] = seconds
        self._parts.clear()

    def watch_delay(self, node: str, what: str) -> float:
        if not (lag := self._lags.get(node, 0.0)):
            return self.weather.watch.draw(self.rng)
        part = self._parts.setdefault((node, what), self.rng.random())
        return self.weather.watch.draw(self.rng) + lag * part

    def write_delay(self) -> float:
        astray = self.rng.uniform(5.0, 60.0) if self.falls_on(self.weather.straying) else 0.0
        return self.weather.write.draw(self.rng) + astray

    def falls_on(self, share: float) -> bool:
        """Whether this request is one of that share."""
        return share > 0 and self.rng.random() < share
