"""Connections to one API server: opened straight or through a proxy, lent to one request at a time, kept for the next one.

Deadlines are the caller's: whoever is cancelled while he waits loses his connection, for nobody knows what it would still say.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from sidecar.kube.http1 import Head, Malformed, Reading, request

# Servers close what is idle for long, and what is sent in that moment is lost with its outcome unknown.
_LONGEST_IDLE = 15.0
# What a stream's reader has not taken. Then the server waits.
_MOST_HELD = 2**21
_PORTS = {"http": 80, "https": 443}
# The other addresses of a name are tried beside one that does not answer.
_NEXT_ADDRESS_AFTER = 0.25
# Found dead after a minute. Linux would wait two hours before it asked.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class NoConnection(ConnectionError):
    """There was nobody to send the request to. Its cause is what the system or the TLS library said."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a server is reached. Connections are shared by those whose way is the same."""

    server: str
    tls: ssl.SSLContext
    tls_server_name: str | None
    proxy: str | None


class Connection(asyncio.Protocol):
    """One connection, with at most one request under way."""

    def __init__(self) -> None:
        self.way: Way | None = None
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None
        self._reading: Reading | None = None
        self._whole = True
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._paused = False
        self._lost = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return self._error is None and self.transport is not None and not self.transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Not either while the rest of a request waits to be sent, or of an answer to be read: it would be deaf to the next one."""
        if not self.is_open or self._paused or self.transport is None or self.transport.get_write_buffer_size():
            return False
        return self._reading is not None and self._reading.reusable

    async def ask(self, raw: bytes, *, whole: bool, bodiless: bool = False) -> Head:
        """Send a request and return with the answer's head: when all of it is there, or at once, for a stream."""
        if not self.is_open or self.transport is None:
            raise self._error or Malformed("the connection was closed before the request was sent")
        self._reading, self._whole = Reading(bodiless=bodiless), whole
        self.transport.write(raw)
        while not (self._reading.complete or (self._reading.head is not None and not whole)):
            await self._more()
        assert self._reading.head is not None
        return self._reading.head

    async def read(self) -> bytes:
        """What has come of the body; empty at its end."""
        reading = self._reading
        assert reading is not None
        while not reading.held and not reading.complete:
            await self._more()
        data = reading.take()
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        return data

    async def read_all(self) -> bytes:
        self._whole = True
        pieces = []
        while data := await self.read():
            pieces.append(data)
        return b"".join(pieces)

    def hang_up(self) -> None:
        """At once: what the server still has to say will not be read, and a TLS farewell would wait for one from its side."""
        self._fail(Malformed("the connection was closed by us"))
        if self.transport is not None and not self._lost.done():  # asyncio stumbles over some transports that have ended before
            self.transport.abort()

    def broken_within(self, error: Exception | None) -> None:
        """A failure of TLS within TLS, for which asyncio before 3.13 has only a TypeError of its own."""
        if error is not None:
            self._fail(error)
        self.hang_up()

    async def gone(self) -> None:
        await self._lost

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        if reading is None or reading.complete:  # nobody asked
            self.hang_up()
            return
        try:
            complete = reading.feed(data)
        except Malformed as error:
            self._fail(error)
            self.hang_up()
            return
        if complete or not self._whole:
            self._wake()
        if not self._whole and reading.held > _MOST_HELD and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        reading = self._reading
        try:
            if exc is None and self._error is None and reading is not None:
                reading.end()
        except Malformed as error:
            exc = error
        if exc is not None and not isinstance(exc, OSError):
            exc = Malformed(f"the connection broke: {type(exc).__name__}")
        self._fail(exc or Malformed("the connection is closed"))


