"""The bytes of HTTP/1.1: an answer means the same however it is cut, and what is no answer is never taken for one."""

import gzip
import itertools
import random
from dataclasses import dataclass

import pytest

from sidecar.http1 import answers
from sidecar.http1.answers import AnswerReader
from sidecar.http1.fields import Malformed

TEXT = b'{"kind":"Status"}\r\n\r\n0\r\n\r\nHTTP/1.1 500 no\r\n\r\n'
ZIPPED = gzip.compress(TEXT, mtime=0)


def _answer(body: bytes, *headers: str, first: str = "HTTP/1.1 200 OK") -> bytes:
    return "".join(f"{line}\r\n" for line in (first, *headers)).encode() + b"\r\n" + body


def _counted(body: bytes, *headers: str, first: str = "HTTP/1.1 200 OK") -> bytes:
    return _answer(body, f"Content-Length: {len(body)}", *headers, first=first)


def _chunked(body: bytes, *headers: str, ends: bytes = b"0\r\n\r\n") -> bytes:
    pieces = (body[at : at + 10] for at in range(0, len(body), 10))
    return _answer(b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + ends, "Transfer-Encoding: chunked", *headers)


@dataclass(frozen=True)
class Case:
    raw: bytes
    body: bytes = b""
    status: int = 200
    stays: bool = True
    closes: bool = False
    bodiless: bool = False

    @property
    def zipped(self) -> bool:
        return ZIPPED[:10] in self.raw


CASES = {
    "length": Case(_counted(TEXT, "Content-Type: application/json"), TEXT),
    "length-0": Case(_counted(b"")),
    "length-spelt-otherwise": Case(_answer(TEXT, f"CONTENT-LENGTH:\t{len(TEXT)} "), TEXT),
    "chunks": Case(_chunked(TEXT), TEXT),
    "no-chunks": Case(_chunked(b"")),
    "chunks-with-extensions": Case(
        _answer(b'5;a=b\r\nhello\r\n6 ; c="d" ;e\r\n world\r\n00;last\r\n\r\n', "transfer-encoding: Chunked"), b"hello world"
    ),
    "chunks-with-trailers": Case(_chunked(TEXT, ends=b"0\r\nExpires: never\r\nX-Sum: 0\r\n\r\n"), TEXT),
    "chunks-beside-a-length": Case(_chunked(TEXT, "Content-Length: 3"), TEXT),
    "until-close": Case(_answer(TEXT), TEXT, closes=True, stays=False),
    "zipped-length": Case(_counted(ZIPPED, "Content-Encoding: gzip"), TEXT),
    "zipped-chunks": Case(_chunked(ZIPPED, "Content-Encoding: GZIP", ends=b"0\r\nX: y\r\n\r\n"), TEXT),
    "zipped-until-close": Case(_answer(ZIPPED, "Content-Encoding: gzip"), TEXT, closes=True, stays=False),
    "after-continue": Case(_answer(b"", first="HTTP/1.1 100 Continue") + _counted(TEXT), TEXT),
    "after-hints": Case(_answer(b"", "Link: </x>", "Content-Length: 9", first="HTTP/1.1 103 Early Hints") * 3 + _chunked(TEXT), TEXT),
    "204": Case(_answer(b"", first="HTTP/1.1 204 No Content"), status=204),
    "204-zipped": Case(_answer(b"", "Content-Encoding: gzip", first="HTTP/1.1 204 No Content"), status=204),
    "304": Case(_answer(b"", "Content-Length: 17", "Content-Encoding: gzip", first="HTTP/1.1 304 Not Modified"), status=304),
    "connect": Case(_answer(b"", first="HTTP/1.1 200 Connection established"), bodiless=True),
    "connect-with-a-length": Case(_answer(b"", "Content-Length: 17", first="HTTP/1.1 200 OK"), bodiless=True),
    "connect-refused": Case(_answer(b"", "Transfer-Encoding: chunked", first="HTTP/1.1 407 Who"), status=407, bodiless=True),
    "asked-to-close": Case(_counted(TEXT, "Connection: Close"), TEXT, stays=False),
    "asked-to-close-and-more": Case(_counted(b"", "Connection: close", "Connection: upgrade"), stays=False),
    "old": Case(_counted(TEXT, first="HTTP/1.0 200 OK"), TEXT, stays=False),
    "old-but-stays": Case(_counted(TEXT, "Connection: Keep-Alive", first="HTTP/1.0 200 OK"), TEXT),
    "no-reason": Case(_counted(TEXT, first="HTTP/1.1 503"), TEXT, status=503),
}
all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def _read(case: Case, *pieces: bytes) -> tuple[AnswerReader, bytes]:
    reading, body = AnswerReader(bodiless=case.bodiless), b""
    for piece in pieces:
        assert reading.feed(piece) is reading.complete
        held = reading.held
        taken = reading.take()
        assert (held, reading.held) == (len(taken), 0)
        body += taken
    if case.closes:
        assert not reading.complete
        reading.end()
        body += reading.take()
    return reading, body


