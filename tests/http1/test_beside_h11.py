"""Our reader of answers beside h11, another author's reading of the same standard: what we take for an answer is that answer for h11, too.

We refuse more than h11 does, on purpose (`test_answers`). Where h11 refuses what we take, or takes it otherwise, the reason is listed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import h11
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.http1.answers import AnswerReader
from sidecar.http1.fields import Malformed


@dataclass(frozen=True)
class Message:
    first: tuple[object, ...]
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    stays_open: bool = True


# A message, or how there was none.
Outcome = Message | str
MALFORMED = "malformed"


@dataclass(frozen=True)
class Difference:
    reason: str
    example: bytes
    applies: Callable[[bytes], object]


def head_of(raw: bytes) -> bytes:
    """Of the message itself, after what a server says in between."""
    raw = re.sub(rb"\A(HTTP/1\.1 1\d\d .*\r\n\r\n)+", b"", raw)
    return re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[0]


def in_head(pattern: bytes) -> Callable[[bytes], object]:
    return lambda raw: re.search(pattern, head_of(raw), re.IGNORECASE | re.MULTILINE)


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


# --- what is played ---------------------------------------------------------------------------------------------------

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


OLD_AND_KEPT = in_head(rb"^connection:.*keep-alive")
CLOSE = in_head(rb"^connection:.*close")
LENGTH = in_head(rb"^content-length:")
ANSWER = b"HTTP/1.1 200 OK\r\n"
NONE = b"HTTP/1.1 204 No\r\n"
CHUNKED = ANSWER + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERS = [
    Difference("h11 keeps nothing open for HTTP/1.0", NONE.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n\r\n", OLD_AND_KEPT),
    Difference("close is found within other words, too", NONE + b"Connection: closed\r\n\r\n", CLOSE),
    Difference("blanks before an extension say nothing", CHUNKED + b"0 ;a\r\n\r\n", in_chunks(rb"[0-9a-f][ \t]+;")),
    Difference("trailers are not read", CHUNKED + b"0\r\nhello\r\n\r\n", in_chunks(rb"\n0+[^\n]*\n[^\r]")),
    Difference("beside chunks no length counts", CHUNKED[:-2] + b"Content-Length: x\r\n\r\n0\r\n\r\n", LENGTH),
    Difference("without a body no header about it counts", NONE + b"Content-Length: x\r\n\r\n", in_head(rb"\A\S+ (204|304)")),
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


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(st.tuples(first_lines, framed).map(b"".join)))
def test_answers_are_what_h11_says_they_are(raw: bytes) -> None:
    ours, theirs = our_answer(raw), their_answer(raw)
    assert ours in (theirs, MALFORMED) or any(each.applies(raw) for each in ANSWERS), f"{raw!r}\nours:   {ours}\ntheirs: {theirs}"


@pytest.mark.parametrize("difference", ANSWERS, ids=lambda each: each.reason)
def test_a_difference_in_answers_is_one(difference: Difference) -> None:
    assert MALFORMED != our_answer(difference.example) != their_answer(difference.example) and difference.applies(difference.example)
