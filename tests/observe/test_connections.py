"""Clients of the pages that mean harm, or know no better: none holds more than its share, and an honest one is answered beside them all."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.observe.connections import BOUNDS, Bounds, Connections
from sidecar.observe.metrics import Metrics
from sidecar.observe.pages import text
from sidecar.observe.server import ObserveServer
from tests.harness.loops import real, run, until
from tests.harness.open_files import no_more_files

GET = b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n"
POST = b"POST /healthz HTTP/1.1\r\nHost: node\r\n"
LARGE = "x" * 11_000


class Client:
    """A socket and what one does with it, well-behaved or not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def says(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)

    async def hears(self, count: int = 1) -> list[int]:
        """The statuses of the next answers, which are read whole."""
        return [await self._status() for _ in range(count)]

    async def _status(self) -> int:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.split(": ")[1]) for line in head.splitlines() if line.startswith("Content-Length"))
        await self.reader.readexactly(length)
        return int(head.split()[1])

    async def rest(self) -> bytes:
        """All that still comes, up to when the server has closed."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b"(reset)"


class Port:
    """A server and its clients."""

    def __init__(self, server: ObserveServer) -> None:
        self.server = server
        self._clients: list[Client] = []

    async def client(self, *pieces: bytes, window: int | None = None, of: str = "127.0.0.1", wire: socket.socket | None = None) -> Client:
        wire = wire or socket.socket()
        wire.setblocking(False)
        wire.bind((of, 0))
        if window is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        await asyncio.get_running_loop().sock_connect(wire, ("127.0.0.1", self.server.port))
        client = Client(*await asyncio.open_connection(sock=wire, limit=2**20))
        self._clients.append(client)
        client.says(*pieces)
        return client

    async def works(self, **given: Any) -> bool:
        return await (await self.client(GET, **given)).hears() == [200]

    @property
    def open(self) -> int:
        assert self.server._ports[0]._connections is not None
        return len(self.server._ports[0]._connections)

    async def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()
        await self.server.stop()
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def port(bounds: Bounds = BOUNDS, **given: Any) -> AsyncIterator[Port]:
    fine: dict[str, Any] = {"metrics": Metrics("0"), "live": lambda: (True, []), "ready": lambda: (True, [])}
    server = ObserveServer("127.0.0.1:0", debug_address="127.0.0.1:0", **(fine | given), bounds=bounds)
    await server.start()
    opened = Port(server)
    try:
        yield opened
    finally:
        await opened.close()


def test_bounds_suit_a_kubelet_a_scraper_and_a_person() -> None:
    assert BOUNDS.request < 10 < 60 < BOUNDS.idle, "a scrape a minute keeps its connection, and a probe fails sooner than it is cut off"
    assert BOUNDS.connections * 2**18 < 16 * 2**20, "packets of all of them at once are less than what an instance may grow by"


# --- time, which is virtual ---------------------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """The server's end of a connection, whose client takes everything at once."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        super().__init__()
        self.connections = Connections(lambda *_: text("ok"), bounds=bounds)
        self.protocol = self.connections.begin()
        self.written = b""
        self.ended_at: float | None = None
        self.protocol.connection_made(self)

    async def says(self, data: bytes) -> bytes:
        """What the server says to that."""
        self.written = b""
        if not self.is_closing():
            self.protocol.data_received(data)
        await asyncio.sleep(0)
        return self.written

    async def lives(self) -> float:
        """Seconds from now until the server closes it."""
        now = asyncio.get_running_loop().time()
        while self.ended_at is None:
            await asyncio.sleep(0.01)
        return self.ended_at - now

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.ended_at is not None

    def abort(self) -> None:
        if self.ended_at is None:
            self.ended_at = asyncio.get_running_loop().time()
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    close = abort


