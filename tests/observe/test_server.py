import asyncio
import contextlib
import gzip
import json
import socket

import pytest

from sidecar.engine.queue import WorkQueue
from sidecar.errors import Fatal
from sidecar.observe.metrics import Metrics
from sidecar.observe.server import ObserveServer, parse_address
from tests.harness.loops import real

FINE = {"metrics": Metrics("0"), "live": lambda: (True, []), "ready": lambda: (True, [])}
DEBUG = {"queues": dict, "decisions": lambda key: [key]}


@contextlib.asynccontextmanager
async def serving(address="127.0.0.1:0", path="/metrics", **given):
    server = ObserveServer(address, path, **(FINE | {"debug_address": address} | given))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(server, path, *, method="GET", host="127.0.0.1", port=0, **headers):
    """One exchange over a real socket: status, headers, body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: node", "Connection: close", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    reader, writer = await asyncio.open_connection(host, port or server.port)
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *rest = head.decode().split("\r\n")
    assert status.startswith("HTTP/1.1 ")
    return int(status.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in rest)}, body


def answer(path, *, method="GET", headers=None, metrics_path="/metrics", **given):
    async def go():
        async with serving(path=metrics_path, **given) as server:
            return await ask(server, path, method=method, **(headers or {}))

    return asyncio.run(go())


def test_metrics_are_served_as_promhttp_does():
    status, headers, body = answer("/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"workqueue_depth" in body


def test_metrics_are_packed_for_who_can_unpack_them():
    status, headers, body = answer("/metrics", headers={"Accept_Encoding": "gzip, deflate"})
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert b"workqueue_depth" in gzip.decompress(body)


def test_the_metrics_path_can_be_chosen_even_the_root():
    assert answer("/metrics", metrics_path="/m")[0] == 404
    assert answer("/m", metrics_path="/m")[0] == 200
    assert b"workqueue_depth" in answer("/", metrics_path="/")[2]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz/leader-election", "/debug/queue"])
def test_the_metrics_win_over_a_page_of_ours_and_say_so(path, caplog):
    assert b"workqueue_depth" in answer(path, metrics_path=path, queues=dict)[2]
    assert [record.fields for record in caplog.records if record.levelname == "WARNING"] == [{"path": path}]


def test_a_metrics_path_that_ends_in_a_slash_stands_for_all_below_it():
    for path in ("/m/", "/m/x", "/m/x/y?z"):
        assert b"workqueue_depth" in answer(path, metrics_path="/m/")[2]
    status, headers, _ = answer("/m?name=x%20y", metrics_path="/m/")
    assert (status, headers["location"]) == (301, "/m/?name=x%20y")
    assert [answer(path, metrics_path="/m/")[0] for path in ("/mx", "/x", "/")] == [404, 404, 200]


def test_metrics_at_the_root_are_wherever_nothing_else_is():
    assert b"workqueue_depth" in answer("/anything", metrics_path="/")[2]
    assert answer("/healthz", metrics_path="/")[2] == b"ok"
    assert answer("/debug/queue", metrics_path="/debug/", queues=dict)[2] == b"{}"


@pytest.mark.parametrize("path", ["", "metrics"])
def test_a_metrics_path_that_cannot_be_is_fatal(path):
    with pytest.raises(Fatal, match="--metrics-path"):
        ObserveServer(":0", path, **FINE)


def test_alive_and_ready():
    assert answer("/healthz")[::2] == (200, b"ok")
    assert answer("/readyz")[::2] == (200, b"ok")


def test_what_is_wrong_is_said_one_reason_a_line():
    ill = (False, ["driver: Degraded: socket is gone", "claims: Unknown"])
    assert answer("/healthz", live=lambda: ill)[::2] == (503, b"driver: Degraded: socket is gone\nclaims: Unknown")
    assert answer("/readyz", ready=lambda: ill)[::2] == (503, b"driver: Degraded: socket is gone\nclaims: Unknown")
    assert answer("/readyz", ready=lambda: (False, []))[::2] == (503, b"not ok")


@pytest.mark.parametrize("query", ["?verbose", "?verbose=", "?verbose=1"])
def test_verbose_readiness_lists_every_scope(query):
    status, _, body = answer(f"/readyz{query}", scopes=lambda: ["driver: OK", "claims: OK"])
    assert (status, body) == (200, b"ok\ndriver: OK\nclaims: OK")


def test_the_leader_election_probe_of_existing_manifests_is_always_content():
    assert answer("/healthz/leader-election", live=lambda: (False, ["dead"]))[::2] == (200, b"ok")


def test_debug_pages_show_what_their_providers_return():
    queue = WorkQueue()
    for number in range(150):
        queue.add(f"claim-{number}", float(number))
    status, headers, body = answer("/debug/queue", queues=lambda: {"claims": queue.snapshot(0.0)[:1]})
    assert (status, headers["content-type"]) == (200, "application/json; charset=utf-8")
    row = {"key": "claim-0", "state": "ready", "due_in": 0.0, "held_for": None, "attempts": 0}
    assert json.loads(body) == {"claims": [row]}
    assert len(json.loads(answer("/debug/queue", queues=lambda: {"claims": queue.snapshot(0.0)})[2])["claims"]) == 150
    decisions = {"decisions": lambda key: [{"asked": key}]}
    assert json.loads(answer("/debug/decisions", **decisions)[2]) == [{"asked": None}]
    assert json.loads(answer("/debug/decisions?key=default/data%201", **decisions)[2]) == [{"asked": "default/data 1"}]


@pytest.mark.parametrize("address", ["127.0.0.1:0", ""])
@real
async def test_at_an_address_of_their_own_there_are_debug_pages_and_nothing_else(address):
    async with serving(address, debug_address="localhost:0", **DEBUG) as server:
        port = server.ports[-1]
        assert (await ask(server, "/", port=port))[2] == b"/debug/decisions\n/debug/queue\n"
        assert [(await ask(server, path, port=port))[0] for path in ("/metrics", "/healthz", "/debug")] == [404] * 3
        assert (await ask(server, "/debug/queue", port=port, method="POST"))[0] == 405
        assert len(server.ports) == (2 if address else 1)


@pytest.mark.parametrize("path", ["/debug/queue", "/debug/decisions"])
def test_unless_they_are_asked_for_there_are_no_debug_pages_not_even_for_loopback(path):
    """A mesh's proxy connects from there for everybody."""
    assert (answer(path, **DEBUG)[0], answer(path, **DEBUG, debug_address="")[0]) == (200, 404)