def _expect(case: Case, *pieces: bytes) -> None:
    reading, body = _read(case, *pieces)
    assert reading.head is not None
    assert (reading.complete, reading.head.status, body, reading.reusable) == (True, case.status, case.body, case.stays)


@all_cases
def test_an_answer_is_the_same_cut_at_any_byte(case: Case) -> None:
    _expect(case, case.raw)
    _expect(case, *(case.raw[at : at + 1] for at in range(len(case.raw))))
    for at in range(1, len(case.raw)):
        _expect(case, case.raw[:at], case.raw[at:])


@all_cases
def test_an_answer_cut_off_at_any_byte_is_none(case: Case) -> None:
    head = case.raw.index(b"\r\n\r\n") + 4
    for at in range(len(case.raw)):
        if case.closes and not case.zipped and at >= head:
            continue  # nobody can tell
        reading = AnswerReader(bodiless=case.bodiless)
        assert not reading.feed(case.raw[:at])
        assert not reading.reusable
        with pytest.raises(Malformed, match="broke off" if case.closes and at >= head else "was closed"):
            reading.end()


@pytest.mark.parametrize("case", [case for case in CASES.values() if not case.closes])
def test_after_bytes_besides_the_answer_nothing_more_is_asked_there(case: Case) -> None:
    for extra in (b"\r\n", b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"):
        for pieces in ((case.raw + extra,), (case.raw, extra), (*(bytes([byte]) for byte in case.raw), extra)):
            reading, body = _read(case, *pieces)
            assert (reading.complete, body, reading.reusable) == (True, case.body, False)


@all_cases
def test_a_wrong_byte_anywhere_is_no_trouble_but_malformed(case: Case) -> None:
    wrongs = (b"", b"\0", b"\r\n", b"\xff", b"Z", b"9", b":", b" ")
    for at, wrong in itertools.product(range(len(case.raw)), wrongs):
        reading = AnswerReader(bodiless=case.bodiless)
        try:
            reading.feed(case.raw[:at] + wrong + case.raw[at + 1 :])
            reading.end()
        except Malformed as error:
            assert not reading.complete
            assert len(str(error)) < 200


def test_headers_are_found_whatever_their_case() -> None:
    reading, _ = _read(CASES["length-0"], _counted(b"", "RETRY-after:  7 ", "X-Empty:", "X-Colon: a:b"))
    assert reading.head is not None
    assert dict(reading.head.headers) == {"content-length": "0", "retry-after": "7", "x-empty": "", "x-colon": "a:b"}


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 -20 OK\r\n\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        _answer(b"", "Content-Length: -1"),
        _answer(b"", "Content-Length: +1"),
        _answer(b"", "Content-Length: 0x10"),
        _answer(b"", "Content-Length: 1_0"),
        _answer(b"", "Content-Length: 5, 5"),
        _answer(b"", "Content-Length:"),
        _answer(b"", "Content-Length: \xb2"),
        _answer(b"", "Content-Length: " + "9" * 5000),
        _answer(b"abcdef", "Content-Length: 3", "Content-Length: 6"),
        _answer(b"abcdef", "Content-Length: 6", "Content-Length: 3"),
        _answer(b"", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"),
        _answer(b"", first="HTTP/1.1 2000 fine"),
        _answer(b"", first="HTTP/1.1 200OK fine"),
        _answer(b"", "Transfer-Encoding: gzip, chunked"),
        _answer(b"", "Transfer-Encoding: identity"),
        _answer(b"", "Transfer-Encoding:"),
        *(
            _answer(chunks, "Transfer-Encoding: chunked")
            for chunks in (
                b"\r\n",
                b";a\r\n",
                b"x\r\n",
                b"-1\r\n",
                b"+1\r\n",
                b"0x1\r\n",
                b"1 1\r\n",
                b"1_1\r\n",
                b"123456789\r\n",
                b"\xb2\r\n",
                b"3\r\nabcd\r\n",
                b"3\r\nab\r\n0\r\n\r\n",
                b"3\r\nabc0\r\n\r\n",
                b"3\r\nabc\n\n\r\n",
                b" 3\r\nabc\r\n0\r\n\r\n",
                b"\n3\r\nabc\r\n0\r\n\r\n",
                b"3;a\n\r\nabc\r\n0\r\n\r\n",
                b"0\r\n\nA: b\r\n\r\n",
            )
        ),
        _counted(b"no gzip at all", "Content-Encoding: gzip"),
        _counted(ZIPPED[:-1], "Content-Encoding: gzip"),
        _counted(ZIPPED[:-8] + bytes(8), "Content-Encoding: gzip"),
        _counted(ZIPPED[:20] + b"\xff\xff\xff" + ZIPPED[23:], "Content-Encoding: gzip"),
        _chunked(ZIPPED[:-1], "Content-Encoding: gzip"),
    ],
)
def test_malformed_however_it_is_cut(raw: bytes) -> None:
    for pieces in ([raw], [bytes([byte]) for byte in raw]):
        reading = AnswerReader()
        with pytest.raises(Malformed):
            for piece in pieces:
                reading.feed(piece)
        assert not reading.complete
        assert not reading.reusable


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 500 + b"\r\n"),
        (b"HTTP/1.1 200 ", b"O" * 500),
        (_answer(b"", "Transfer-Encoding: chunked"), b"0" * 500),
        (_answer(b"5;", "Transfer-Encoding: chunked"), b"a" * 500),
        (_answer(b"1\r\na", "Transfer-Encoding: chunked"), b"a" * 500),
        (_answer(b"0\r\n", "Transfer-Encoding: chunked"), b"a" * 500),
    ],
    ids=["headers", "first-line", "chunk-size", "chunk-extension", "chunk-without-end", "trailer"],
)
def test_what_never_ends_is_ended_by_us(begins: bytes, goes_on: bytes) -> None:
    reading = AnswerReader()
    reading.feed(begins)
    with pytest.raises(Malformed):
        for _ in range(200):
            reading.feed(goes_on)


