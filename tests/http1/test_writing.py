"""What we send, read by our own readers: nothing can be slipped in, and what was written is what is read."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.http1.answers import AnswerReader
from sidecar.http1.requests import read_request
from sidecar.http1.writing import answer_bytes, date_text, request_bytes


def test_a_request_as_it_is_sent() -> None:
    assert request_bytes("GET", "/a?b=c", {"Host": "h:1", "X": ""}, None) == b"GET /a?b=c HTTP/1.1\r\nHost: h:1\r\nX: \r\n\r\n"
    assert request_bytes("PUT", "/a", {"Host": "h"}, b"\r\n\0") == b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n\r\n\0"
    assert request_bytes("POST", "/a", {}, b"") == b"POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


@given(st.floats(min_value=0, max_value=2**35))
def test_a_date_is_written_as_mail_writes_it(at: float) -> None:
    assert date_text(at // 1) == formatdate(at // 1, usegmt=True)


@pytest.mark.parametrize("breaks", ["\r\n", "\n", "\r", "\0", "\t", "\x7f", "\x85", "\u2028", "\udc80"], ids=ascii)
def test_nothing_can_be_slipped_into_a_request_and_the_refusal_tells_no_secret(breaks: str) -> None:
    slipped, fine = f"x{breaks}Evil: secret", {"Authorization": "Bearer secret"}
    for method, target, headers in (
        (slipped, "/", fine),
        ("GET", f"/{slipped}", fine),
        ("GET", "/", {slipped: "secret"}),
        ("GET", "/", {"Authorization": f"Bearer secret{breaks}Evil: secret"}),
        ("GET", "/", {"Authorization": f"Bearer secret{breaks}"}),
    ):
        with pytest.raises(ValueError, match="line break or control character") as caught:
            request_bytes(method, target, headers, None)
        assert "secret" not in str(caught.value)
        assert str(caught.value).isprintable()


def test_an_answer_as_it_is_sent() -> None:
    headers = {"Content-Type": "text/plain"}
    head = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"
    assert answer_bytes(405, headers, b"\r\nabc") == head + b"\r\nabc"
    assert answer_bytes(405, headers, b"\r\nabc", with_body=False) == head


@pytest.mark.parametrize("status", [200, 301, 400, 404, 405, 500, 503])
def test_an_answer_is_read_as_it_was_meant(status: int) -> None:
    reader = AnswerReader()
    assert reader.feed(answer_bytes(status, {"X-A": "b: c", "Connection": "keep-alive"}, b"hello"))
    assert reader.head is not None and reader.reusable
    assert (reader.head.status, reader.head.headers["x-a"], reader.take()) == (status, "b: c", b"hello")


@pytest.mark.parametrize("breaks", ["\r\n", "\n", "\r", "\0", "\t", "\x7f", "\x85", "\u2028", "\udc80"], ids=ascii)
def test_nothing_can_be_slipped_into_an_answer(breaks: str) -> None:
    for headers in ({"Location": f"/{breaks}Set-Cookie: a=b"}, {f"X{breaks}Y": "z"}):
        with pytest.raises(ValueError, match="line break or control character"):
            answer_bytes(301, headers, b"")


def test_a_request_is_read_as_it_was_meant() -> None:
    request, rest = read_request(request_bytes("PUT", "/a?b=c", {"Host": "h:1", "X": "y z"}, b"body"))
    assert request is not None and rest == b"body"
    assert (request.method, request.target, request.stays_open) == ("PUT", "/a?b=c", False)
    assert request.headers == {"host": "h:1", "x": "y z", "content-length": "4"}