@pytest.mark.parametrize("said", [b"", b"G", b"GET /healthz HTTP/1.1\r\n", GET[:-1]], ids=["nothing", "a-byte", "a-line", "all-but-a-byte"])
def test_a_head_that_does_not_end_is_not_waited_for(said: bytes) -> None:
    async def main() -> float:
        wire = Wire()
        assert await wire.says(said) == b""
        return await wire.lives()

    assert run_virtual(main()) == pytest.approx(BOUNDS.request, abs=0.1)


def test_a_head_byte_by_byte_has_no_more_time_than_any_other() -> None:
    async def main() -> float:
        wire, began = Wire(), asyncio.get_running_loop().time()
        for byte in GET[:-2] + b"X: y\r\n" * 100:
            await wire.says(bytes([byte]))
            await asyncio.sleep(0.5)
        return await wire.lives() + asyncio.get_running_loop().time() - began

    assert run_virtual(main()) == pytest.approx(BOUNDS.request, abs=0.6)


# --- listening ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks", [1, 200])
@real
async def test_who_does_not_listen_is_cut_off_and_holds_one_answer(asks: int) -> None:
    asked: list[int] = []

    def much() -> list[str]:
        asked.append(1)
        return [LARGE] * 700

    async with port(Bounds(answer=0.1), queues=much) as at:
        await at.client(GET.replace(b"healthz", b"debug/queue") * asks, window=2**12)
        await until(lambda: asked and not at.open)
        assert sum(asked) == 1
        assert await at.works()


# --- number -------------------------------------------------------------------------------------------------------------


@real
async def test_one_connection_too_many_ends_the_one_without_a_request_for_longest() -> None:
    async with port(Bounds(connections=4)) as at:
        clients = [await at.client(GET) for _ in range(4)]
        for client in clients:
            assert await client.hears() == [200]
        clients[0].says(GET)  # it is no longer the one
        assert await clients[0].hears() == [200]
        assert await at.works()
        assert await clients[1].rest() == b""
        for client in (clients[0], clients[2], clients[3]):
            client.says(GET)
            assert await client.hears() == [200]
        assert at.open == 4


@real
async def test_a_crowd_that_says_nothing_keeps_no_probe_out() -> None:
    async with port(Bounds(connections=4)) as at:
        for _ in range(20):
            await at.client(GET[:5])
            assert await at.works()
            assert at.open <= 4


@pytest.mark.parametrize("before", [0, 5, 11, 12, 25, 40])
@real
async def test_a_probe_amid_a_flood_of_its_own_address_is_answered(before: int) -> None:
    """Those behind it are taken only when it has been heard."""

    async with port(BOUNDS) as at:
        with contextlib.ExitStack() as opened:

            def crowd(count: int) -> list[socket.socket]:
                """Nothing is awaited, so all of them wait to be accepted."""
                return [opened.enter_context(socket.create_connection(("127.0.0.1", at.server.port))) for _ in range(count)]

            crowd(before)
            probe = crowd(1)[0]
            probe.sendall(GET)
            crowd(60)
            probe.setblocking(False)
            assert (await asyncio.get_running_loop().sock_recv(probe, 100)).startswith(b"HTTP/1.1 200")


@real
async def test_a_crowd_of_one_address_ends_connections_of_its_own() -> None:
    async with port(Bounds(connections=8, of_one_address=4)) as at:
        probe = await at.client()
        for _ in range(20):
            await at.client(of="127.0.0.2")
        probe.says(GET)
        assert await probe.hears() == [200]
        assert at.open == 5


@real
async def test_of_many_addresses_the_one_with_most_connections_gives_way() -> None:
    async with port(Bounds(connections=8, of_one_address=4)) as at:
        probe = await at.client()
        for number in range(24):
            await at.client(of=f"127.0.0.{2 + number % 3}")
        probe.says(GET)
        assert await probe.hears() == [200]
        assert at.open == 8