def test_text_of_an_error_shows_little_of_what_came() -> None:
    for raw in (b"<" + b"x" * 10_000, _answer(b"", "x" * 10_000), _answer(b"y" * 4096 + b"\r\n", "Transfer-Encoding: chunked")):
        with pytest.raises(Malformed) as caught:
            AnswerReader().feed(raw)
        assert len(str(caught.value)) < 100


def test_bytes_are_counted_as_they_unfold_and_taken_in_order() -> None:
    text = bytes(range(256)) * 4096
    raw = _chunked(gzip.compress(text, mtime=0), "Content-Encoding: gzip")
    reading, body = AnswerReader(), b""
    for at in range(0, len(raw), 1000):
        reading.feed(raw[at : at + 1000])
        if at % 3000 == 0:
            held, taken = reading.held, reading.take()
            assert held == len(taken)
            body += taken
    assert reading.complete
    assert body + reading.take() == text
    assert reading.take() == b""


def test_the_end_after_the_end_says_nothing() -> None:
    reading = AnswerReader()
    reading.feed(_counted(b"abc"))
    reading.end()
    assert reading.take() == b"abc"


@pytest.mark.parametrize("more", [gzip.compress(b"more", mtime=0), b"garbage"], ids=["member", "garbage"])
def test_what_follows_the_first_zipped_part_is_not_dropped_silently(more: bytes) -> None:
    for pieces in ((_counted(ZIPPED + more, "Content-Encoding: gzip"),), (_chunked(ZIPPED + more, "Content-Encoding: gzip"),)):
        try:
            _, body = _read(CASES["length"], *pieces)
        except Malformed:
            continue
        assert body == TEXT + b"more"


