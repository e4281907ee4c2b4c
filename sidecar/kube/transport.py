"""Sends requests to the API server: a limiter before each, a deadline on each, and every failure as one kind of `ApiError`.

Nothing here repeats a request, because only the caller knows whether repeating is safe. A Retry-After of the server holds back every
request that shares the limiter.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

from sidecar.engine.backoff import jittered
from sidecar.engine.fair_lock import FairLock
from sidecar.engine.limiter import TokenBucket
from sidecar.http1.answers import Head
from sidecar.http1.fields import Malformed
from sidecar.http1.writing import header_lines, request_with
from sidecar.kube import wire
from sidecar.kube.api import always
from sidecar.kube.connections import Connection, Connections, NoConnection, Route, headers_for, target
from sidecar.kube.errors import LONGEST_QUIET, ApiError, Unavailable, Withdrawn
from sidecar.kube.line_reader import LineReader, TooLong
from sidecar.kube.read_batching import ReadBatching, delay_wakeups, wake_at_once

Sleep = Callable[[float], Awaitable[None]]

# A watch keeps a connection, a worker uses one for each request. To open one costs both sides more than a request, so a burst of a hundred
# workers shares these.
_MOST_CONNECTIONS = 24
_CONNECT_SECONDS = 10.0
# A request of low priority waits until no other is in progress, but no longer than this: a node that is never idle must write events too.
_LONGEST_LOW_PRIORITY_WAIT = 0.2
# A server that is starting accepts connections before it answers. Behind a load balancer another attempt may reach one that works.
_HEADERS_SECONDS = 15.0
_LONGEST_SILENCE = 600.0
# For so long events that have arrived together are handled in one go.
_LONGEST_TURN = 0.005


class Access(Protocol):
    """The server's address, the trust in its certificate, and our credentials. All of it may change while the process runs."""

    @property
    def server(self) -> str: ...
    @property
    def tls(self) -> ssl.SSLContext: ...
    @property
    def tls_server_name(self) -> str | None: ...
    @property
    def proxy(self) -> str | None: ...

    async def authorization(self) -> str:
        """The value of the Authorization header; empty without a token. May raise what reading a token file raises."""
        ...

    async def doubt(self, error: Exception) -> None:
        """The server refused our credentials, or its certificate is not trusted: read everything again before the next request."""
        ...


