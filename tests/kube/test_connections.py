"""Connections on real sockets, in real time with short limits: what servers, proxies, TLS and impatient callers do to them."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from sidecar.http1.fields import Malformed
from sidecar.http1.writing import request_bytes
from sidecar.kube.connections import NoConnection, Route
from tests.harness.clock import Clock
from tests.harness.loops import real, until
from tests.kube.certificates import Identity, identity
from tests.kube.peers import (
    BARE,
    LOGIN,
    OK,
    PASSWORD,
    TOLD,
    Peer,
    Server,
    all_slots_are_free,
    answers,
    ask,
    gets_ok,
    leads,
    lent,
    pool,
    route_to,
    serves,
    silent,
)

# --- certificates -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def api(folder: Path) -> Identity:
    return identity(folder, "api", "IP:127.0.0.1", "IP:::1")


@pytest.fixture(scope="module")
def named(folder: Path) -> Identity:
    return identity(folder, "named", "DNS:api.example")


@pytest.fixture(scope="module")
def gate(folder: Path) -> Identity:
    """The proxy's."""
    return identity(folder, "gate", "IP:127.0.0.1")


@pytest.fixture
def gate_is_trusted(gate: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(gate.file))


# --- kept, or not -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@real
async def test_a_connection_is_used_again(tls: bool, api: Identity) -> None:
    async with Server(serves, tls=api.server() if tls else None) as server, pool() as connections:
        route = route_to(server, tls=api.trusted())
        for number in range(5):
            await gets_ok(connections, route, f"/{number}")
        assert server.lines == [f"GET /{number} HTTP/1.1" for number in range(5)]
        assert len(server.peers) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"\r\n",
        OK + OK,
    ],
    ids=["close", "old", "line-break", "second-answer"],
)
@real
async def test_a_connection_that_is_spent_is_closed_by_us(raw: bytes) -> None:
    async with Server(answers(raw, then="waits")) as server, pool() as connections:
        for _ in range(3):
            await gets_ok(connections, route_to(server))
        await asyncio.gather(*(peer.gone.wait() for peer in server.peers))
        assert len(server.peers) == 3


@pytest.mark.parametrize(("idle", "opened"), [(15.0, 1), (15.1, 2)])
@real
async def test_idle_for_long_is_not_used_again(idle: float, opened: int) -> None:
    clock = Clock()
    async with Server(serves) as server, pool(clock=clock) as connections:
        await gets_ok(connections, route_to(server))
        clock.now += idle
        await gets_ok(connections, route_to(server))
        assert len(server.peers) == opened
        if opened == 2:
            await server.peers[0].gone.wait()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@real
async def test_a_server_that_hung_up_in_the_meantime_is_asked_anew(tls: bool, api: Identity) -> None:
    async with Server(answers(OK), tls=api.server() if tls else None) as server, pool() as connections:
        route = route_to(server, tls=api.trusted())
        for number in range(3):
            await gets_ok(connections, route)
            await server.peers[number].gone.wait()
            await asyncio.sleep(0.05)
        assert len(server.peers) == 3


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08",
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "stream"])
@real
async def test_an_answer_that_breaks_off_is_an_error(raw: bytes, whole: bool) -> None:
    async with Server(answers(raw)) as server, pool(1) as connections:
        for _ in range(2):
            with pytest.raises(Malformed, match=r"closed|broke off"):
                await ask(connections, route_to(server), whole=whole)
        assert len(server.peers) == 2


