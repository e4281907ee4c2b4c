"""Our readers beside h11, another author's reading of the same standard: the same bytes are the same message, or the same error.

Where the two differ on purpose, the difference is listed with its reason and an example. A difference that is not listed fails, and so does
an example that no longer differs.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import h11
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.http1.answers import AnswerReader
from sidecar.http1.fields import Malformed
from sidecar.http1.requests import read_request

# The same few each time, so that no change finds a difference that has nothing to do with it. Whoever changes a reader plays thousands:
# `FUZZ_EXAMPLES=20000 pytest tests/http1/test_beside_h11.py`.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
few = settings(max_examples=EXAMPLES or 150, derandomize=not EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Message:
    first: tuple[object, ...]
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    stays_open: bool = True


# A message, or how there was none.
Outcome = Message | str
MALFORMED, INCOMPLETE = "malformed", "incomplete"


@dataclass(frozen=True)
class Difference:
    """`who` refuses what the other one accepts; `nobody` where both accept and see different things."""

    reason: str
    who: str
    example: bytes
    applies: Callable[[bytes], object]

    def explains(self, ours: Outcome, theirs: Outcome, raw: bytes) -> bool:
        refused = {"we": ours == MALFORMED, "h11": theirs == MALFORMED, "nobody": MALFORMED not in (ours, theirs)}
        return refused[self.who] and bool(self.applies(raw))


def head_of(raw: bytes) -> bytes:
    """Of the message itself, after what a server says in between."""
    raw = re.sub(rb"\A(HTTP/1\.1 1\d\d .*\r\n\r\n)+", b"", raw)
    return re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[0]


def in_head(pattern: bytes) -> Callable[[bytes], object]:
    return lambda raw: re.search(pattern, head_of(raw), re.IGNORECASE | re.MULTILINE)


def anywhere(pattern: bytes) -> Callable[[bytes], object]:
    return lambda raw: re.search(pattern, raw, re.IGNORECASE)


def in_chunks(pattern: bytes) -> Callable[[bytes], object]:
    return lambda raw: re.search(pattern, raw[raw.index(head_of(raw)) + len(head_of(raw)) :], re.IGNORECASE)


def joined(headers: list[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return tuple(sorted((name, ", ".join(values)) for name, values in found.items()))


def without_case(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """h11 shows names of codings in lower case."""
    return tuple((name, value.lower() if name == "transfer-encoding" else value) for name, value in headers)


def judged(ours: Outcome, theirs: Outcome, raw: bytes, differences: list[Difference]) -> None:
    if ours == theirs:
        return
    assert any(each.explains(ours, theirs, raw) for each in differences), f"{raw!r}\nours:   {ours}\ntheirs: {theirs}"


# --- requests -----------------------------------------------------------------------------------------------------------


def our_request(raw: bytes) -> Outcome:
    try:
        request, _ = read_request(raw)
    except Malformed:
        return MALFORMED
    if request is None:
        return INCOMPLETE
    return Message((request.method, request.target), without_case(tuple(sorted(request.headers.items()))), stays_open=request.stays_open)


def their_request(raw: bytes) -> Outcome:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    try:
        event = connection.next_event()
        if not isinstance(event, h11.Request):
            return INCOMPLETE
        more = connection.next_event()
    except h11.RemoteProtocolError:
        return MALFORMED
    has_body = not isinstance(more, h11.EndOfMessage)
    stays = not has_body and connection.their_state is h11.DONE
    return Message((event.method.decode(), event.target.decode()), joined(list(event.headers)), stays_open=stays)


REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n"
KEEP, CLOSE = rb"^connection:.*keep-alive", rb"^connection:.*close"
LENGTH, CODING = rb"^content-length:", rb"^transfer-encoding:"
FOLDED, CONTROLS = rb"\n[ \t]", rb"^[^:]*:.*[\x01-\x08\x0b-\x1f\x7f](?!\n)"
MANY_DIGITS, JOINED = LENGTH + rb"[ \t]*\d{16}", LENGTH + rb"[ \t]*\d*[ \t]*,"
TWICE = rb"(?s)" + LENGTH + rb".*" + LENGTH
REQUESTS = [
    Difference("with LF alone a proxy may have seen other headers", "we", b"GET / HTTP/1.1\nHost: a\n\n", anywhere(rb"(?<!\r)\n")),
    Difference("a folded line is two headers to some", "we", REQUEST + b"X: a\r\n b\r\n\r\n", in_head(FOLDED)),
    Difference("control characters serve nobody but to deceive", "we", REQUEST + b"X: \x01\r\n\r\n", in_head(CONTROLS)),
    Difference(
        "a body that is described in two ways is how requests are smuggled",
        "we",
        REQUEST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        lambda raw: in_head(LENGTH)(raw) and in_head(CODING)(raw),
    ),
    Difference(
        "chunks are of HTTP/1.1",
        "we",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        lambda raw: in_head(CODING)(raw) and in_head(rb" HTTP/1\.0\r?$")(raw),
    ),
    Difference("any coding will do, as nobody reads the body", "h11", REQUEST + b"Transfer-Encoding: gzip\r\n\r\n", in_head(CODING)),
    Difference("no body has a length of so many digits", "we", REQUEST + b"Content-Length: 0000000000000001\r\n\r\n", in_head(MANY_DIGITS)),
    Difference("a length is given once, in one value", "we", REQUEST + b"Content-Length: 1, 1\r\n\r\n", in_head(JOINED)),
    Difference("a length is given once, in one header", "we", REQUEST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n", in_head(TWICE)),
    Difference("we speak HTTP/1.1 and 1.0 only", "we", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", in_head(rb"\A\S+ \S+ HTTP/(?!1\.[01]\r?$)")),
    Difference("two hosts in one header are two hosts", "we", REQUEST[:-2] + b", b\r\n\r\n", in_head(rb"^host:.*,")),
    Difference(
        "h11 keeps nothing open for HTTP/1.0", "nobody", b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", in_head(rb"^connection:")
    ),
    Difference(
        "close is found within other words, too", "nobody", REQUEST + b"Connection: closed\r\n\r\n", in_head(rb"^connection:.*close")
    ),
    Difference("what cannot become a head is told at once", "we", b"GET \x01", lambda raw: their_request(raw) == INCOMPLETE),
    Difference(
        "where the last line ends in LF alone we wait for an end, and refuse it when it comes",
        "nobody",
        REQUEST + b"X: a long value, since the first bytes of a head are judged at once\n\r\n",
        lambda raw: our_request(raw) == INCOMPLETE and our_request(raw + b"\r\n\r\n") == MALFORMED and anywhere(rb"(?<!\r)\n\r?\n")(raw),
    ),
    Difference("h11 judges the first byte at once, we whole heads", "h11", b" GET /", lambda raw: our_request(raw) == INCOMPLETE),
    Difference("a hundred headers are enough", "we", REQUEST + b"X: y\r\n" * 100 + b"\r\n", lambda raw: raw.count(b"\r\n") > 100),
]

tokens = st.sampled_from([b"GET", b"HEAD", b"POST", b"get", b"*", b"G T", b"", b"\xe9"])
targets = st.sampled_from([b"/", b"/a?b=c", b"http://h/a", b"*", b"a:1", b"", b"/ ", b"/\xe9", b"/\x7f", b"/#"])
versions = st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b""])
names = st.sampled_from(b"Host,host,Connection,Content-Length,Transfer-Encoding,X,x,Content-Length , X,,X Y,\xe9,X\0".split(b","))
values = st.sampled_from(
    b"| a|\ta\t | close|keep-alive|closed|0| 5|5, 5|5,|-1|+1|0x5|1_0|0005|0000000000000005| chunked|Chunked".split(b"|")
    + b"gzip, chunked|identity|a, b|a:b|caf\xe9|\0|\x0b|a\rb|a\nb|a\r\n b|\x85|\x7f".split(b"|")
)
ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
header_lines = st.lists(st.tuples(names, st.just(b":"), values, ends).map(b"".join), max_size=4).map(b"".join)
bodies = st.sampled_from([b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"GET /evil HTTP/1.1\r\nHost: b\r\n\r\n", b"\0"])


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """As it is, or with some bytes missing, doubled or others."""
    raw = draw(whole)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(raw)))
        until = min(len(raw), at + draw(st.integers(0, 3)))
        raw = raw[:at] + draw(st.sampled_from([b"", b"\r\n", b"\n", b" ", b":", b"\0", b"\xff", b"0", raw[at:until] * 2])) + raw[until:]
    return raw


well_begun = st.tuples(st.just(REQUEST), header_lines, st.just(b"\r\n"), bodies).map(b"".join)
anyhow = st.tuples(tokens, st.just(b" "), targets, st.just(b" "), versions, ends, header_lines, ends, bodies).map(b"".join)


@few
@given(st.one_of(damaged(well_begun), damaged(anyhow), st.binary(max_size=60)))
def test_requests_are_what_h11_says_they_are(raw: bytes) -> None:
    judged(our_request(raw), their_request(raw), raw, REQUESTS)


@pytest.mark.parametrize("difference", REQUESTS, ids=lambda each: each.reason)
def test_a_difference_in_requests_is_one(difference: Difference) -> None:
    ours, theirs = our_request(difference.example), their_request(difference.example)
    assert ours != theirs and difference.explains(ours, theirs, difference.example)


# --- answers ------------------------------------------------------------------------------------------------------------


def our_answer(raw: bytes) -> Outcome:
    reader = AnswerReader()
    try:
        reader.feed(raw)
        if not reader.complete:
            reader.end()
    except Malformed:
        return MALFORMED
    assert reader.head is not None
    headers = without_case(tuple(sorted((name, value) for name, value in reader.head.headers.items() if name != "content-length")))
    return Message((reader.head.status,), headers, reader.take(), reader.reusable)


def their_answer(raw: bytes) -> Outcome:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(raw)
    head, body, ended = None, b"", False
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if ended:
                    raise h11.RemoteProtocolError("the end again")
                connection.receive_data(b"")
                ended = True
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, (h11.ConnectionClosed, h11.PAUSED)):
                return MALFORMED
    except h11.RemoteProtocolError:
        return MALFORMED
    assert head is not None
    stays = not ended and connection.their_state is h11.DONE and not connection.trailing_data[0]
    headers = joined([(name, value) for name, value in head.headers if name != b"content-length"])  # what it means is in the body
    return Message((head.status_code,), headers, body, stays)


ANSWER = b"HTTP/1.1 200 OK\r\n"
NONE = b"HTTP/1.1 204 No\r\n"
CHUNKED = ANSWER + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERS = [
    Difference("lines end in CRLF", "we", b"HTTP/1.1 200 OK\n\n", anywhere(rb"(?<!\r)\n")),
    Difference("a folded line is two headers to some", "we", ANSWER + b"X: a\r\n b\r\n\r\n", in_head(FOLDED)),
    Difference("control characters serve nobody but to deceive", "we", ANSWER + b"X: \x01\r\n\r\n", in_head(CONTROLS)),
    Difference("nor in the reason", "we", b"HTTP/1.1 200 \x01\r\n\r\n", in_head(rb"\AHTTP/1\.[01] \d{3} .*[\x01-\x08\x0b-\x1f\x7f](?!\n)")),
    Difference("we speak HTTP/1.1 and 1.0 only", "we", b"HTTP/1.2 200 OK\r\n\r\n", in_head(rb"\AHTTP/(?!1\.[01] )")),
    Difference("no body has a length of so many digits", "we", ANSWER + b"Content-Length: 0000000000000000\r\n\r\n", in_head(MANY_DIGITS)),
    Difference("a length is given once, in one value", "we", ANSWER + b"Content-Length: 0, 0\r\n\r\n", in_head(JOINED)),
    Difference("a length is given once, in one header", "we", ANSWER + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", in_head(TWICE)),
    Difference(
        "h11 keeps nothing open for HTTP/1.0", "nobody", NONE.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n\r\n", in_head(KEEP)
    ),
    Difference("close is found within other words, too", "nobody", NONE + b"Connection: closed\r\n\r\n", in_head(CLOSE)),
    Difference("no chunk has a size of so many digits", "we", CHUNKED + b"000000005\r\nhello\r\n0\r\n\r\n", in_chunks(rb"[0-9a-f]{9}")),
    Difference("blanks before an extension say nothing", "h11", CHUNKED + b"0 ;a\r\n\r\n", in_chunks(rb"[0-9a-f][ \t]+;")),
    Difference("trailers are not read", "h11", CHUNKED + b"0\r\nhello\r\n\r\n", in_chunks(rb"\n0+[^\n]*\n[^\r]")),
    Difference("beside chunks no length counts", "h11", CHUNKED[:-2] + b"Content-Length: x\r\n\r\n0\r\n\r\n", in_head(LENGTH)),
    Difference(
        "without a body no header about it counts", "h11", b"HTTP/1.1 204 No\r\nContent-Length: x\r\n\r\n", in_head(rb"\A\S+ (204|304)")
    ),
]
chunk_sizes = st.sampled_from(
    [b"5", b"05", b"5;a=b", b"5;a\n", b"5 ;a", b"5 ", b" 5", b"", b"-1", b"0x5", b"g", b"6", b"000000005", b"0", b"4"]
)
chunk_ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"", b"x\r\n"])
chunks = st.lists(st.tuples(chunk_sizes, st.just(b"\r\n"), st.just(b"hello"), chunk_ends).map(b"".join), max_size=3).map(b"".join)
last_chunks = st.sampled_from([b"0\r\n\r\n", b"0\r\n\r\n", b"00;x\r\nA: b\r\n\r\n", b"0\r\n", b"0\r\nhello\r\n\r\n", b"", b"0\r\n\r\nmore"])
framed = st.one_of(
    st.tuples(st.just(b"Content-Length: 5\r\n"), header_lines, st.just(b"\r\n"), bodies).map(b"".join),
    st.tuples(st.just(b"Transfer-Encoding: chunked\r\n"), header_lines, st.just(b"\r\n"), chunks, last_chunks).map(b"".join),
    st.tuples(header_lines, st.just(b"\r\n"), bodies).map(b"".join),
)
first_lines = st.sampled_from(
    [ANSWER] * 6
    + [
        b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 404\r\n", b"HTTP/1.1 204 No\r\n", b"HTTP/1.1 304 \r\n", b"HTTP/1.1 100 Go\r\n\r\n" + ANSWER,
        b"HTTP/1.2 200 OK\r\n", b"HTTP/1.1 20 OK\r\n", b"HTTP/1.1  200 OK\r\n", b"HTTP/1.1 099 x\r\n", b"HTTP/1.1 101 x\r\n",
        b"SSH-2.0\r\n",
    ]
)  # fmt: skip


@few
@given(damaged(st.tuples(first_lines, framed).map(b"".join)))
def test_answers_are_what_h11_says_they_are(raw: bytes) -> None:
    judged(our_answer(raw), their_answer(raw), raw, ANSWERS)


@pytest.mark.parametrize("difference", ANSWERS, ids=lambda each: each.reason)
def test_a_difference_in_answers_is_one(difference: Difference) -> None:
    ours, theirs = our_answer(difference.example), their_answer(difference.example)
    assert ours != theirs and difference.explains(ours, theirs, difference.example)


# --- both -----------------------------------------------------------------------------------------------------------------

REFUSED = {
    "CR in a value": b"X: a\rb",
    "CR at the end of a value": b"X: a\r",
    "LF in a value": b"X: a\nb",
    "NUL in a value": b"X: a\0b",
    "NUL as a value": b"X: \0",
    "an empty name": b": a",
    "a blank in a name": b"X Y: a",
    "a blank after a name": b"X : a",
    "no ASCII in a name": b"\xe9: a",
    "a control character in a name": b"X\x0b: a",
    "no colon": b"X",
    "another blank than a blank before a coding": b"Transfer-Encoding: \x0bchunked",
    "another blank than a blank after a coding": b"Transfer-Encoding: chunked\x0b",
    "another blank than a blank before a length": b"Content-Length: \x0b0",
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("first", [True, False], ids=["as the first header", "as the last one"])
def test_neither_takes_such_a_header(line: bytes, first: bool) -> None:
    """A proxy may see another message in it than we would."""
    lines = [line, b"Y: z"] if first else [b"Y: z", line]
    head = b"\r\n".join([*lines, b"\r\n"])
    for raw, ours, theirs in ((REQUEST + head, our_request, their_request), (ANSWER + head + b"0\r\n\r\n", our_answer, their_answer)):
        assert (ours(raw), theirs(raw)) == (MALFORMED, MALFORMED), raw
