"""A pool of connections to one API server: opened directly or through a proxy, used by one request at a time, kept for the next one.

The caller sets deadlines. A connection whose request is cancelled is closed: what still arrives on it would be taken for the next answer.
"""

import asyncio
import base64
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from sidecar.http1 import answers
from sidecar.http1.answers import AnswerReader, Head
from sidecar.http1.fields import Malformed
from sidecar.http1.writing import request_bytes

# Servers close connections that are idle for long. A request sent at that moment is lost, and nobody knows whether it was carried out.
_LONGEST_IDLE = 15.0
# Bytes of a stream that its reader has not taken. With more, reading stops, and TCP makes the server wait.
_MOST_HELD = 2**21
_PORTS = {"http": 80, "https": 443}
# After so long without an answer from one address of a name, the next one is tried as well.
_NEXT_ADDRESS_AFTER = 0.25
# Addresses of which it is kept how requests name them.
_FEW = 8
# A peer that vanished is found after a minute. By default Linux waits two hours before it asks.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

# asyncio takes and fills a buffer of 256 KiB for each connection by TLS, and every watch has one. A record of TLS has 16 KiB at most.
sslproto.SSLProtocol.max_size = 2**15


class NoConnection(ConnectionError):
    """No connection could be opened, so nothing was sent. The cause is the error of the system or of the TLS library."""


@dataclass(frozen=True, slots=True)
class Route:
    """How a server is reached. Requests with equal routes share connections."""

    server: str
    tls: ssl.SSLContext
    tls_server_name: str | None
    proxy: str | None


class Connection(asyncio.Protocol):
    """One connection, with at most one request in progress."""

    def __init__(self) -> None:
        self.route: Route | None = None
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None
        self._reading: AnswerReader | None = None
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
        """False also while bytes of a request are unsent or an answer is unread: the next answer could not be told from them."""
        if not self.is_open or self._paused or self.transport is None or self.transport.get_write_buffer_size():
            return False
        return self._reading is not None and self._reading.reusable

    async def ask(self, raw: bytes, *, whole: bool, bodiless: bool = False) -> Head:
        """Send a request and return the head of its answer: with `whole` when the body has arrived too, otherwise at once."""
        if not self.is_open or self.transport is None:
            raise self._taken_error() or Malformed("the connection was closed before the request was sent")
        self._reading, self._whole = AnswerReader(bodiless=bodiless, streamed=not whole), whole
        self.transport.write(raw)
        while not (self._reading.complete or (self._reading.head is not None and not whole)):
            await self._more()
        assert self._reading.head is not None
        return self._reading.head

    async def read(self) -> bytes:
        """The part of the body that has arrived; empty at its end."""
        reading = self._reading
        assert reading is not None
        while not reading.held and not reading.complete:
            await self._more()
        data = reading.take()
        if self._paused and self.transport is not None and not reading.waits_packed and reading.held <= _MOST_HELD:
            self._paused = False
            self.transport.resume_reading()
        return data

    async def read_all(self) -> bytes:
        """The body of a whole answer, or of a stream that was refused."""
        pieces, size = [], 0
        while data := await self.read():
            pieces.append(data)
            size += len(data)
            if size > answers.LONGEST_BODY:
                raise Malformed(f"the answer is longer than {answers.LONGEST_BODY} bytes")
        return b"".join(pieces)

    def abort(self) -> None:
        """Close without waiting: nothing more is read, and an orderly end of TLS would wait for the server's part in it."""
        self._fail(Malformed("the connection was closed by us"))
        if self.transport is not None and not self._lost.done():  # asyncio fails on some transports that have ended before
            self.transport.abort()

    def broken_within(self, error: Exception | None) -> None:
        """Called for a failure of TLS within TLS, which asyncio before Python 3.13 reports as a TypeError of its own."""
        if error is not None:
            self._fail(error)
        self.abort()

    async def closed(self) -> None:
        await self._lost

    async def _more(self) -> None:
        if (error := self._taken_error()) is not None:
            try:
                raise error
            finally:
                del error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _taken_error(self) -> Exception | None:
        """To be raised. One that stayed here would keep the frames through which it was raised, and what was sent, in a circle."""
        error = self._error
        if error is not None:
            self._error = Malformed(str(error))
        return error

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error.with_traceback(None)  # the frames in which it was found have it among their variables
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        if reading is None or reading.complete:  # nobody asked
            self.abort()
            return
        try:
            complete = reading.feed(data)
        except Malformed as error:
            self._fail(error)
            self.abort()
            return
        if complete or not self._whole:
            self._wake()
        full = reading.held > _MOST_HELD or reading.waits_packed
        if not self._whole and full and not self._paused and self.transport is not None:
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
    """The pool. When all connections are in use, callers wait in the order in which they came."""

    def __init__(self, most: int, *, connect_seconds: float, clock: Callable[[], float]) -> None:
        self._free = asyncio.Semaphore(most)
        self._connect_seconds = connect_seconds
        self._clock = clock
        self._idle: list[Connection] = []
        self._in_use: set[Connection] = set()
        self._closed = False

    async def acquire(self, route: Route) -> Connection:
        await self._free.acquire()
        try:
            self._refuse_if_closed()
            connection = self._take_idle(route) or await self._connect(route)
        except BaseException:
            self._free.release()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Keep the connection for the next request, or close it if it cannot be used again."""
        self._in_use.discard(connection)
        self._free.release()
        if connection.reusable:
            connection.idle_since = self._clock()
            self._idle.append(connection)
        else:
            connection.abort()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise NoConnection("this program is stopping")

    async def close(self) -> None:
        self._closed = True
        ends = [*self._idle, *self._in_use]
        self._idle.clear()
        for connection in ends:
            connection.abort()
        for connection in ends:
            await connection.closed()

    def _take_idle(self, route: Route) -> Connection | None:
        """The idle connection that was used last, if there is one. Closes those that have been idle for too long or cannot be used."""
        since = self._clock() - _LONGEST_IDLE
        found = None
        while self._idle and found is None:
            last = self._idle.pop()
            if last.is_open and last.route == route and last.idle_since >= since:
                found = last
            else:
                last.abort()
        while self._idle and self._idle[0].idle_since < since:
            self._idle.pop(0).abort()
        return found

    async def _connect(self, route: Route) -> Connection:
        where, gate = host_and_port(route.server), host_and_port(route.proxy or route.server)
        async with asyncio.timeout(self._connect_seconds):
            with _explained(f"the proxy {gate}" if route.proxy else where):
                connection = await self._open(route)
            if route.proxy and route.server.startswith("https:"):
                with _explained(where):
                    await _tunnel(connection, route, where)
        if self._closed:
            connection.abort()
        self._refuse_if_closed()
        connection.route = route
        _keep_alive(connection)
        return connection

    async def _open(self, route: Route) -> Connection:
        """Connect to the server, or to the proxy in front of it."""
        first = urlsplit(route.proxy or route.server)
        context, name = None, None
        if first.scheme == "https":
            context = ssl.create_default_context() if route.proxy else route.tls
            name = first.hostname if route.proxy else _name_in_certificate(route)
        host = first.hostname or ""
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            host,
            first.port or _PORTS[first.scheme],
            ssl=context,
            server_hostname=name,
            # One address needs no race, and asyncio leaves a socket open where a race is cancelled in the moment in which it ends.
            happy_eyeballs_delay=None if _is_address(host) else _NEXT_ADDRESS_AFTER,
        )
        return connection


def _is_address(host: str) -> bool:
    """Whether it is one, and no name that may have several."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False