@real
async def test_a_reset_within_an_answer_until_the_end_is_an_error_and_no_end() -> None:
    async def resets(peer: Peer) -> None:
        await peer.reader.readexactly(1)  # what is unread makes a close a reset
        await peer.says(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await asyncio.sleep(0.05)
        peer.writer.transport.abort()

    async with Server(resets) as server, pool() as connections, lent(connections, route_to(server)) as connection:
        connections_peer = server.peers
        await connection.ask(request_bytes("GET", "/", {}, b"x" * 2**20), whole=False)
        connections_peer[0].reader._transport.pause_reading()  # type: ignore[attr-defined]
        with pytest.raises(ConnectionError):
            while await connection.read():
                pass


# --- a few for many -----------------------------------------------------------------------------------------------------


@real
async def test_no_more_than_the_limit_are_open_and_all_are_served() -> None:
    busy, most = 0, 0

    async def slow(peer: Peer) -> None:
        nonlocal busy, most
        while True:
            await peer.asked()
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.005)
            busy -= 1
            await peer.says(OK)

    async with Server(slow) as server, pool(3) as connections:
        await asyncio.gather(*(gets_ok(connections, route_to(server), f"/{number}") for number in range(60)))
        assert sorted(server.lines) == sorted(f"GET /{number} HTTP/1.1" for number in range(60))
        assert (most, len(server.peers)) == (3, 3)


