"""HTTP to the API server: one pool, a limiter before every request, a deadline on each, and one exception tree.

Nothing here repeats a request. Whoever asked decides whether and when to ask again, and `Limiter` makes sure that a server
which asked for quiet gets it from everybody who shares it.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

from sidecar.engine.backoff import jittered
from sidecar.engine.limiter import TokenBucket
from sidecar.kube import http1, wire
from sidecar.kube.api import always
from sidecar.kube.connections import Connection, Connections, NoConnection, Way, headers_for, target
from sidecar.kube.errors import LONGEST_QUIET, ApiError, BadEvent, Unavailable, Withdrawn
from sidecar.kube.gathering import Gathering, hush, listen

Sleep = Callable[[float], Awaitable[None]]

# Watches hold a connection each, workers one while they ask. To open one costs both sides more than a request does, so a burst
# of a hundred workers shares these.
_MOST_CONNECTIONS = 24
_CONNECT_SECONDS = 10.0
# etcd stores no object above 1.5 MiB.
_LONGEST_LINE = 2**22
# What can wait lets others go first, but not for ever: a node that is never idle still tells of some of what it does.
_LONGEST_ASIDE = 0.2
# A server that is starting takes connections before it answers. Whoever waits for that one, comes late to the one that works.
_HEADERS_SECONDS = 15.0
_LONGEST_SILENCE = 600.0


class Access(Protocol):
    """Where the server is, how to trust it, and who we are. All of it may change while we run."""

    @property
    def server(self) -> str: ...
    @property
    def tls(self) -> ssl.SSLContext: ...
    @property
    def tls_server_name(self) -> str | None: ...
    @property
    def proxy(self) -> str | None: ...

    async def authorization(self) -> str:
        """The value of the header; empty without a token. May raise whatever an unreadable token file raises."""
        ...

    async def doubt(self, error: Exception) -> None:
        """The server refused our credentials, or we its certificate: read everything afresh before the next request."""
        ...


@dataclass(frozen=True, slots=True)
class Observer:
    """What a metric wants to know. `status` is 0 when there was no answer; a watch is reported when its headers arrive."""

    on_request: Callable[[str, str, int, float], None] = lambda verb, resource, status, seconds: None
    on_throttled: Callable[[float], None] = lambda seconds: None


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `verb` and `resource` name it for metrics, `what` for people."""

    method: str
    path: str
    verb: str
    resource: str
    what: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = wire.JSON
    goes_on: bool = False
    """A further page of a list: part of a request that has been let through already."""
    still: Callable[[], bool] = always
    """Whether it is wanted, asked when its turn has come."""
    aside: bool = False
    """It lets others go first."""