@pytest.mark.parametrize("path", ["/debug/queue", "/debug/decisions", "/healthz/", "/nothing", "/../metrics", "//metrics", "/Metrics"])
def test_what_is_not_there_is_not_found(path):
    assert answer(path)[0] == 404


def test_the_root_lists_the_pages():
    assert answer("/")[2] == b"/healthz\n/healthz/leader-election\n/metrics\n/readyz\n"


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/"])
def test_head_has_the_headers_and_no_body(path):
    status, headers, body = answer(path, method="HEAD")
    assert (status, body) == (200, b"")
    assert headers["server"] == "csi-node-sidecar"
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(method):
    status, headers, _ = answer("/healthz", method=method, headers={"Content_Length": "0"})
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_a_page_that_fails_says_nothing_of_its_reason_and_costs_nobody_else(caplog):
    def broken():
        raise RuntimeError("password=hunter2")

    async def go():
        async with serving(queues=broken) as server:
            return await ask(server, "/debug/queue"), await ask(server, "/healthz")

    with caplog.at_level("ERROR", logger="sidecar.observe"):
        (status, _, body), (other, _, _) = asyncio.run(go())
    assert (status, other) == (500, 200)
    assert b"hunter2" not in body
    assert [record.message for record in caplog.records] == ["Page failed"]


@pytest.mark.parametrize(
    "lines", [b"Authorization: Bearer SECRET\x01", b"Authorization : Bearer SECRET", b"Authorization: Bearer SECRET" + b"x" * 20_000]
)
def test_what_cannot_be_read_is_refused_and_never_logged(caplog, lines):
    async def go():
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: node\r\n" + lines + b"\r\n\r\n")
            said = await reader.read(1000)
            writer.close()
            return said

    assert b" 400 " in asyncio.run(go()).split(b"\r\n")[0]
    assert "SECRET" not in caplog.text and not caplog.records[1:]


def test_requests_are_not_logged(caplog):
    with caplog.at_level("DEBUG"):
        answer("/healthz")
    assert [record.message for record in caplog.records if record.name != "asyncio"] == ["Serving metrics and health"]


@pytest.mark.parametrize("address", [":0", "[::]:0", "0.0.0.0:0", "localhost:0", "127.0.0.1:0"])
@real
async def test_addresses_as_in_go(address):
    async with serving(address) as server:
        assert (await ask(server, "/healthz"))[0] == 200


@pytest.mark.parametrize("address", [":0", "[::]:0", "[::1]:0"])
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 on this machine")
@real
async def test_ipv6_is_served_too(address):
    async with serving(address) as server:
        assert (await ask(server, "/healthz", host="::1"))[0] == 200


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (":8080", ("", 8080)),
        ("[::]:8080", ("::", 8080)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("localhost:80", ("localhost", 80)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
    ],
)
def test_addresses_are_parsed(address, place):
    assert parse_address(address) == place


@pytest.mark.parametrize("address", ["", "8080", ":", ":http", ":65536", ":-1", "::1:80", "[::1]", "host", ":8²"])
def test_malformed_addresses_are_fatal(address):
    with pytest.raises(Fatal, match="--http-endpoint wants host:port"):
        parse_address(address)


def test_a_taken_port_is_fatal_and_says_what_to_do():
    async def go():
        async with serving() as first:
            second = ObserveServer(f"127.0.0.1:{first.port}", **FINE)
            with pytest.raises(Fatal) as caught:
                await second.start()
            await second.stop()
            assert (await ask(first, "/healthz"))[0] == 200
            return first.port, str(caught.value)

    port, text = asyncio.run(go())
    assert text == (
        f"cannot listen on 127.0.0.1:{port} for metrics and health: Address already in use; "
        "free that port or choose another address with --http-endpoint"
    )


@pytest.mark.parametrize("address", ["203.0.113.7:0", "no-such-host.invalid:0", f"{'a' * 70}.b:0"])
@real
async def test_an_address_that_is_not_ours_is_fatal(address):
    with pytest.raises(Fatal, match="cannot listen on"):
        await ObserveServer(address, **FINE).start()


@real
async def test_the_port_is_free_again_after_stop_and_stop_may_come_twice():
    async with serving() as first:
        port = first.port
        await ask(first, "/healthz")
    await first.stop()
    with pytest.raises(RuntimeError, match="not been started"):
        _ = first.port
    async with serving(f"127.0.0.1:{port}") as second:
        assert second.port == port
        with pytest.raises(RuntimeError, match="already"):
            await second.start()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /heal",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    ],
)
@real
async def test_connections_that_stay_open_do_not_keep_shutdown_waiting(said):
    server = ObserveServer("127.0.0.1:0", **FINE)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(said)
    await asyncio.sleep(0.05)
    await server.stop()
    await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
