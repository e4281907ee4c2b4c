"""Requests as a server reads them: the same however they are cut, within bounds, and never two where somebody else would see one."""

import pytest

from sidecar.http1 import requests
from sidecar.http1.fields import Malformed
from sidecar.http1.requests import Request, read_request


def _request(*headers: str, first: str = "GET / HTTP/1.1", host: str = "node") -> bytes:
    lines = (first, *([f"Host: {host}"] if host else []), *headers)
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def _read(*pieces: bytes) -> tuple[Request, bytes]:
    rest = b""
    for piece in pieces[:-1]:
        request, rest = read_request(rest + piece)
        assert request is None
    request, rest = read_request(rest + pieces[-1])
    assert request is not None
    return request, rest


WELL_FORMED = {
    "kubelet": _request("User-Agent: kube-probe/1.36", "Accept: */*", "Connection: close"),
    "scraper": _request("Accept-Encoding: gzip", "Authorization: Bearer x", "X-Prometheus-Scrape-Timeout-Seconds: 10"),
    "query": _request(first="GET /readyz?verbose=&a=%20b+c HTTP/1.1"),
    "proxy": _request(first="GET http://node:8080/metrics?a=/b HTTP/1.1"),
    "old": _request(first="HEAD /healthz HTTP/1.0", host=""),
    "body": _request("Content-Length: 5", first="POST /healthz HTTP/1.1"),
    "chunks": _request("Transfer-Encoding: chunked", first="PUT /healthz HTTP/1.1"),
    "obsolete-text": b"GET / HTTP/1.1\r\nHost: node\r\nX: caf\xe9\t \r\nx:\r\n\r\n",
}


@pytest.mark.parametrize("raw", WELL_FORMED.values(), ids=WELL_FORMED)
def test_a_request_is_the_same_cut_at_any_byte(raw: bytes) -> None:
    for after in (b"", b"hello", b"GET /next HTTP/1.1\r\n\r\n", b"\0\r\n"):
        whole = _read(raw + after)
        assert whole[1] == after
        assert _read(*(raw[at : at + 1] for at in range(len(raw)))) == (whole[0], b"")
        for at in range(1, len(raw)):
            assert _read(raw[:at], raw[at:] + after) == whole


def test_what_is_read() -> None:
    request, _ = _read(_request("X-A: 1", "x-a:\t2 ", "X-Empty:", first="GET /a%20b%2Fc?d=%20&e HTTP/1.1"))
    assert (request.method, request.path, request.query, request.stays_open) == ("GET", "/a b/c", "d=%20&e", True)
    assert request.headers == {"host": "node", "x-a": "1, 2", "x-empty": ""}


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/", "/", ""),
        ("/?", "/", ""),
        ("/a?b?c", "/a", "b?c"),
        ("//a", "//a", ""),
        ("/../a/./b", "/../a/./b", ""),
        ("/a://b/c", "/a://b/c", ""),
        ("http://h:1/a/b?c=http://d/", "/a/b", "c=http://d/"),
        ("http://h", "/", ""),
        ("http://h?a", "/", "a"),
        ("*", "*", ""),
        ("node:1", "node:1", ""),
        ("/%2e%2e/%ff", "/../�", ""),
    ],
)
def test_paths_are_taken_as_they_are_and_never_made_simpler(target: str, path: str, query: str) -> None:
    request, _ = _read(_request(first=f"GET {target} HTTP/1.1"))
    assert (request.path, request.query) == (path, query)


@pytest.mark.parametrize(
    ("raw", "stays"),
    [
        (_request(), True),
        (_request("Connection: keep-alive"), True),
        (_request("Connection: Upgrade, Close"), False),
        (_request("Connection: upgrade", "Connection: close"), False),
        (_request(first="GET / HTTP/1.0"), False),
        (_request("Connection: Keep-Alive", first="GET / HTTP/1.0"), True),
        (_request("Content-Length: 0", first="POST / HTTP/1.1"), True),
        (_request("Content-Length: 1", first="POST / HTTP/1.1"), False),
        (_request("Content-Length: 1"), False),
        (_request("Transfer-Encoding: chunked"), False),
        (_request("Transfer-Encoding: gzip, chunked"), False),
        (_request("Transfer-Encoding: \x80"), False),
    ],
)
def test_a_request_with_a_body_is_the_last_one(raw: bytes, stays: bool) -> None:
    assert _read(raw)[0].stays_open is stays


