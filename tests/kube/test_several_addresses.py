"""A host name with several addresses, or with others than before."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.kube.connections import NoConnection, Route
from tests.harness.loops import real
from tests.kube.peers import BARE, Server, ask, gets_ok, pool, serves


def _addresses(*hosts: str) -> Callable[..., Any]:
    """What a name is looked up as."""

    async def found(_: str, port: int, **__: Any) -> list[tuple[Any, ...]]:
        kinds = [(socket.AF_INET6, (host, port, 0, 0)) if ":" in host else (socket.AF_INET, (host, port)) for host in hosts]
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in kinds]

    return found


@pytest.mark.parametrize("why", [OSError(errno.ENETUNREACH, "Network is unreachable"), OSError(errno.EADDRNOTAVAIL, "Cannot assign")])
@real
async def test_addresses_that_this_machine_cannot_reach_cost_nothing(why: OSError) -> None:
    """As IPv6 ones on a node without it, which come first."""

    loop = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def only_ipv4(sock: socket.socket, address: Any) -> None:
        if ":" in address[0]:
            raise why
        await connect(sock, address)

    loop.getaddrinfo = _addresses("2001:db8::1", "2001:db8::2", "127.0.0.1")  # type: ignore[method-assign]
    loop.sock_connect = only_ipv4  # type: ignore[method-assign]
    async with Server(serves) as server, pool(1) as connections:
        await gets_ok(connections, Route(f"http://api.example:{server.port}", BARE, None, None))


@real
async def test_a_name_is_looked_up_anew_for_each_connection() -> None:
    """The API server has moved, and its old address belongs to somebody else by now."""

    async def new_home(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nnew")
        writer.close()

    loop = asyncio.get_running_loop()
    async with Server(serves, host="127.0.0.2") as old, pool(1) as connections:
        route = Route(f"http://api.example:{old.port}", BARE, None, None)
        loop.getaddrinfo = _addresses("127.0.0.2")  # type: ignore[method-assign]
        await gets_ok(connections, route)
        await gets_ok(connections, route)
        assert len(old.peers) == 1
        loop.getaddrinfo = _addresses("127.0.0.3")  # type: ignore[method-assign]
        old.peers[0].writer.close()
        await asyncio.sleep(0.01)
        moved = await asyncio.start_server(new_home, "127.0.0.3", old.port)
        async with moved:
            head, body = await ask(connections, route)
        assert (head.status, body) == (200, b"new") and len(old.peers) == 1


@real
async def test_a_name_that_is_not_known_for_a_while_is_said_to_be_that() -> None:
    async def unknown(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo
    loop.getaddrinfo = unknown  # type: ignore[method-assign]
    async with Server(serves) as server, pool(1) as connections:
        route = Route(f"http://localhost:{server.port}", BARE, None, None)
        with pytest.raises(NoConnection, match=r"cannot connect to localhost:.*Temporary failure in name resolution"):
            await connections.acquire(route)
        loop.getaddrinfo = look_up  # type: ignore[method-assign]
        await gets_ok(connections, route)