class Limiter:
    """A token bucket with a door that can be shut for a while: by whoever was told Retry-After, for all who share it."""

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
        self._shut_until = float("-inf")
        # First come, first served, and nobody has a token before it is his turn: what is withdrawn in line costs nobody any time.
        self._line = asyncio.Lock()
        self._under_way = 0
        self._calm = asyncio.Event()
        self._calm.set()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """From when a request gets in line until it is answered."""
        self._under_way += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._calm.set()

    async def step_aside(self) -> None:
        """Return when nothing is under way, or after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_ASIDE):
                await self._calm.wait()

    async def admit(self, *, free: bool = False, still: Callable[[], bool] = always) -> bool:
        """Return when one request may be sent, or False when it is no longer wanted. A free one takes no token, but keeps quiet
        like the others."""
        asked = self._clock()
        if free:
            await self._wait_for_quiet()
            wanted = True
        else:
            async with self._line:
                wanted = still() and await self._take(still)
        waited = self._clock() - asked
        if waited > 0:
            self._on_throttled(waited)
        return wanted

    async def _take(self, still: Callable[[], bool]) -> bool:
        while True:
            await self._wait_for_quiet()
            wait = self._bucket.reserve(self._clock())
            if wait > 0:
                await self._sleep(wait)
            if self._clock() < self._shut_until:  # it was shut while we waited, and our token is spent
                continue
            if not still():
                self._bucket.give_back()
                return False
            return True

    async def _wait_for_quiet(self) -> None:
        while (quiet := self._shut_until - self._clock()) > 0:
            await self._sleep(quiet)

    def be_quiet(self, seconds: float) -> None:
        """The server says the same number to all nodes; they must not come back in the same instant."""
        until = self._clock() + jittered(min(seconds, LONGEST_QUIET), self._rng, spread=0.5)
        self._shut_until = max(self._shut_until, until)


class Transport:
    """One connection pool. Several limiters may send through it, each with its own rate."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        request_timeout: float,
        watch_silence: float,
        observer: Observer,
        longest_gathering: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._access = access
        self._longest_gathering = longest_gathering
        self._user_agent = user_agent
        self._observer = observer
        self._clock = clock
        self._wall = wall
        self._request_timeout = request_timeout
        self._watch_silence = watch_silence
        self._patience: dict[str, float] = {}
        connect_seconds = min(request_timeout, _CONNECT_SECONDS)
        self._connections = Connections(_MOST_CONNECTIONS, connect_seconds=connect_seconds, clock=clock)

    async def close(self) -> None:
        await self._connections.close()

    async def send(self, request: Request, limiter: Limiter) -> bytes:
        """The body of a 2xx answer; everything else is an ApiError."""
        if request.aside:
            await limiter.step_aside()
            return await self._send(request, limiter)
        with limiter.under_way():
            return await self._send(request, limiter)

    async def _send(self, request: Request, limiter: Limiter) -> bytes:
        if not await limiter.admit(free=request.goes_on, still=request.still):
            raise Withdrawn(f"{request.what}: not sent, it is no longer wanted")
        status, started = 0, self._clock()
        try:
            async with asyncio.timeout(self._request_timeout), self._asked(request, whole=True) as (connection, head):
                raw = await connection.read_all()
                status = head.status
        except (OSError, ValueError) as error:
            raise await self._broken(request, error) from error
        finally:
            self._observer.on_request(request.verb, request.resource, status, self._clock() - started)
        await self._judge(request, limiter, head, raw)
        return raw

    async def lines(self, request: Request, limiter: Limiter) -> AsyncGenerator[bytes, None]:
        """The lines of a stream as they arrive, until the server ends it.

        Silence breaks it off, as there might be nobody left at the other end. Servers on an etcd without progress
        notifications send no bookmarks for a kind that nobody changes; so the longer it has been quiet, the more silence
        the next stream is allowed, up to where streams end by themselves. A dead peer is found by keep-alive nevertheless.
        """
        await limiter.admit()
        silence = self._patience.get(request.path, self._watch_silence)
        heard = False
        async with AsyncExitStack() as stack:
            status, started = 0, self._clock()
            try:
                async with asyncio.timeout(min(self._request_timeout, _HEADERS_SECONDS)):  # from there on silence is measured
                    connection, head = await stack.enter_async_context(self._asked(request, whole=False))
                status = head.status
            except (OSError, ValueError) as error:
                raise await self._broken(request, error) from error
            finally:
                self._observer.on_request(request.verb, request.resource, status, self._clock() - started)
            try:
                if not 200 <= status < 300:
                    async with asyncio.timeout(self._request_timeout):
                        raw = await connection.read_all()
                    await self._judge(request, limiter, head, raw)
                rest, gathering = b"", Gathering(self._longest_gathering)
                while chunk := await _within(silence, connection.read()):
                    heard = True
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line + b"\n"
                    if len(rest) > _LONGEST_LINE:
                        raise BadEvent(f"{request.what}: a line of the stream has more than {_LONGEST_LINE} bytes")
                    if pause := gathering.pause(len(lines), self._clock()):
                        await _let_gather(connection, pause)
                if rest:
                    raise Unavailable(f"{request.what}: the stream broke off within a line")
            except _Silence as error:
                self._patience[request.path] = self._watch_silence if heard else min(silence * 2, _LONGEST_SILENCE)
                raise Unavailable(f"{request.what}: nothing was heard for {silence:g} s") from error
            except (OSError, ValueError) as error:
                raise await self._broken(request, error) from error

    @asynccontextmanager
    async def _asked(self, request: Request, *, whole: bool) -> AsyncGenerator[tuple[Connection, http1.Head], None]:
        """Sent, and answered at least by a head. The connection is given back in the end, as it is."""
        access = self._access
        authorization = await self._authorization(request)
        # Per request, and after the credentials were looked at: a rotated CA gives new connections, while open watches keep theirs.
        way = Way(access.server, access.tls, access.tls_server_name, access.proxy)
        headers = headers_for(way) | {
            "Accept": wire.JSON,
            # A page of 500 claims shrinks to a tenth. A watch is not compressed by servers, and must never wait for a block to fill.
            "Accept-Encoding": "identity" if request.verb == "watch" else "gzip",
            "User-Agent": self._user_agent,
        }
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if authorization:
            headers["Authorization"] = authorization
        path = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        raw = http1.request(request.method, target(way, path), headers, request.body)
        connection = await self._connections.lend(way)
        try:
            yield connection, await connection.ask(raw, whole=whole)
        finally:
            self._connections.give_back(connection)

    async def _authorization(self, request: Request) -> str:
        try:
            return await self._access.authorization()
        except Exception as error:  # the libraries' loaders raise whatever a half-written file provokes
            raise Unavailable(f"{request.what}: our credentials cannot be read: {error}") from error

    async def _judge(self, request: Request, limiter: Limiter, head: http1.Head, raw: bytes) -> None:
        if 200 <= head.status < 300:
            return
        retry_after = wire.retry_after_seconds(head.headers.get("retry-after"), wall=self._wall)
        error = wire.refusal(head.status, raw, what=request.what, retry_after=retry_after)
        if head.status == 401:
            await self._access.doubt(error)
        if head.status == 429 and retry_after is not None and not wire.is_disruption_budget(raw):
            limiter.be_quiet(retry_after)
        raise error

    async def _broken(self, request: Request, error: Exception) -> ApiError:
        """No answer, or half of one. Nothing is known of the outcome."""
        if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
            await self._access.doubt(error)
        if isinstance(error, TimeoutError):
            return Unavailable(f"{request.what}: no answer in time ({type(error).__name__})")
        told = str(error) if isinstance(error, (NoConnection, http1.Malformed)) else f"{type(error).__name__}: {error}"
        return Unavailable(f"{request.what}: {told}")


class _Silence(Exception):
    """A stream said nothing for too long."""


async def _within(seconds: float, read: Awaitable[bytes]) -> bytes:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await read
    except TimeoutError as error:
        if limit.expired():
            raise _Silence from error
        raise


async def _let_gather(connection: Connection, seconds: float) -> None:
    hush(connection.transport)
    try:
        await asyncio.sleep(seconds)
    finally:
        listen(connection.transport)