MALFORMED = {
    "empty-line-first": b"\r\n" + _request(),
    "two-empty-lines": b"\r\n\r\n",
    "no-version": _request(first="GET /"),
    "HTTP/0.9": _request(first="GET / HTTP/0.9"),
    "HTTP/1.2": _request(first="GET / HTTP/1.2"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http/1.1": _request(first="GET / http/1.1"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "no-method": _request(first=" / HTTP/1.1"),
    "bad-method": _request(first="G(T / HTTP/1.1"),
    "two-spaces": _request(first="GET  / HTTP/1.1"),
    "tab": _request(first="GET\t/ HTTP/1.1"),
    "space-in-target": _request(first="GET /a b HTTP/1.1"),
    "space-after-version": _request(first="GET / HTTP/1.1 "),
    "text-in-target": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: node\r\n\r\n",
    "line-feeds": b"GET / HTTP/1.1\nHost: node\n\n",
    "one-line-feed": b"GET / HTTP/1.1\r\nHost: node\nX: y\r\n\r\n",
    "carriage-return": b"GET / HTTP/1.1\r\nHost: node\rX: y\r\n\r\n",
    "no-host": _request(host=""),
    "two-hosts": _request("host: other"),
    "two-hosts-in-an-old-one": _request("host: node", first="GET / HTTP/1.0"),
    "folded": _request("X: a", " b"),
    "folded-at-once": b"GET / HTTP/1.1\r\n Host: node\r\n\r\n",
    "no-colon": _request("hello"),
    "no-name": _request(": x"),
    "space-before-colon": _request("Content-Length : 5"),
    "space-in-name": _request("Content Length: 5"),
    "text-in-name": b"GET / HTTP/1.1\r\nHost: node\r\nX\xe9: y\r\n\r\n",
    "nul": _request("X: \0"),
    "bell": _request("X: a\x07b"),
    "delete": _request("X: \x7f"),
    "length-and-chunks": _request("Content-Length: 5", "Transfer-Encoding: chunked"),
    "chunks-and-length": _request("Transfer-Encoding: chunked", "Content-Length: 0"),
    "chunks-in-an-old-one": _request("Transfer-Encoding: chunked", first="POST / HTTP/1.0"),
    "two-lengths": _request("Content-Length: 5", "Content-Length: 6"),
    "the-same-length-twice": _request("Content-Length: 5, 5"),
    **{f"length {value!r}": _request(f"Content-Length: {value}") for value in ("", "-1", "+1", "0x5", "1_0", "5;", "9" * 5000)},
    "length-of-other-digits": b"POST / HTTP/1.1\r\nHost: node\r\nContent-Length: \xb2\r\n\r\n",
    "many-headers": _request(*["X: y"] * 100),
    "long-target": _request(first=f"GET /{'x' * 2**14} HTTP/1.1"),
    "long-header": _request(f"X: {'y' * 2**14}"),
    "long-name": _request(f"{'y' * 2**14}: x"),
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_is_so_however_it_is_cut_and_its_secrets_stay_out_of_the_error(raw: bytes) -> None:
    told = set()
    for pieces in ([raw], [bytes([byte]) for byte in raw], [raw[: len(raw) // 2], raw[len(raw) // 2 :]]):
        rest = b""
        with pytest.raises(Malformed) as caught:
            for piece in pieces:
                request, rest = read_request(rest + piece)
                assert request is None
        told.add(str(caught.value))
    assert max(map(len, told)) < 120


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nX: "])
def test_what_never_ends_is_ended_by_us(begin: bytes) -> None:
    for goes_on in (b"x", b"x: y\r\n"):
        rest = begin
        with pytest.raises(Malformed):
            while len(rest) < 2**15:
                _, rest = read_request(rest + goes_on)
        assert len(rest) <= requests._LONGEST_HEAD


def test_the_longest_head_is_read_and_one_byte_more_is_not() -> None:
    room = requests._LONGEST_HEAD - len(_request("X: "))
    raw = _request(f"X: {'y' * room}")
    assert len(raw) == requests._LONGEST_HEAD
    longer = _request(f"X: {'y' * (room + 1)}")
    for size in (1, 100, 2**20):
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert len(_read(*pieces)[0].headers["x"]) == room
        rest = b""
        with pytest.raises(Malformed):
            for at in range(0, len(longer), size):
                _, rest = read_request(rest + longer[at : at + size])
