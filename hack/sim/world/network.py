"""What stands between a sidecar and its effects: the network to the API server, with latency, loss and outages, and its own death.

It is data and dice; `doors` asks what happens to a request. Every effect crosses the boundary between process and world twice: on its way
out, and when its answer comes back. The process can die at any crossing, so both "decided but not sent" and "done but not answered" are
played. After its death no effect of it reaches the world: every further crossing raises `Killed`, also in clean-up code.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Latency:
    """A log-normal delay with this median and 99th percentile, in seconds.

    No delay is longer than three times the latter: a connection would have ended before.
    """

    median: float
    p99: float

    def draw(self, rng: random.Random) -> float:
        if self.median <= 0:
            return 0.0
        spread = math.log(max(self.p99 / self.median, 1.0)) / 2.326
        return min(self.median * math.exp(spread * rng.gauss(0.0, 1.0)), 3.0 * max(self.p99, self.median))


@dataclass(frozen=True, slots=True)
class Weather:
    """How the network behaves, apart from outages."""

    read: Latency = field(default_factory=lambda: Latency(0.002, 0.020))
    write: Latency = field(default_factory=lambda: Latency(0.005, 0.050))
    watch: Latency = field(default_factory=lambda: Latency(0.010, 0.200))
    driver: Latency = field(default_factory=lambda: Latency(0.010, 0.500))
    """To the driver and back: no network, but time passes."""
    lost_requests: float = 0.0
    """Share of writes that never arrive at the server."""
    lost_answers: float = 0.0
    """Share of writes that are done and whose answer is lost."""
    straying: float = 0.0
    """Share of writes that arrive up to a minute late, when their sender may have given up or be dead."""
    refused: float = 0.0
    """Share of requests that an overloaded server answers with 429."""


_NEXT: Final = 1e-9


class Broken(ConnectionError):
    """The connection has broken."""


class Stream(Generic[T]):
    """An open stream. Items come out in order, each at its time. After it has broken nothing comes out."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0.0
        self._broken = False

    def put(self, item: T, at: float) -> None:
        """The item comes out at that time, or right after the item before it if that is later."""
        self._last = max(self._last + _NEXT, at)
        asyncio.get_running_loop().call_at(self._last, self._arrived.put_nowait, item)

    def break_off(self) -> None:
        self._broken = True
        self._arrived.put_nowait(None)

    async def next(self) -> T:
        """Raises Broken as soon as the stream breaks, even if items are still on their way."""
        if not self._broken:
            item: T = await self._arrived.get()
            if not self._broken:
                return item
        raise Broken


class Network:
    """One per world. An outage cuts every node off from the API server, a partition only the named one."""

    def __init__(self, rng: random.Random, weather: Weather) -> None:
        self.weather = weather
        self.rng = rng
        self._down: set[str] = set()
        self.stale: set[str] = set()
        """Nodes that get old lists, where they say that those will do."""
        self._lags: dict[str, tuple[float, str]] = {}
        self._parts: dict[tuple[str, str], float] = {}
        # Dicts serve as ordered sets, so that every run walks them in the same order.
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

    def local_delay(self, node: str, seconds: float, *, of: str = "") -> None:
        """Delays every watch of that node, each by its own part of up to so many seconds; 0 ends it. `of`: that of this type alone,
        by all of them."""
        self._lags[node] = seconds, of
        self._parts.clear()

    def watch_delay(self, node: str, what: str) -> float:
        local_delay, of = self._lags.get(node, (0.0, ""))
        if not local_delay or (of and of != what):
            return self.weather.watch.draw(self.rng)
        if of:
            return self.weather.watch.draw(self.rng) + local_delay
        part = self._parts.setdefault((node, what), self.rng.random())
        return self.weather.watch.draw(self.rng) + local_delay * part

    def write_delay(self) -> float:
        astray = self.rng.uniform(5.0, 60.0) if self.falls_on(self.weather.straying) else 0.0
        return self.weather.write.draw(self.rng) + astray

    def falls_on(self, share: float) -> bool:
        """Draws whether a request belongs to that share."""
        return share > 0 and self.rng.random() < share


class Killed(BaseException):
    """kill -9. It is a BaseException, so that no ordinary handler catches it, as none can catch the real one."""


class Life:
    """Counts crossings. It ends at the crossing that was chosen, or when it is killed."""

    def __init__(self, number: int, *, on_death: Callable[[str], None] = lambda _: None) -> None:
        self.number = number
        self.crossings = 0
        self.alive = True
        self._dies_at = 0
        self._on_death = on_death

    def doom(self, crossings: int) -> None:
        """Chooses the crossing at which it dies, counted from now; 1 is the next one."""
        self._dies_at = self.crossings + crossings

    def pardon(self) -> None:
        self._dies_at = 0

    def cross(self, what: str) -> None:
        """Called when an effect is about to happen, and when its answer is about to arrive."""
        self.check()
        self.crossings += 1
        if self.crossings == self._dies_at:
            self.kill(what)
            raise Killed

    def check(self) -> None:
        """Raises `Killed` if the process has died; to be called wherever time has passed."""
        if not self.alive:
            raise Killed

    def kill(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self._on_death(why)

    def end(self) -> None:
        """The process has ended by itself, so nothing of it can act any more."""
        self.alive = False
