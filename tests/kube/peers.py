"""Both ends of a connection on real sockets: servers and proxies that do as they are told, and who asks them."""

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from sidecar.http1.answers import Head
from sidecar.http1.writing import request_bytes
from sidecar.kube.connections import Connection, Connections, Route, headers_for, target
from tests.harness.clock import Clock

T = TypeVar("T")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
USER, PASSWORD = "some:one", "s3cret/@?#%"
LOGIN = "some%3Aone:s3cret%2F%40%3F%23%25"
TOLD = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


# --- the other side -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    line: str
    headers: dict[str, str]
    body: bytes
    by: "Peer"


class Peer:
    """One connection, seen from the server."""

    def __init__(self, server: "Server", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.gone = asyncio.Event()

    async def asked(self) -> Asked:
        """The next request. It ends this connection's script when there is none."""
        raw = await self.reader.readuntil(b"\r\n\r\n")
        self.server.heard += raw
        first, *lines = raw.decode().split("\r\n")[:-2]
        headers = dict(line.split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("Content-Length", "0")))
        asked = Asked(first, headers, body, self)
        self.server.asked.append(asked)
        return asked

    async def says(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def left(self) -> None:
        """The client hangs up."""
        with suppress(OSError):
            while await self.reader.read(2**16):
                pass


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """`async with` it. Every connection runs the script, then it is closed."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.peers: list[Peer] = []
        self.asked: list[Asked] = []
        self.heard = b""
        self._script = script
        self._tls = tls
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.place}"

    @property
    def place(self) -> str:
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def lines(self) -> list[str]:
        return [asked.line for asked in self.asked]

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._accept, self._host, 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert [end for end in ends if isinstance(end, Exception)] == []

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self, reader, writer)
        self.peers.append(peer)
        self._tasks.add(asyncio.create_task(self._talk(peer)))

    async def _talk(self, peer: Peer) -> None:
        try:
            await self._script(peer)
            peer.writer.close()
            await peer.writer.wait_closed()
        except BaseException as error:
            peer.writer.transport.abort()
            if not isinstance(error, (OSError, EOFError)):
                raise
        finally:
            peer.gone.set()


def answers(*raws: bytes, then: str = "closes") -> Script:
    """One answer after the other, the last one for ever if that is what comes `then`, to each connection afresh."""

    async def script(peer: Peer) -> None:
        for raw in raws:
            await peer.asked()
            await peer.says(raw)
        while then == "repeats":
            await peer.asked()
            await peer.says(raws[-1])
        if then == "waits":
            await peer.left()

    return script


serves = answers(OK, then="repeats")


async def silent(peer: Peer) -> None:
    await peer.left()


async def leads(peer: Peer) -> None:
    """A proxy that does what it is asked."""
    asked = await peer.asked()
    host, _, port = asked.line.split()[1].rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        await peer.says(b"HTTP/1.1 200 Connection established\r\nVia: me\r\n\r\n")
        done, still = await asyncio.wait(
            [asyncio.create_task(_pump(peer.reader, writer)), asyncio.create_task(_pump(reader, peer.writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in still:
            task.cancel()
        await asyncio.gather(*done, *still, return_exceptions=True)
    finally:
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()


# --- our side -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def pool(most: int = 4, *, seconds: float = 60.0, clock: Callable[[], float] | None = None) -> AsyncGenerator[Connections, None]:
    connections = Connections(most, connect_seconds=seconds, clock=clock or Clock(1000.0))
    try:
        yield connections
    finally:
        await connections.close()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def lent(connections: Connections, route: Route) -> AsyncGenerator[Connection, None]:
    connection = await connections.acquire(route)
    try:
        yield connection
    finally:
        connections.release(connection)


async def ask(
    connections: Connections, route: Route, path: str = "/", *, body: bytes | None = None, whole: bool = True
) -> tuple[Head, bytes]:
    async with lent(connections, route) as connection:
        raw = request_bytes("GET", target(route, path), headers_for(route) | {"Authorization": "Bearer mine"}, body)
        head = await connection.ask(raw, whole=whole)
        return head, await connection.read_all()


async def gets_ok(connections: Connections, route: Route, path: str = "/") -> None:
    head, body = await ask(connections, route, path)
    assert (head.status, body) == (200, b"ok")


async def all_slots_are_free(connections: Connections, route: Route, most: int = 4) -> None:
    borrowed = [await connections.acquire(route) for _ in range(most)]
    for connection in borrowed:
        connections.release(connection)


BARE = ssl.create_default_context()


def route_to(server: Server, *, tls: ssl.SSLContext = BARE, name: str | None = None, proxy: str | None = None, path: str = "") -> Route:
    return Route(server.url + path, tls, name, proxy)
