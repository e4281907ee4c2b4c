"""Whom the debug pages are shown to."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from sidecar.http1.requests import Request
from sidecar.observe.debug import DebugPages, debug_pages, is_loopback
from sidecar.observe.metrics import Metrics
from sidecar.observe.server import ObserveServer
from tests.harness.loops import real

DEBUG = ("/debug/queue", "/debug/decisions")


def server(address: str = "127.0.0.1:0", **given: Any) -> ObserveServer:
    given = {"live": lambda: (True, []), "ready": lambda: (True, []), "queues": dict, "decisions": lambda key: [key], **given}
    return ObserveServer(address, metrics=Metrics("0"), **given)


def asked(path: str, *, method: str = "GET") -> Request:
    return Request(method, path, {}, stays_open=True)


def answers(made: ObserveServer, address: str, *paths: str) -> list[int]:
    """Of its first port."""
    return [made._ports[0]._answer(asked(path), address).status for path in paths]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_sees_them(address: str) -> None:
    assert is_loopback(address)
    assert answers(server(), address, *DEBUG) == [200, 200]


@pytest.mark.parametrize("address", ["10.0.0.7", "192.0.2.1", "::ffff:10.0.0.7", "2001:db8::1", "fe80::1%eth0", "", "node-1"])
def test_nobody_else_does_and_all_see_the_rest(address: str) -> None:
    assert not is_loopback(address)
    assert answers(server(), address, *DEBUG, "/metrics", "/healthz", "/readyz", "/") == [403, 403, 200, 200, 200, 200]
    refused = server()._ports[0]._answer(asked(DEBUG[0]), address)
    assert b"port-forward" in refused.body and b"--debug-endpoint" in refused.body


def test_metrics_in_place_of_a_debug_page_are_for_all() -> None:
    assert answers(server(metrics_path="/debug/queue"), "10.0.0.7", *DEBUG) == [200, 403]


def test_the_same_address_for_both_shows_them_to_all() -> None:
    assert answers(server(":8080", debug_address=":8080"), "10.0.0.7", *DEBUG, "/healthz") == [200, 200, 200]


def get(port: int, path: str) -> Coroutine[Any, Any, bytes]:
    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
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
    assert len(made.ports) == (2 if address else 1)
    await made.stop()


def test_at_an_address_of_their_own_everybody_sees_them() -> None:
    pages = DebugPages(debug_pages(queues=dict, decisions=None))
    assert pages.answer(asked("/debug/queue"), "10.0.0.7").status == 200
    assert pages.answer(asked("/debug/queue", method="POST"), "10.0.0.7").status == 405
    assert pages.answer(asked("/debug/decisions"), "10.0.0.7").status == 404
    assert not pages.at_once(asked("/debug/queue"))
