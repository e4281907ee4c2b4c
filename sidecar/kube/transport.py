"""HTTP to the API server: one session, a limiter before every request, a deadline on each, and one exception tree.

Nothing here repeats a request. Whoever asked decides whether and when to ask again, and `Limiter` makes sure that a server
which asked for quiet gets it from everybody who shares it.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from sidecar.engine.backoff import jittered
from sidecar.engine.limiter import TokenBucket
from sidecar.kube import wire
from sidecar.kube.api import always
from sidecar.kube.errors import ApiError, Unavailable, Withdrawn
from sidecar.kube.gathering import Gathering, hush, listen

Sleep = Callable[[float], Awaitable[None]]

# Watches hold a connection each, workers one while they ask. To open one costs both sides more than a request does, so a burst
# of a hundred workers shares these.
_MOST_CONNECTIONS = 24
# aiohttp gives a line up to twice this much; etcd stores no object above 1.5 MiB.
_READ_BUFFER = 2**21
# What a server may ask for by Retry-After. Longer would look like a hang.
_LONGEST_QUIET = 60.0
_CONNECT_SECONDS = 10.0
_LONGEST_LINE = 2**22
# What can wait lets others go first, but not for ever: a node that is never idle still tells of some of what it does.
_LONGEST_ASIDE = 0.2
# A server that is starting takes connections before it answers. Whoever waits for that one, comes late to the one that works.
_HEADERS_SECONDS = 15.0
_LONGEST_SILENCE = 600.0
# Sockets of streams that were left close in later rounds of the event loop, which nobody can wait for.
_ROUNDS_TO_CLOSE = 5
# Found dead after a minute. Linux would wait two hours before it asked.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


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
        until = self._clock() + jittered(min(seconds, _LONGEST_QUIET), self._rng, spread=0.5)
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
        self._deadline = aiohttp.ClientTimeout(total=request_timeout, sock_connect=min(request_timeout, _CONNECT_SECONDS))
        self._watch_silence = watch_silence
        self._patience: dict[str, float] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            for _ in range(_ROUNDS_TO_CLOSE):
                await asyncio.sleep(0)

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
            async with await self._open(request, self._deadline) as response:
                raw = await response.read()
                status = response.status
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise await self._broken(request, error) from error
        finally:
            self._observer.on_request(request.verb, request.resource, status, self._clock() - started)
        await self._judge(request, limiter, response, raw)
        return raw

    async def lines(self, request: Request, limiter: Limiter) -> AsyncGenerator[bytes, None]:
        """The lines of a stream as they arrive, until the server ends it.

        Silence breaks it off, as there might be nobody left at the other end. Servers on an etcd without progress
        notifications send no bookmarks for a kind that nobody changes; so the longer it has been quiet, the more silence
        the next stream is allowed, up to where streams end by themselves. A dead peer is found by keep-alive nevertheless.
        """
        await limiter.admit()
        silence = self._patience.get(request.path, self._watch_silence)
        status, started = 0, self._clock()
        try:
            async with asyncio.timeout(min(self._request_timeout, _HEADERS_SECONDS)):  # from there on silence is measured
                response = await self._open(request, aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=silence))
            status = response.status
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise await self._broken(request, error) from error
        finally:
            self._observer.on_request(request.verb, request.resource, status, self._clock() - started)
        heard = False
        try:
            if not 200 <= status < 300:
                await self._judge(request, limiter, response, await response.read())
            _keep_alive(response)
            rest, gathering = b"", Gathering(self._longest_gathering)
            while chunk := await response.content.readany():
                heard = True
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line + b"\n"
                if len(rest) > _LONGEST_LINE:
                    raise Unavailable(f"{request.what}: a line of the stream has more than {_LONGEST_LINE} bytes")
                if pause := gathering.pause(len(lines), self._clock()):
                    await _let_gather(response, pause)
            if rest:
                raise Unavailable(f"{request.what}: the stream broke off within a line")
        except aiohttp.SocketTimeoutError as error:
            self._patience[request.path] = self._watch_silence if heard else min(silence * 2, _LONGEST_SILENCE)
            raise Unavailable(f"{request.what}: nothing was heard for {silence:g} s") from error
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError, aiohttp.http_exceptions.HttpProcessingError) as error:
            raise await self._broken(request, error) from error
        finally:
            _hang_up(response)

    async def _open(self, request: Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = {
            "Accept": wire.JSON,
            # A page of 500 claims shrinks to a tenth. A watch is not compressed by servers, and must never wait for a block to fill.
            "Accept-Encoding": "identity" if request.verb == "watch" else "gzip",
            "User-Agent": self._user_agent,
        }
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        authorization = await self._authorization(request)
        if authorization:
            headers["Authorization"] = authorization
        return await self._connected().request(
            request.method,
            self._access.server + request.path,
            params=request.query,
            data=request.body,
            headers=headers,
            timeout=timeout,
            # Per request: a rotated CA gives new connections, while open watches keep theirs.
            ssl=self._access.tls,
            server_hostname=self._access.tls_server_name,
            proxy=self._access.proxy,
            allow_redirects=False,  # an API server sends none, and our token is for nobody else
        )

    async def _authorization(self, request: Request) -> str:
        try:
            return await self._access.authorization()
        except Exception as error:  # the libraries' loaders raise whatever a half-written file provokes
            raise Unavailable(f"{request.what}: our credentials cannot be read: {error}") from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER,
            )
            # aiohttp repeats a PUT or DELETE whose connection broke, though the server may have done it. There is no public switch.
            self._session._retry_connection = False
        return self._session

    async def _judge(self, request: Request, limiter: Limiter, response: aiohttp.ClientResponse, raw: bytes) -> None:
        if 200 <= response.status < 300:
            return
        retry_after = wire.retry_after_seconds(response.headers.get("Retry-After"), wall=self._wall)
        error = wire.refusal(response.status, raw, what=request.what, retry_after=retry_after)
        if response.status == 401:
            await self._access.doubt(error)
        if response.status == 429 and retry_after is not None and not wire.is_disruption_budget(raw):
            limiter.be_quiet(retry_after)
        raise error

    async def _broken(self, request: Request, error: Exception) -> ApiError:
        """No answer, or half of one. Nothing is known of the outcome."""
        if isinstance(error, aiohttp.ClientSSLError):
            await self._access.doubt(error)
        if isinstance(error, TimeoutError):
            return Unavailable(f"{request.what}: no answer in time ({type(error).__name__})")
        return Unavailable(f"{request.what}: {_told(error)}")


def _told(error: Exception) -> str:
    """aiohttp prints the TLS context of a connection that could not be made, and not always the reason."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host}:{error.port} is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return f"{type(error).__name__}: {error}"


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """At once: what the server still has to say will not be read, and a TLS farewell would wait for one from its side."""
    if response.connection and response.connection.transport:
        response.connection.transport.abort()
    response.close()


async def _let_gather(response: aiohttp.ClientResponse, seconds: float) -> None:
    transport = response.connection.transport if response.connection else None  # none: it has ended; the rest of it is read at once
    if transport is None:
        return
    hush(transport)
    try:
        await asyncio.sleep(seconds)
    finally:
        listen(transport)


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Not every system has these options, and none of them is worth a failure."""
    transport = response.connection.transport if response.connection else None
    wire_socket: Any = transport.get_extra_info("socket") if transport else None
    if wire_socket is None:
        return
    try:
        wire_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE.items():
            wire_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    except (AttributeError, OSError):
        pass