@pytest.mark.parametrize("zipped", [False, True])
def test_a_body_has_a_bound_as_it_unfolds(zipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_BODY", 50_000)
    for length, ok in ((50_000, True), (50_001, False), (50_000_000, False)):
        body = b" " * length
        reading = AnswerReader()
        raw = _counted(gzip.compress(body), "Content-Encoding: gzip") if zipped else _counted(body)
        if ok:
            assert reading.feed(raw) and reading.take() == body
        else:
            with pytest.raises(Malformed, match="longer than 50000 bytes"):
                reading.feed(raw)
            assert reading.held <= 50_001 or not zipped, "it is not unfolded any further"


# --- streamed ----------------------------------------------------------------------------------------------------------


def test_of_a_streamed_body_no_more_is_unpacked_than_may_be_held() -> None:
    """A bomb: these few bytes stand for a hundred million."""
    size = 100_000_000
    reading, most, taken = AnswerReader(streamed=True), 0, 0
    reading.feed(_counted(gzip.compress(bytes(size), mtime=0), "Content-Encoding: gzip"))
    assert not reading.complete and reading.waits_packed
    while reading.held:
        most = max(most, reading.held)
        taken += len(reading.take())
    assert reading.complete and reading.reusable
    assert taken == size
    assert most <= 2**19


@pytest.mark.parametrize(
    ("length", "cut"), [(0, 1), (1, 1), (100, 7), (2**19 - 1, 100_000), (2**19, 100_000), (2**19 + 1, 100_000), (3 * 2**19, 100_000)]
)
def test_a_streamed_body_comes_whole_and_ends(length: int, cut: int) -> None:
    body = random.Random(length).randbytes(length)
    for raw in (
        _counted(gzip.compress(body, mtime=0), "Content-Encoding: gzip"),
        _chunked(gzip.compress(body, mtime=0), "Content-Encoding: gzip"),
        _answer(gzip.compress(body, mtime=0), "Content-Encoding: gzip"),
    ):
        reading, found = AnswerReader(streamed=True), []
        for at in range(0, len(raw), cut):
            reading.feed(raw[at : at + cut])
            found.append(reading.take())
        reading.end()
        while piece := reading.take():
            found.append(piece)
        assert reading.complete
        assert b"".join(found) == body


def test_a_streamed_body_that_breaks_off_is_malformed_when_its_end_is_reached() -> None:
    reading = AnswerReader(streamed=True)
    reading.feed(_counted(gzip.compress(bytes(3 * 2**19), mtime=0)[:-1], "Content-Encoding: gzip"))
    with pytest.raises(Malformed, match="broke off"):
        while reading.take():
            pass


@pytest.mark.parametrize("zipped", [False, True])
def test_a_streamed_body_is_taken_in_small_pieces_however_much_has_arrived(zipped: bool) -> None:
    """Who takes one works on it in one go, and everybody else waits."""
    body = random.Random(1).randbytes(2**19)
    raw = _counted(gzip.compress(body, mtime=0), "Content-Encoding: gzip") if zipped else _counted(body)
    reading, found = AnswerReader(streamed=True), []
    for at in range(0, len(raw), 2**15):
        reading.feed(raw[at : at + 2**15])
    while piece := reading.take():
        found.append(piece)
    assert b"".join(found) == body
    assert reading.complete and not reading.held
    assert max(map(len, found)) <= 3 * 2**15
