"""Writes requests and answers as bytes."""

from collections.abc import Mapping
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


def request_bytes(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    length = {} if body is None else {"Content-Length": str(len(body))}
    return _head(f"{method} {target} HTTP/1.1", {**headers, **length}) + (body or b"")


def answer_bytes(status: int, headers: Mapping[str, str], body: bytes, *, with_body: bool = True) -> bytes:
    """An answer to HEAD has the length of the body it leaves out."""
    head = _head(f"HTTP/1.1 {status} {_REASONS[status]}", {**headers, "Content-Length": str(len(body))})
    return head + body if with_body else head


def _head(first: str, headers: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    for line in lines:
        if not line.isprintable():  # a line break in a header would begin another one, or another message
            raise ValueError(f"the message would have a line break or control character in its {line.partition(':')[0][:40]!r}")
    return "\r\n".join((*lines, "\r\n")).encode()
