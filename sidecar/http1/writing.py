"""Writes requests and answers as bytes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

_REASONS: Final = {
    200: "OK",
    301: "Moved Permanently",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    return request_with(method, target, header_lines(headers), body)


def request_with(method: str, target: str, lines: str, body: bytes | None) -> bytes:
    """A request with headers that `header_lines` has written, which may be used again."""
    first = _checked(f"{method} {target} HTTP/1.1")
    if body is None:
        return f"{first}\r\n{lines}\r\n".encode()
    return f"{first}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def answer_bytes(status: int, headers: Mapping[str, str], body: bytes, *, with_body: bool = True) -> bytes:
    """An answer to HEAD has the length of the body it leaves out."""
    lines = header_lines({**headers, "Content-Length": str(len(body))})
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\n{lines}\r\n".encode()
    return head + body if with_body else head


def date_text(at: float) -> str:
    """For the header Date. What reads and writes dates of mail would do too, and would be loaded for that alone at each start."""
    when = datetime.fromtimestamp(at, UTC)
    return f"{_DAYS[when.weekday()]}, {when:%d} {_MONTHS[when.month - 1]} {when.year:04} {when:%H:%M:%S} GMT"


def header_lines(headers: Mapping[str, str]) -> str:
    """The lines of these headers, each with its end."""
    return "".join(f"{_checked(f'{name}: {value}')}\r\n" for name, value in headers.items())


def _checked(line: str) -> str:
    if not line.isprintable():  # a line break in a header would begin another one, or another message
        raise ValueError(f"the message would have a line break or control character in its {line.partition(':')[0][:40]!r}")
    return line