@real
async def test_first_come_first_served_and_who_leaves_the_line_holds_up_nobody() -> None:
    async with Server(serves) as server, pool(1) as connections:
        route = route_to(server)
        borrowed = await connections.acquire(route)
        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(gets_ok(connections, route, f"/{number}")))
            await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[3].cancel()
        await asyncio.sleep(0)
        connections.release(borrowed)
        late = asyncio.create_task(gets_ok(connections, route, "/late"))  # there is a free one, but others were first
        tasks[5].cancel()
        await asyncio.gather(*tasks, late, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [True, False, False, True, False, True]
        assert [line.split()[1] for line in server.lines] == ["/1", "/2", "/4", "/late"]
        await all_slots_are_free(connections, route, 1)


@real
async def test_who_is_cancelled_just_when_it_is_his_turn_passes_it_on() -> None:
    async with Server(serves) as server, pool(1) as connections:
        route = route_to(server)
        borrowed = await connections.acquire(route)
        first, second = (asyncio.create_task(gets_ok(connections, route, path)) for path in ("/first", "/second"))
        await asyncio.sleep(0)
        connections.release(borrowed)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert (first.cancelled(), second.cancelled()) == (True, False)
        await all_slots_are_free(connections, route, 1)


@real
async def test_whoever_could_not_connect_keeps_no_slot() -> None:
    async with Server(serves) as gone:
        pass
    async with pool(2) as connections:
        for _ in range(5):
            with pytest.raises(NoConnection, match=f"cannot connect to {gone.place}: .") as caught:
                await connections.acquire(route_to(gone))
            assert isinstance(caught.value.__cause__, OSError)
        async with Server(serves) as server:
            await all_slots_are_free(connections, route_to(server), 2)


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
@pytest.mark.parametrize(
    "stage", ["nothing-said", "head", "body", "stream", "tls-handshake", "proxy-silent", "proxy-tls-handshake", "tunnelled-tls-handshake"]
)
@real
async def test_whoever_gives_up_loses_his_connection_but_not_his_slot(
    how: str, stage: str, api: Identity, gate_is_trusted: None, gate: Identity
) -> None:
    begun = {"head": b"HTTP/1.1 200 OK\r\n", "body": OK[:-1], "stream": OK[:-1]}.get(stage)

    script = answers(begun, then="waits") if begun else silent
    connected = asyncio.Event()

    async def then(peer: Peer) -> None:
        connected.set()
        if stage == "tunnelled-tls-handshake":
            await peer.asked()
            await peer.says(b"HTTP/1.1 200 OK\r\n\r\n")
        await script(peer)

    async with Server(then) as server, Server(serves) as works, pool(1) as connections:
        proxy = f"{'https' if stage == 'proxy-tls-handshake' else 'http'}://{server.place}"
        route = Route(f"https://{server.place}", api.trusted(), None, proxy if "proxy" in stage or "tunnel" in stage else None)
        if begun or stage == "nothing-said":
            route = route_to(server)

        async def asks() -> None:
            async with asyncio.timeout(0.15 if how == "deadline" else None):
                await ask(connections, route, whole=stage != "stream")

        asking = asyncio.create_task(asks())
        await connected.wait()
        if how == "cancelled":
            await asyncio.sleep(0.1)
            asking.cancel()
        with pytest.raises(TimeoutError if how == "deadline" else asyncio.CancelledError):
            await asking
        await server.peers[0].gone.wait()
        assert len(server.peers) == 1
        await gets_ok(connections, route_to(works))


@pytest.mark.parametrize("by", ["tls-handshake", "proxy"])
@real
async def test_a_connection_that_is_not_made_in_time(by: str, api: Identity) -> None:
    async with Server(silent) as server, pool(1, seconds=0.1) as connections:
        route = Route(f"https://{server.place}", api.trusted(), None, server.url if by == "proxy" else None)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await connections.acquire(route)
        await asyncio.gather(*(peer.gone.wait() for peer in server.peers))


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@real
async def test_closing_ends_what_is_under_way_and_what_is_idle(tls: bool, api: Identity) -> None:
    async def half(peer: Peer) -> None:
        if (await peer.asked()).line.startswith("GET /stream"):
            await peer.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        elif peer is peer.server.peers[0]:
            await peer.says(OK)
        await peer.left()

    async with Server(half, tls=api.server() if tls else None) as server, pool() as connections:
        route = route_to(server, tls=api.trusted())
        await gets_ok(connections, route)
        borrowed = await connections.acquire(route)
        asking = [asyncio.create_task(ask(connections, route, path, whole=whole)) for path, whole in (("/a", True), ("/stream", False))]
        await until(lambda: len(server.asked) == 3)
        connections.release(borrowed)
        await connections.close()
        for outcome in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(outcome, Malformed)
            assert "closed" in str(outcome)
        await asyncio.gather(*(peer.gone.wait() for peer in server.peers))
        assert len(server.peers) == 3
        await connections.close()


# --- much ---------------------------------------------------------------------------------------------------------------

BLOCK = bytes(range(251)) * 260


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@real
async def test_a_stream_that_nobody_reads_makes_the_server_wait_and_loses_nothing(tls: bool, api: Identity) -> None:
    blocks, sent = 800, 0

    async def floods(peer: Peer) -> None:
        nonlocal sent
        await peer.asked()
        await peer.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(blocks):
            await peer.says(b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK))
            sent += 1
        await peer.says(b"0\r\n\r\n")

    async with (
        Server(floods, tls=api.server() if tls else None) as server,
        pool() as connections,
        lent(connections, route_to(server, tls=api.trusted())) as connection,
    ):
        await connection.ask(request_bytes("GET", "/", {}, None), whole=False)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert 0 < sent < blocks / 2
        assert connection._reading is not None
        assert connection._reading.held < 2**22
        pieces = []
        while piece := await connection.read():
            pieces.append(piece)
        assert b"".join(pieces) == BLOCK * blocks


# --- TLS ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("through", ["straight", "proxy", "tls-proxy"])
@real
async def test_a_certificate_that_is_not_trusted(
    through: str, api: Identity, named: Identity, gate: Identity, gate_is_trusted: None
) -> None:
    async with (
        Server(serves, tls=api.server()) as server,
        Server(leads, tls=gate.server() if through == "tls-proxy" else None) as proxy,
        pool(1) as connections,
    ):
        route = route_to(server, tls=named.trusted(), proxy=None if through == "straight" else proxy.url)
        for _ in range(2):
            with pytest.raises(NoConnection, match=rf"the certificate of {server.place} is not trusted: .*self-signed") as caught:
                await connections.acquire(route)
            assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        await gets_ok(connections, route_to(server, tls=api.trusted(), proxy=route.proxy))