def _name_in_certificate(route: Route) -> str | None:
    """Without the final dot of a fully qualified name, which certificates do not have."""
    return route.tls_server_name or (urlsplit(route.server).hostname or "").rstrip(".") or None


@contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, NoConnection):
        raise
    except ssl.SSLCertVerificationError as error:
        raise NoConnection(f"the certificate of {where} is not trusted: {error}") from error
    except OSError as error:  # asyncio's text only repeats the address; the kind of error says what was wrong
        raise NoConnection(f"cannot connect to {where}: {type(error).__name__}: {error.strerror or error}".removesuffix(": ")) from error


def host_and_port(url: str) -> str:
    """Host and port of a URL. A password that is not percent-encoded would be taken for a port, and an error would show it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in _PORTS:
        raise NoConnection(f"the proxy {parts.scheme}://{host} cannot be used: only http:// and https:// proxies are supported")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        host, port = "", 0
    if not host or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise NoConnection("the address of the server or proxy cannot be read: are its user name and password percent-encoded?")
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def target(route: Route, path: str) -> str:
    """The target in the request's first line: the path, or the whole URL for a proxy without a tunnel."""
    return f"{_before_path(route.server, route.proxy)}{path}"


@lru_cache(_FEW)
def _before_path(server: str, proxy: str | None) -> str:
    parts = urlsplit(server)
    prefix = f"http://{host_of(server)}" if proxy and parts.scheme == "http" else ""
    return f"{prefix}{parts.path}"


def headers_for(route: Route) -> dict[str, str]:
    """Headers that this route needs. A request in a tunnel carries none for the proxy, which cannot read it."""
    return dict(_headers(route.server, route.proxy))


@lru_cache(_FEW)
def _headers(server: str, proxy: str | None) -> dict[str, str]:
    headers = {"Host": host_of(server)}
    if proxy and server.startswith("http:"):
        headers |= _proxy_authorization(proxy)
    return headers


def host_of(url: str) -> str:
    """Host and port as written, without a user name and password in front of them."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _proxy_authorization(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


async def _tunnel(connection: Connection, route: Route, where: str) -> None:
    assert route.proxy is not None
    headers = {"Host": where} | _proxy_authorization(route.proxy)
    try:
        head = await connection.ask(request_bytes("CONNECT", where, headers, None), whole=True, bodiless=True)
        if head.status != 200:
            raise NoConnection(f"the proxy {host_of(route.proxy)} does not lead there, it answers {head.status}")
        outer: Any = connection.transport
        if route.proxy.startswith("https:"):
            outer._force_close = connection.broken_within
        inner = await asyncio.get_running_loop().start_tls(outer, connection, route.tls, server_hostname=_name_in_certificate(route))
        if inner is None:
            raise Malformed("the proxy closed the connection during the TLS handshake")
        connection.transport = inner
    except BaseException:
        connection.abort()
        raise


def _keep_alive(connection: Connection) -> None:
    """TCP keep-alive where the system has it. A connection without these options still works."""
    assert connection.transport is not None
    wire = connection.transport.get_extra_info("socket")
    try:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE.items():
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    except (AttributeError, OSError):
        pass
