"""Where the debug pages are shown."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from sidecar.observe.metrics import Metrics
from sidecar.observe.server import ObserveServer
from tests.harness.loops import real

DEBUG = ("/debug/queue", "/debug/decisions")


def server(address: str = "127.0.0.1:0", **given: Any) -> ObserveServer:
    given = {"live": lambda: (True, []), "ready": lambda: (True, []), "queues": dict, "decisions": lambda key: [key], **given}
    return ObserveServer(address, metrics=Metrics("0"), **given)


def get(port: int, path: str, method: str = "GET") -> Coroutine[Any, Any, bytes]:
    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        said = await reader.read()
        writer.close()
        return said

    return exchange()


@pytest.mark.parametrize("address", ["127.0.0.1:0", ""])
@real
async def test_an_address_of_their_own_has_them_and_nothing_else(address: str) -> None:
    made = server(address, debug_address="localhost:0")
    await made.start()
    port = made.ports[-1]
    assert json.loads((await get(port, "/debug/decisions?key=a")).partition(b"\r\n\r\n")[2]) == ["a"]
    assert (await get(port, "/")).endswith(b"/debug/decisions\n/debug/queue\n")
    for path in ("/metrics", "/healthz", "/debug"):
        assert b" 404 " in await get(port, path)
    assert b" 405 " in await get(port, "/debug/queue", method="POST")
    assert len(made.ports) == (2 if address else 1)
    await made.stop()


@real
async def test_unless_they_are_asked_for_there_are_none_not_even_for_loopback() -> None:
    """A mesh's proxy connects from there for everybody."""
    for asked_for in (False, True):
        made = server(debug_address="127.0.0.1:0" if asked_for else "")
        await made.start()
        for path in DEBUG:
            assert (b" 200 " if asked_for else b" 404 ") in (await get(made.port, path)).split(b"\r\n")[0]
        assert (b"/debug/" in await get(made.port, "/")) is asked_for
        await made.stop()