class Connections:
    """A pool. Whoever comes when all are lent waits in line."""

    def __init__(self, most: int, *, connect_seconds: float, clock: Callable[[], float]) -> None:
        self._free = asyncio.Semaphore(most)
        self._connect_seconds = connect_seconds
        self._clock = clock
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._closed = False

    async def lend(self, way: Way) -> Connection:
        await self._free.acquire()
        try:
            self._refuse_if_closed()
            connection = self._idle_on(way) or await self._connect(way)
        except BaseException:
            self._free.release()
            raise
        self._lent.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """One that cannot be used again is closed."""
        self._lent.discard(connection)
        self._free.release()
        if connection.reusable:
            connection.idle_since = self._clock()
            self._idle.append(connection)
        else:
            connection.hang_up()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise NoConnection("we are closing")

    async def close(self) -> None:
        self._closed = True
        ends = [*self._idle, *self._lent]
        self._idle.clear()
        for connection in ends:
            connection.hang_up()
        for connection in ends:
            await connection.gone()

    def _idle_on(self, way: Way) -> Connection | None:
        """The one that was used last. Those that nobody will use again are closed."""
        since = self._clock() - _LONGEST_IDLE
        found = None
        while self._idle and found is None:
            last = self._idle.pop()
            if last.reusable and last.way == way and last.idle_since >= since:
                found = last
            else:
                last.hang_up()
        while self._idle and self._idle[0].idle_since < since:
            self._idle.pop(0).hang_up()
        return found

    async def _connect(self, way: Way) -> Connection:
        where, gate = place_of(way.server), place_of(way.proxy or way.server)
        async with asyncio.timeout(self._connect_seconds):
            with _named(f"the proxy {gate}" if way.proxy else where):
                connection = await self._reach(way)
            if way.proxy and way.server.startswith("https:"):
                with _named(where):
                    await _tunnel(connection, way, where)
        if self._closed:
            connection.hang_up()
        self._refuse_if_closed()
        connection.way = way
        _keep_alive(connection)
        return connection

    async def _reach(self, way: Way) -> Connection:
        """The server, or the proxy that stands before it."""
        first = urlsplit(way.proxy or way.server)
        context, name = None, None
        if first.scheme == "https":
            context = ssl.create_default_context() if way.proxy else way.tls
            name = first.hostname if way.proxy else _name_in_certificate(way)
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            first.hostname or "",
            first.port or _PORTS[first.scheme],
            ssl=context,
            server_hostname=name,
            happy_eyeballs_delay=_NEXT_ADDRESS_AFTER,
        )
        return connection


def _name_in_certificate(way: Way) -> str | None:
    """The dot that ends a complete name stands in no certificate."""
    return way.tls_server_name or (urlsplit(way.server).hostname or "").rstrip(".") or None


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, NoConnection):
        raise
    except ssl.SSLCertVerificationError as error:
        raise NoConnection(f"the certificate of {where} is not trusted: {error}") from error
    except OSError as error:  # asyncio's text is about the address, and only the kind says what was wrong with it
        raise NoConnection(f"cannot connect to {where}: {type(error).__name__}: {error.strerror or error}".removesuffix(": ")) from error


def place_of(url: str) -> str:
    """Host and port. A password that is not quoted would pass for a port, and be shown in the error about it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in _PORTS:
        raise NoConnection(f"the proxy {parts.scheme}://{host} is none for HTTP")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        host, port = "", 0
    if not host or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise NoConnection("the address of the server or proxy cannot be read: are its name and password quoted?")
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def target(way: Way, path: str) -> str:
    """What stands in the request's first line: a proxy is told the whole address, unless there is a tunnel."""
    server = urlsplit(way.server)
    prefix = f"http://{host_of(way.server)}" if way.proxy and server.scheme == "http" else ""
    return f"{prefix}{server.path}{path}"


def headers_for(way: Way) -> dict[str, str]:
    """What the way itself needs. Inside a tunnel the proxy hears nothing any more."""
    headers = {"Host": host_of(way.server)}
    if way.proxy and way.server.startswith("http:"):
        headers |= _proxy_authorization(way.proxy)
    return headers


def host_of(url: str) -> str:
    """Never with the name and password that may stand before it."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _proxy_authorization(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


async def _tunnel(connection: Connection, way: Way, where: str) -> None:
    assert way.proxy is not None
    headers = {"Host": where} | _proxy_authorization(way.proxy)
    try:
        head = await connection.ask(request("CONNECT", where, headers, None), whole=True, bodiless=True)
        if head.status != 200:
            raise NoConnection(f"the proxy {host_of(way.proxy)} does not lead there, it answers {head.status}")
        outer: Any = connection.transport
        if way.proxy.startswith("https:"):
            outer._force_close = connection.broken_within
        inner = await asyncio.get_running_loop().start_tls(outer, connection, way.tls, server_hostname=_name_in_certificate(way))
        if inner is None:
            raise Malformed("the proxy hung up within the handshake")
        connection.transport = inner
    except BaseException:
        connection.hang_up()
        raise


def _keep_alive(connection: Connection) -> None:
    """Not every system has these options, and none of them is worth a failure."""
    assert connection.transport is not None
    wire = connection.transport.get_extra_info("socket")
    try:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE.items():
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    except (AttributeError, OSError):
        pass
