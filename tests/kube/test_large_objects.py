"""Large objects, from a server on a socket: memory is bounded in bytes, whatever tenants put into their objects."""

import asyncio
import gzip
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sidecar.kube.api import CLAIMS, KubeApi, Resource, every, records
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import BadEvent
from sidecar.kube.reflector import Reflector
from sidecar.kube.store import Store
from tests.harness.loops import real, run
from tests.kube.server import ScriptedServer, client_of, says, streams

MIB = 2**20


@dataclass
class Listing:
    """A server that makes each object when it sends it. `sizes` are bytes of the notes on them."""

    sizes: list[int]
    ignores_limits: bool = False
    gone_after: int = -1
    asked: list[tuple[int, int, str]] = field(default_factory=list)
    """Where each page began, its limit, and the version that was asked for."""
    zipped: bool = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]:
                query = {key: values[0] for key, values in parse_qs(urlsplit(line.split()[1].decode()).query).items()}
                await self._answer(writer, int(query.get("continue", 0)), int(query["limit"]), query.get("resourceVersion", ""))
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, writer: asyncio.StreamWriter, first: int, limit: int, version: str) -> None:
        self.asked.append((first, limit, version))
        if len(self.asked) - 1 == self.gone_after:
            body = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}'
            writer.write(b"HTTP/1.1 410 Gone\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        after = len(self.sizes) if self.ignores_limits and version == "0" else min(first + limit, len(self.sizes))
        token = str(after) if after < len(self.sizes) else ""
        pieces = [b'{"kind":"List","metadata":{"resourceVersion":"7","continue":"%s"},"items":[' % token.encode()]
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
        writer.write(head + (b"Content-Encoding: gzip\r\n\r\n" if self.zipped else b"\r\n"))
        zips = gzip.zlib.compressobj(1, wbits=31)  # type: ignore[attr-defined]
        for number in range(first, after):
            pieces.append(b'%s{"metadata":{"name":"c%06d","uid":"%06d","annotations":{"x":"' % (b"," * (number > first), number, number))
            pieces += [b"x" * self.sizes[number], b'"}}}']
            await self._send(writer, b"".join(pieces), zips)
            pieces = []
        await self._send(writer, b"".join(pieces) + b"]}", zips, last=True)
        writer.write(b"0\r\n\r\n")

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, zips: Any, *, last: bool = False) -> None:
        if self.zipped:
            data = zips.compress(data) + (zips.flush() if last else b"")
        if data:
            writer.write(b"%X\r\n%s\r\n" % (len(data), data))
        await writer.drain()

    def client(self) -> AbstractAsyncContextManager[KubeClient]:
        return client_of(self.serve, request_timeout=600.0)


async def listed(api: KubeApi, resource: Resource = CLAIMS) -> list[str]:
    return [obj["metadata"]["uid"] async for obj in every(api, resource)]


def uids(listing: Listing) -> list[str]:
    return [f"{number:06}" for number in range(len(listing.sizes))]


@pytest.mark.parametrize("zipped", [True, False])
def test_pages_shrink_where_objects_are_large_and_grow_again(zipped: bool) -> None:
    listing = Listing([100] * 500 + [MIB] * 30 + [100] * 300, zipped=zipped)

    async def main() -> None:
        async with listing.client() as client:
            assert await listed(client) == uids(listing)

    run(main())
    limits = [limit for _, limit, _ in listing.asked]
    assert limits[:4] == [500, 500, 62, 7], "the second page was given up twice"
    assert 1 <= min(limits) <= 3
    assert max(limits[-3:]) >= 50
    assert len(limits) < 40


def peak_of(work: Callable[[], Any]) -> float:
    tracemalloc.start()
    try:
        run(work())
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def test_what_a_reflector_holds_while_it_lists_is_an_object_and_not_a_page() -> None:
    listing = Listing([250 * 1024] * 200)
    store: Store[str] = Store()

    async def main() -> None:
        async with listing.client() as client:
            reflector = Reflector(client, CLAIMS, project=lambda obj: str(obj["metadata"]["name"]), store=store)
            task = asyncio.create_task(reflector.run())
            await reflector.wait_synced()
            task.cancel()

    assert peak_of(main) < 8
    assert len(store) == 200


@pytest.mark.parametrize("cached", [True, False])
def test_of_what_is_asked_for_now_and_then_only_records_are_held(cached: bool) -> None:
    listing = Listing([100 * 1024] * 500, ignores_limits=True)

    async def main() -> None:
        async with listing.client() as client:
            found = records(
                client, CLAIMS, lambda obj: obj["metadata"]["uid"] if obj["metadata"]["name"] != "c000007" else None, cached=cached
            )
            assert [uid async for uid in found] == [uid for uid in uids(listing) if uid != "000007"], (
                "once each, though a page was given up"
            )

    assert peak_of(main) < 8
    assert cached or len(listing.asked) > 1


# --- watches ------------------------------------------------------------------------------------------------------------


def large_event(kind: str, number: int, size: int) -> bytes:
    begin = b'{"type":"%s","object":{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"c%d",' % (kind.encode(), number)
    return begin + b'"namespace":"ns","uid":"u%d","resourceVersion":"%d","x":"%s"}}}' % (number, number, b"x" * size)


def test_an_event_that_is_larger_than_any_object_is_told_by_name_and_the_watch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    lines = [large_event(*each) + b"\n" for each in (("ADDED", 11, 0), ("MODIFIED", 11, 11 * MIB), ("MODIFIED", 12, 8 * MIB))]
    lines += [large_event(*each) + b"\n" for each in (("ADDED", 13, 0), ("MODIFIED", 11, 11 * MIB), ("DELETED", 13, 11 * MIB))]
    empty = says({"metadata": {"resourceVersion": "10"}, "items": []})
    store: Store[int] = Store()

    async def main() -> None:
        async with ScriptedServer(empty, streams(*lines, then="silent")) as server, await server.client() as client:
            reflector = Reflector(client, CLAIMS, project=lambda obj: len(obj["metadata"]["x"]), store=store)
            task = asyncio.create_task(reflector.run())
            while reflector.events < 6:
                await asyncio.sleep(0.01)
            task.cancel()
            assert len(server.seen) == 2, "one list, one watch"

    run(main())
    assert {key: store.get(key) for key in store} == {"ns/c11": 0, "ns/c12": 8 * MIB}
    told = [record for record in caplog.records if record.message == "An object cannot be read and is ignored"]
    assert [record.fields["key"] for record in told] == ["ns/c11"]  # type: ignore[attr-defined]


@real
async def test_a_line_without_end_that_names_nothing_ends_the_watch() -> None:
    async with ScriptedServer(streams(b"x" * (11 * MIB) + b"\n", then="silent")) as server, await server.client() as client:
        with pytest.raises(BadEvent, match="does not say of which object: x"):
            await anext(client.watch(CLAIMS, resource_version="5"))