@pytest.mark.parametrize("through", ["straight", "proxy"])
@real
async def test_the_name_that_tls_expects_may_be_another_one_than_the_address(through: str, named: Identity) -> None:
    told: list[str | None] = []
    context = named.server()
    context.sni_callback = lambda _, name, __: told.append(name)
    async with Server(serves, tls=context) as server, Server(leads) as proxy, pool() as connections:

        def route(name: str | None) -> Route:
            return route_to(server, tls=named.trusted(), name=name, proxy=proxy.url if through == "proxy" else None)

        await gets_ok(connections, route("api.example"))
        assert told == ["api.example"]
        assert server.asked[0].headers["Host"] == server.place
        for wrong in (None, "other.example"):
            with pytest.raises(NoConnection, match=rf"certificate of {server.place} is not trusted: .*mismatch"):
                await connections.acquire(route(wrong))


@pytest.mark.parametrize("through", ["straight", "proxy"])
@real
async def test_a_refused_client_certificate_is_an_error_of_tls_with_the_first_read(through: str, api: Identity) -> None:
    """From TLS 1.3 on, the handshake is over for us before the server has seen our certificate."""
    context = api.server()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(api.file)
    context.minimum_version = ssl.TLSVersion.TLSv1_3

    async def refuses(peer: Peer) -> None:
        """By hand: whoever closes with something unread destroys what he said last."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls, refused = context.wrap_bio(incoming, outgoing, server_side=True), False
        while not refused:
            incoming.write(await peer.reader.read(2**16))
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                refused = True
            await peer.says(outgoing.read())
        await peer.left()

    async with Server(refuses) as server, Server(leads) as proxy, pool(1) as connections:
        route = Route(f"https://{server.place}", api.trusted(), None, proxy.url if through == "proxy" else None)
        for whole in (True, False):
            with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
                await ask(connections, route, whole=whole)
        await asyncio.gather(*(peer.gone.wait() for peer in server.peers))
    async with Server(serves, tls=context) as server, pool() as connections:
        ours = api.trusted()
        ours.load_cert_chain(api.file, api.key)
        await gets_ok(connections, route_to(server, tls=ours))


# --- where --------------------------------------------------------------------------------------------------------------


@real
async def test_an_address_that_never_answers_is_not_waited_for() -> None:
    """A host that is down says nothing, and the system would wait for minutes."""

    loop = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def both(_: str, port: int, **__: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.9", "127.0.0.1")]

    async def one_is_down(sock: socket.socket, address: Any) -> None:
        if address[0] == "127.0.0.9":
            await asyncio.Event().wait()
        await connect(sock, address)

    loop.getaddrinfo = both  # type: ignore[assignment,method-assign]
    loop.sock_connect = one_is_down  # type: ignore[assignment,method-assign]
    async with Server(serves) as server, pool(1) as connections:
        await gets_ok(connections, Route(f"http://api.example:{server.port}", BARE, None, None))


@real
async def test_an_address_with_a_path_is_put_before_every_path() -> None:
    async with Server(serves) as server, Server(serves) as proxy, pool() as connections:
        await gets_ok(connections, route_to(server, path="/k8s/clusters/c-1"), "/api/v1/pods?limit=5")
        await gets_ok(connections, route_to(server, path="/k8s/clusters/c-1", proxy=proxy.url), "/version")
        assert server.lines == ["GET /k8s/clusters/c-1/api/v1/pods?limit=5 HTTP/1.1"]
        assert proxy.lines == [f"GET http://{server.place}/k8s/clusters/c-1/version HTTP/1.1"]


@real
async def test_a_login_in_the_servers_address_is_told_nobody() -> None:
    async with Server(serves) as server, Server(serves) as proxy, pool() as connections:
        for through in (None, proxy.url):
            await gets_ok(connections, Route(f"http://{LOGIN}@{server.place}", BARE, None, through))
        for heard in (server.heard, proxy.heard):
            assert b"s3cret" not in heard
            assert f"Host: {server.place}\r\n".encode() in heard


# --- through a proxy ----------------------------------------------------------------------------------------------------


def _tells_nothing(error: BaseException | None) -> None:
    """Neither an error nor what caused it."""
    while error is not None:
        for secret in (PASSWORD, LOGIN, "s3cret", TOLD.split()[1]):
            assert secret not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


UNQUOTED = ("s3cret/x", "s3cret#x", "s3cret?x")


def _proxy_url(proxy: Server, *, login: bool) -> str:
    return proxy.url.replace("://", f"://{LOGIN}@") if login else proxy.url


@pytest.mark.parametrize("login", [False, True], ids=["anybody", "login"])
@pytest.mark.parametrize("proxy_tls", [False, True], ids=["proxy", "tls-proxy"])
@real
async def test_a_tunnel(login: bool, proxy_tls: bool, api: Identity, gate: Identity, gate_is_trusted: None) -> None:
    async with (
        Server(serves, tls=api.server()) as server,
        Server(leads, tls=gate.server() if proxy_tls else None) as proxy,
        pool() as connections,
    ):
        route = route_to(server, tls=api.trusted(), proxy=_proxy_url(proxy, login=login), path="/p")
        for number in range(3):
            await gets_ok(connections, route, f"/{number}")
        assert server.lines == [f"GET /p/{number} HTTP/1.1" for number in range(3)]
        (connect,) = proxy.asked
        assert connect.line == f"CONNECT {server.place} HTTP/1.1"
        assert connect.headers["Host"] == server.place
        assert connect.headers.get("Proxy-Authorization") == (TOLD if login else None)
        assert "Authorization" not in connect.headers
        assert b"Proxy-Authorization" not in server.heard
        assert all(asked.headers["Authorization"] == "Bearer mine" for asked in server.asked)


@pytest.mark.parametrize("through", ["straight", "tls", "proxy", "tls-proxy"])
@real
async def test_much_there_and_back(through: str, api: Identity, gate: Identity, gate_is_trusted: None) -> None:
    much = BLOCK * 60

    async def echoes(peer: Peer) -> None:
        while True:
            body = (await peer.asked()).body
            await peer.says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async with (
        Server(echoes, tls=None if through == "straight" else api.server()) as server,
        Server(leads, tls=gate.server() if through == "tls-proxy" else None) as proxy,
        pool() as connections,
    ):
        route = route_to(server, tls=api.trusted(), proxy=proxy.url if "proxy" in through else None)
        for whole in (True, False):
            assert (await ask(connections, route, body=much, whole=whole))[1] == much
        async with lent(connections, route) as connection:
            await connection.ask(request_bytes("GET", "/", {}, much), whole=False)
            await asyncio.sleep(0.1)
        assert len(server.peers) == 1
        await server.peers[0].gone.wait()


@pytest.mark.parametrize("login", [False, True], ids=["anybody", "login"])
@pytest.mark.parametrize("proxy_tls", [False, True], ids=["proxy", "tls-proxy"])
@real
async def test_a_plain_server_through_a_proxy_has_no_tunnel(login: bool, proxy_tls: bool, gate: Identity, gate_is_trusted: None) -> None:
    async with Server(serves, tls=gate.server() if proxy_tls else None) as proxy, pool() as connections:
        route = Route("http://api.example:8080", BARE, None, _proxy_url(proxy, login=login))
        for _ in range(2):
            await gets_ok(connections, route, "/version")
        assert proxy.lines == ["GET http://api.example:8080/version HTTP/1.1"] * 2
        for asked in proxy.asked:
            assert asked.headers["Host"] == "api.example:8080"
            assert asked.headers.get("Proxy-Authorization") == (TOLD if login else None)
        assert len(proxy.peers) == 1


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"HTTP/1.1 407 Who are you\r\nContent-Length: 4\r\n\r\nwho?", "answers 407"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "answers 502"),
        (b"HTTP/1.0 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n", "answers 403"),
        (b"HTTP/1.1 204 Fine\r\n\r\n", "answers 204"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\n\r\n", "answers 503"),
        (b"SOCKS? " * 3, "this is no HTTP answer"),
        (b"HTTP/1.1 200\r\nnonsense\r\n\r\n", "this is no header"),
        (b"", "closed before there was an answer"),
        (b"HTTP/1.1 200 OK\r\n", "closed before there was an answer"),
    ],
)
@pytest.mark.parametrize("proxy_tls", [False, True], ids=["proxy", "tls-proxy"])
@real
async def test_a_proxy_that_does_not_lead_there(
    raw: bytes, text: str, proxy_tls: bool, api: Identity, gate: Identity, gate_is_trusted: None
) -> None:
    script = answers(raw, then="waits" if "closed" not in text else "closes")
    async with Server(script, tls=gate.server() if proxy_tls else None) as proxy, pool(1) as connections:
        route = Route("https://10.0.0.1:6443", api.trusted(), None, _proxy_url(proxy, login=True))
        for _ in range(2):
            with pytest.raises(NoConnection, match=text) as caught:
                await connections.acquire(route)
            _tells_nothing(caught.value)
        if "answers" in text:
            assert proxy.place in str(caught.value)
        await asyncio.gather(*(peer.gone.wait() for peer in proxy.peers))


@real
async def test_a_proxy_of_another_kind_is_named_without_its_login() -> None:
    async with pool(1) as connections:
        for proxy in (f"socks5://{LOGIN}@gate.example:1080", *(f"http://one:{password}@gate.example" for password in UNQUOTED)):
            with pytest.raises(NoConnection, match=r"proxy|socks5://gate\.example cannot be used") as caught:
                await connections.acquire(Route("https://10.0.0.1:6443", BARE, None, proxy))
            _tells_nothing(caught.value)


# --- what is wrong, and should not be -------------------------------------------------------------------------------------


@real
async def test_a_stream_that_was_complete_before_anybody_read_it_does_not_make_the_next_one_deaf() -> None:
    size = 2**21 + 1

    async with (
        Server(answers(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, bytes(size)), OK)) as server,
        pool() as connections,
    ):
        async with lent(connections, route_to(server)) as connection:
            await connection.ask(request_bytes("GET", "/", {}, None), whole=False)
            await until(lambda: connection._reading.complete)  # type: ignore[union-attr]
        await ask(connections, route_to(server))


@real
async def test_an_answer_before_all_of_the_request_was_sent_is_the_last_one() -> None:
    async def in_haste(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.says(OK)
        await peer.left()

    async with Server(in_haste) as server, pool() as connections:
        await ask(connections, route_to(server), body=bytes(10 * 2**20))
        await ask(connections, route_to(server))
        assert len(server.peers) == 2


@pytest.mark.parametrize("trouble", ["refused", "unknown", "untrusted", "no-tls"])
@real
async def test_trouble_with_the_proxy_names_the_proxy(trouble: str, gate: Identity) -> None:
    async def plain(peer: Peer) -> None:
        await peer.says(b"nonsense" * 10)
        await peer.left()

    async with Server(plain if trouble == "no-tls" else serves, tls=gate.server() if trouble == "untrusted" else None) as proxy:
        place = f"{'gate.invalid' if trouble == 'unknown' else '127.0.0.1'}:{1 if trouble == 'refused' else proxy.port}"
        scheme = "http" if trouble in ("refused", "unknown") else "https"
        async with pool() as connections:
            with pytest.raises(NoConnection, match=place) as caught:
                await connections.acquire(Route("https://10.0.0.1:6443", BARE, None, f"{scheme}://{LOGIN}@{place}"))
            _tells_nothing(caught.value)