@dataclass(frozen=True, slots=True)
class Observer:
    """Callbacks for metrics. `status` is 0 when there was no answer; a watch is reported when its headers arrive."""

    on_request: Callable[[str, str, int, float], None] = lambda verb, resource, status, seconds: None
    on_throttled: Callable[[float], None] = lambda seconds: None
    on_large: Callable[[str, str, int], None] = lambda resource, name, size: None


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Metrics name it by `verb` and `resource`, messages by `what`."""

    method: str
    path: str
    verb: str
    resource: str
    what: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = wire.JSON
    goes_on: bool = False
    """It asks for a further page of a list, whose first page took the token: a list is one request to the limiter."""
    is_current: Callable[[], bool] = always
    """Called when its turn has come. If it returns False, the request is not sent."""
    low_priority: bool = False
    """It waits for others, see `_LONGEST_LOW_PRIORITY_WAIT`."""


class Limiter:
    """A token bucket that can be paused for all who share it, which a Retry-After does."""

    def __init__(
        self,
        bucket: TokenBucket,
        *,
        clock: Callable[[], float],
        sleep: Sleep,
        rng: Callable[[], float],
        on_throttled: Callable[[float], None],
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._on_throttled = on_throttled
        self._paused_until = float("-inf")
        # Parties take turns. A token is taken only when it is a request's turn, so a request that is withdrawn before costs no time.
        self._queue = FairLock()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Held from when a request begins to wait until it is answered."""
        self._under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Return when no request is in progress, at the latest after `_LONGEST_LOW_PRIORITY_WAIT`."""
        if self._idle.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_LOW_PRIORITY_WAIT):
                await self._idle.wait()

    async def admit(self, *, free: bool = False, is_current: Callable[[], bool] = always) -> bool:
        """Return when one request may be sent; False if it is no longer wanted. A free one takes no token, but is paused like others."""
        asked = self._clock()
        if not free and not is_current():
            return False
        if asked >= self._paused_until and (free or (self._queue.is_free and self._bucket.allow(asked))):
            return True
        if free:
            await self._wait_while_paused()
            wanted = True
        else:
            async with self._queue:
                wanted = is_current() and await self._take(is_current)
        waited = self._clock() - asked
        if waited > 0:
            self._on_throttled(waited)
        return wanted

    async def _take(self, is_current: Callable[[], bool]) -> bool:
        while True:
            await self._wait_while_paused()
            wait = self._bucket.reserve(self._clock())
            if wait > 0:
                try:
                    await self._sleep(wait)
                except asyncio.CancelledError:
                    self._bucket.give_back()
                    raise
            if self._clock() < self._paused_until:  # paused while this request waited: its token is lost, and it takes another
                continue
            if not is_current():
                self._bucket.give_back()
                return False
            return True

    async def _wait_while_paused(self) -> None:
        while (quiet := self._paused_until - self._clock()) > 0:
            await self._sleep(quiet)

    def pause_for(self, seconds: float) -> None:
        """Send nothing for so long, and up to half as long again: the server gives all nodes the same number."""
        until = self._clock() + jittered(min(seconds, LONGEST_QUIET), self._rng, spread=0.5)
        self._paused_until = max(self._paused_until, until)


class Transport:
    """One connection pool. Several limiters may use it, each with a rate of its own."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        request_timeout: float,
        watch_silence: float,
        observer: Observer,
        longest_read_delay: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._access = access
        self._longest_read_delay = longest_read_delay
        self._user_agent = user_agent
        self.observer = observer
        self._clock = clock
        self._wall = wall
        self._request_timeout = request_timeout
        self._watch_silence = watch_silence
        self._patience: dict[tuple[str, str], float] = {}
        """By the path and the label selector of a watch."""
        self._written_for: tuple[Route, str] | None = None
        self._written: dict[tuple[str, bool], str] = {}
        """The headers, by content type and whether they are a watch's."""
        connect_seconds = min(request_timeout, _CONNECT_SECONDS)
        self._connections = Connections(_MOST_CONNECTIONS, connect_seconds=connect_seconds, clock=clock)

    async def close(self) -> None:
        await self._connections.close()

    async def send(self, request: Request, limiter: Limiter, *, take: Callable[[bytes], None] | None = None) -> bytes:
        """The body of a 2xx answer. Everything else is raised as an ApiError.

        `take` is given the body in pieces, as they arrive, and nothing is returned. What it raises ends the request.
        """
        if request.low_priority:
            await limiter.wait_until_idle()
            return (await self._send(request, limiter, take))[1]
        with limiter.under_way():
            return (await self._send(request, limiter, take))[1]

    async def send_for_head(self, request: Request, limiter: Limiter) -> tuple[Head, bytes]:
        """The same, for who wants to see the headers of the answer as well."""
        with limiter.under_way():
            return await self._send(request, limiter, None)

    async def _send(self, request: Request, limiter: Limiter, take: Callable[[bytes], None] | None) -> tuple[Head, bytes]:
        if not await limiter.admit(free=request.goes_on, is_current=request.is_current):
            raise Withdrawn(f"{request.what}: not sent, it is no longer wanted")
        status, started = 0, self._clock()
        try:
            async with asyncio.timeout(self._request_timeout):
                connection, written = await self._prepared(request)
                try:
                    head = await connection.ask(written, whole=take is None)
                    if take is None or not _is_good(head):
                        raw = await connection.read_all()
                    else:
                        raw = b""
                        while piece := await connection.read():
                            take(piece)
                            await asyncio.sleep(0)  # or a body that has arrived would be read to its end before anything else is done
                finally:
                    self._connections.release(connection)
            status = head.status
        except (OSError, ValueError) as error:
            raise await self._as_unavailable(request, error) from error
        finally:
            self.observer.on_request(request.verb, request.resource, status, self._clock() - started)
        await self._raise_for_status(request, limiter, head, raw)
        return head, raw

    async def lines(self, request: Request, limiter: Limiter) -> AsyncGenerator[bytes | TooLong, None]:
        """The lines of a stream as they arrive, until the server ends it.

        A stream that is silent for too long is closed, for its other end may be gone. Servers on an etcd without progress
        notifications send no bookmarks for a kind that nobody changes. So each silent stream allows the next one twice the silence,
        up to the time after which servers end streams anyway. TCP keep-alive finds a dead peer sooner.
        """
        await limiter.admit()
        stream = request.path, request.query.get("labelSelector", "")
        silence = self._patience.get(stream, self._watch_silence)
        heard = False
        with ExitStack() as stack:
            status, started = 0, self._clock()
            try:
                async with asyncio.timeout(min(self._request_timeout, _HEADERS_SECONDS)):  # after that the limit is on silence
                    connection, written = await self._prepared(request)
                    stack.callback(self._connections.release, connection)
                    head = await connection.ask(written, whole=False)
                status = head.status
            except (OSError, ValueError) as error:
                raise await self._as_unavailable(request, error) from error
            finally:
                self.observer.on_request(request.verb, request.resource, status, self._clock() - started)
            try:
                if not _is_good(head):
                    async with asyncio.timeout(self._request_timeout):
                        raw = await connection.read_all()
                    await self._raise_for_status(request, limiter, head, raw)
                reader, batching = LineReader(), ReadBatching(self._longest_read_delay)
                while chunk := await _within(silence, connection.read()):
                    heard, resumed = True, self._clock()
                    lines = reader.feed(chunk)
                    for line in lines:
                        yield line
                        if self._clock() - resumed > _LONGEST_TURN:  # a burst of events must not keep everything else waiting
                            await asyncio.sleep(0)
                            resumed = self._clock()
                    if pause := batching.delay(len(lines), self._clock()):
                        await _leave_unread(connection, pause)
                if reader.within:
                    raise Unavailable(f"{request.what}: the stream broke off within a line")
            except _Silence as error:
                self._patience[stream] = self._watch_silence if heard else min(silence * 2, _LONGEST_SILENCE)
                raise Unavailable(f"{request.what}: nothing was heard for {silence:g} s") from error
            except (OSError, ValueError) as error:
                raise await self._as_unavailable(request, error) from error

    async def _prepared(self, request: Request) -> tuple[Connection, bytes]:
        """A connection for the request, which the caller releases, and the bytes to send on it."""
        access = self._access
        authorization = await self._authorization(request)
        # Made for each request, after the credentials were checked: a rotated CA leads to new connections, and open watches keep theirs.
        route = Route(access.server, access.tls, access.tls_server_name, access.proxy)
        content_type = "" if request.body is None else request.content_type
        lines = self._lines(route, authorization, content_type, is_watch=request.verb == "watch")
        path = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        written = request_with(request.method, target(route, path), lines, request.body)
        return await self._connections.acquire(route), written

    def _lines(self, route: Route, authorization: str, content_type: str, *, is_watch: bool) -> str:
        """The headers, which are the same for most requests. What was written with other credentials is forgotten."""
        if self._written_for != (route, authorization):
            self._written_for, self._written = (route, authorization), {}
        if (lines := self._written.get((content_type, is_watch))) is None:
            headers = headers_for(route) | {
                "Accept": wire.JSON,
                # A page of 500 claims shrinks to a tenth. A watch must not be compressed: its events would wait until a block is full.
                "Accept-Encoding": "identity" if is_watch else "gzip",
                "User-Agent": self._user_agent,
            }
            if content_type:
                headers["Content-Type"] = content_type
            if authorization:
                headers["Authorization"] = authorization
            lines = self._written[content_type, is_watch] = header_lines(headers)
        return lines

    async def _authorization(self, request: Request) -> str:
        try:
            return await self._access.authorization()
        except Exception as error:  # a half-written file makes the libraries raise anything
            raise Unavailable(f"{request.what}: our credentials cannot be read: {error}") from error

    async def _raise_for_status(self, request: Request, limiter: Limiter, head: Head, raw: bytes) -> None:
        if _is_good(head):
            return
        retry_after = wire.retry_after_seconds(head.headers.get("retry-after"), wall=self._wall)
        error = wire.refusal(head.status, raw, what=request.what, retry_after=retry_after)
        if head.status == 401:
            await self._access.doubt(error)
        if head.status == 429 and retry_after is not None and not wire.is_disruption_budget(raw):
            limiter.pause_for(retry_after)
        try:
            raise error
        finally:
            # Its traceback leads to this frame, and on to what was sent: in a circle, all of that stays until garbage is collected.
            del error

    async def _as_unavailable(self, request: Request, error: Exception) -> ApiError:
        """The error for a request without a complete answer. Whether the server carried it out is unknown."""
        if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
            await self._access.doubt(error)
        if isinstance(error, TimeoutError):
            return Unavailable(f"{request.what}: no answer in time ({type(error).__name__})")
        text = str(error) if isinstance(error, (NoConnection, Malformed)) else f"{type(error).__name__}: {error}"
        return Unavailable(f"{request.what}: {text}")


def _is_good(head: Head) -> bool:
    return 200 <= head.status < 300


class _Silence(Exception):
    """Nothing arrived on a stream for too long."""


async def _within(seconds: float, read: Awaitable[bytes]) -> bytes:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await read
    except TimeoutError as error:
        if limit.expired():
            raise _Silence from error
        raise


async def _leave_unread(connection: Connection, seconds: float) -> None:
    delay_wakeups(connection.transport)
    try:
        await asyncio.sleep(seconds)
    finally:
        wake_at_once(connection.transport)