# --- a process without a file to spare ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spare", [0, 6])
def test_probes_are_answered_although_no_file_can_be_opened(spare: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with port() as at:
            wires = [socket.socket() for _ in range(60)]
            with no_more_files(spare):
                for number, wire in enumerate(wires):
                    if number % 10 == 9:
                        assert await at.works(wire=wire)
                    else:
                        await at.client(GET[:5], wire=wire, of="127.0.0.2")
            assert await at.works()

    run(main())
    assert len(caplog.records) == 1, "told once, not for each"


# --- what follows a request -------------------------------------------------------------------------------------------


@real
async def test_requests_in_one_packet_are_answered_one_by_one_and_others_in_between() -> None:
    order: list[str] = []

    def decisions(key: str | None) -> list[str]:
        order.append(str(key))
        return []

    async with port(decisions=decisions) as at:
        crowd = b"".join(GET.replace(b"healthz", b"debug/decisions?key=%d" % number) for number in range(300))
        first, second = await at.client(), await at.client()
        first.says(crowd)
        second.says(GET.replace(b"healthz", b"debug/decisions?key=other"))
        assert await second.hears() == [200]
        assert await first.hears(300) == [200] * 300
        assert order.index("other") < 250, "it does not wait for all of them"
        assert [key for key in order if key != "other"] == [str(number) for number in range(300)]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (POST + b"Content-Length: 5\r\n\r\nhello", b" 405 "),
        (POST + b"Content-Length: 54\r\n\r\n", b" 405 "),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b" 405 "),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", b" 400 "),
        (POST + b"Content-Length: 0\r\nContent-Length: 54\r\n\r\n", b" 400 "),
        (POST + b"Content-Length : 54\r\n\r\n", b" 400 "),
        (POST + b"Transfer-Encoding\0: chunked\r\n\r\n", b" 400 "),
        (POST + b"X: y\nTransfer-Encoding: chunked\r\n\r\n", b" 400 "),
        (GET[:-2] + b"Content-Length: 5\r\n\r\n", b" 200 "),
        (POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", b" 405 "),
        (b"\x16\x03\x01\x02\x00\x01\x00", b" 400 "),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b" 400 "),
    ],
)
@real
async def test_behind_a_body_or_nonsense_no_request_is_found(raw: bytes, status: bytes) -> None:
    async with port(Bounds(farewell=0.1)) as at:
        client = await at.client(raw + GET.replace(b"healthz", b"smuggled"))
        said = await client.rest()
        assert said.count(b"HTTP/1.1 ") == 1
        assert status in said.split(b"\r\n")[0]
        assert b"Connection: close" in said


@real
async def test_a_body_without_end_is_cut_off() -> None:
    async with port(Bounds(discarded=50_000, farewell=20.0)) as at:
        client = await at.client(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        assert await client.hears() == [405]
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                client.says(b"1\r\nx\r\n" * 1000)
                await client.writer.drain()
                if not at.open:
                    break
        assert at.open == 0
        assert await at.works()


# --- how connections end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", GET[:9], GET, GET * 50, POST + b"Content-Length: 5\r\n\r\n", b"\0"])
@real
async def test_a_reset_at_any_time_is_nobody_elses_matter(said: bytes) -> None:
    async with port(Bounds(connections=50)) as at:
        for turn in range(5):
            client = await at.client(said)
            for _ in range(turn):
                await asyncio.sleep(0)
            wire = client.writer.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
        assert await at.works()
        await until(lambda: at.open == 1)


@real
async def test_garbage_of_all_sorts() -> None:
    """Whatever comes is answered or refused, and never shown to anybody nor taken for a failure of ours."""
    rng = random.Random(17)

    async with port(Bounds(connections=100, of_one_address=100, farewell=0.1)) as at:
        clients = []
        for _ in range(60):
            raw = bytearray(GET * rng.randint(1, 3))
            for _ in range(rng.randint(1, 6)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            clients.append(await at.client(bytes(raw)))
            clients[-1].writer.write_eof()
        for client in clients:
            said = await client.rest()
            assert said == b"" or said.startswith(b"HTTP/1.1 ")
            assert b" 500 " not in said
        assert await at.works()
