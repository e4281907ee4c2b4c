"""One batch over HTTP, to collectors of all kinds: what is sent, and that a hostile one gets neither time nor memory."""

import asyncio
import gc
import socket
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sidecar.tracing.answers import Outcome, Taken, TryAgain
from sidecar.tracing.collector_io import Collector
from sidecar.tracing.variables import Settings
from tests.harness.collector import collecting
from tests.harness.loops import real
from tests.kube.certificates import certificate_for_this_machine

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
BODY = b'{"resourceSpans":[]}'


@asynccontextmanager
async def peer(act: Peer) -> AsyncIterator[str]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await act(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def unknown(name: str, port: int) -> list[str]:
    raise socket.gaierror(-2, "Name or service not known")


async def sent(url: str, *, timeout: float = 60.0, environ: dict[str, str] | None = None, lookup: Any = None, **more: object) -> Outcome:
    collector = Collector(
        Settings(url=f"{url}/v1/traces", timeout=timeout, **more),  # type: ignore[arg-type]
        environ or {},
        clock=asyncio.get_running_loop().time,
        lookup=lookup,
    )
    try:
        return await collector.send(BODY)
    finally:
        await collector.close()


async def asked(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(len(BODY))


def test_a_batch_is_one_post() -> None:
    with collecting() as stub:
        headers = (("authorization", "Bearer x"),)
        assert asyncio.run(sent(stub.endpoint, headers=headers)) == Taken()
        assert asyncio.run(sent(stub.endpoint)) == Taken()
    assert stub.paths == ["/v1/traces"] * 2
    assert stub.headers[0]["content-type"] == "application/json"
    assert stub.headers[0]["authorization"] == "Bearer x"
    assert stub.headers[0]["user-agent"].startswith("csi-node-sidecar/")
    assert "authorization" not in stub.headers[1]


async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asked(reader)


async def no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" * 100)  # as a server of HTTP/2 does
    await writer.drain()


async def long_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x: " + b"y" * 10_000 + b"\r\n")
        await writer.drain()


@pytest.mark.parametrize("act", [never, drips, hangs_up, no_http, long_head])
def test_a_collector_that_gives_no_answer_is_not_waited_for(act: Peer) -> None:
    async def story() -> Outcome:
        async with peer(act) as url:
            return await sent(url, timeout=0.2)

    assert isinstance(asyncio.run(story()), TryAgain)


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_huge_answer_no_more_is_held_than_is_of_use(packed: bool) -> None:
    """Ten MiB, and a gigabyte of zeros that a few bytes stand for."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        if packed:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (10 * 2**20))
            for _ in range(160):
                writer.write(b"x" * 2**16)
                await writer.drain()
        await writer.drain()
        await asyncio.sleep(60)

    async def story() -> int:
        async with peer(act) as url:
            gc.collect()
            tracemalloc.start()
            assert await sent(url) == Taken()
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return most

    assert asyncio.run(story()) < 6 * 2**20  # both ends are in this process


@pytest.mark.parametrize("trusted", [True, False])
def test_by_tls_the_certificate_is_checked(trusted: bool, tmp_path: Path) -> None:
    certificate, context = certificate_for_this_machine(tmp_path, "collector")

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def story() -> Outcome:
        server = await asyncio.start_server(act, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        outcome = await sent(url, certificate=str(certificate) if trusted else "")
        server.close()
        return outcome

    outcome = asyncio.run(story())
    assert outcome == Taken() if trusted else isinstance(outcome, TryAgain) and "is not trusted" in outcome.why


def test_a_proxy_is_used_as_for_the_api_server() -> None:
    """Without a tunnel for http, with the whole address in the first line; and not for what NO_PROXY names."""
    seen: list[bytes] = []

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await asked(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def story() -> None:
        async with peer(act) as proxy:
            assert await sent("http://collector.test:4318", environ={"HTTP_PROXY": proxy}) == Taken()
            excluded = {"HTTP_PROXY": proxy, "NO_PROXY": ".test"}
            assert isinstance(await sent("http://collector.test:4318", environ=excluded, lookup=unknown), TryAgain)

    asyncio.run(story())
    assert [line.partition(b"\r\n")[0] for line in seen] == [b"POST http://collector.test:4318/v1/traces HTTP/1.1"]


@real
async def test_a_name_server_that_hangs_holds_one_thread_and_no_batch() -> None:
    """asyncio's own lookup would take one thread after the other of those that write the journal."""
    release = threading.Event()
    lookups = 0

    def lookup(name: str, port: int) -> list[str]:
        nonlocal lookups
        lookups += 1
        release.wait()
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    def asking() -> int:
        return sum(thread.name == "collector's name" for thread in threading.enumerate())

    loop = asyncio.get_running_loop()
    collector = Collector(Settings(url="http://collector.test/", timeout=0.05), {}, clock=loop.time, lookup=lookup)
    for _ in range(5):
        assert await collector.send(BODY) == TryAgain("it does not answer in time")
    assert (lookups, asking()) == (1, 1)
    release.set()
    while asking():
        await asyncio.sleep(0.005)
    outcome = await collector.send(BODY)
    assert isinstance(outcome, TryAgain) and "collector.test is not found" in outcome.why
    await collector.close()


def _bomb() -> bytes:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(bytes(2**20)) for _ in range(64)), packer.flush()])


BOMB = _bomb()
