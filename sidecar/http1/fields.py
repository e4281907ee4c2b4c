"""Reads what requests and answers have in common: header fields, a body's length, and whether the connection stays open."""

import re
from typing import Final

# Names are tokens, and values have no control characters but tabs. A reader that is less strict than a proxy in between can be made to see
# another message than the proxy saw. For the same reason no line may continue the one before it, which RFC 7230 has abolished.
_FIELDS: Final = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*+")
_PARTS: Final = re.compile(r"([^:]++):[\t ]*+([^\r]*+)\r\n")
# No body has a longer length, and Python is slow at reading thousands of digits.
_MOST_DIGITS: Final = 15


class Malformed(ConnectionError):
    """What arrived is not HTTP, or is incomplete. Whether a request was carried out is unknown."""


def fields(text: str) -> dict[str, str]:
    """The headers of a message; every line ends in CRLF. Names are in lower case, repeated ones are joined by commas."""
    if not _FIELDS.fullmatch(text):
        raise Malformed(f"this is no header: {_first_bad_line(text)[:40]!r}")
    headers: dict[str, str] = {}
    for name, value in _PARTS.findall(text):
        name, value = name.lower(), value.rstrip("\t ")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def length(value: str) -> int:
    """A Content-Length. Two that were joined by a comma are refused, even if they are equal."""
    if not (value.isascii() and value.isdecimal()) or len(value) > _MOST_DIGITS:
        raise Malformed(f"the length {value[:40]!r} is no number that can be meant")
    return int(value)


def stays_open(version: str, headers: dict[str, str]) -> bool:
    """Whether the sender of this message keeps the connection open for another one."""
    connection = headers.get("connection", "").lower()
    return "close" not in connection and (version == "HTTP/1.1" or "keep-alive" in connection)


def _first_bad_line(text: str) -> str:
    return next(line for line in text.split("\r\n") if not _FIELDS.fullmatch(f"{line}\r\n"))
