"""`read_request` reads the head of one request from the bytes that a client sends, however they are cut.

Bodies are not read, since no page needs one. A request with a body is the last one on its connection, so that we need not find the body's
end: where a proxy and a server find different ends, a client can smuggle a request past the proxy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from sidecar.http1.fields import Malformed, fields, length, stays_open

# Request line and headers together. Anybody who reaches the port can make us hold this much for each connection.
_LONGEST_HEAD: Final = 2**14
_MOST_FIELDS: Final = 100
_REQUEST_LINE: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([!-~]+) (HTTP/1\.[01])")
# Never part of a head. A client that speaks TLS or anything else but HTTP is refused at once, and not when its time is over.
_NEVER: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)")
# Only the first bytes are searched, since they are searched again with each packet: a head of single bytes would take seconds otherwise.
_BEGINNING: Final = 64


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. Names of headers are in lower case, repeated ones are joined by commas."""

    method: str
    target: str
    """As it was sent."""
    headers: Mapping[str, str]
    stays_open: bool
    """Whether another request may follow on this connection."""

    @property
    def path(self) -> str:
        """The decoded path, without the host that a proxy's request has."""
        path = self.target.partition("?")[0]
        if not path.startswith("/") and "://" in path:
            path = "/" + path.partition("://")[2].partition("/")[2]
        return unquote(path)

    @property
    def query(self) -> str:
        """As it was sent."""
        return self.target.partition("?")[2]


def read_request(data: bytes) -> tuple[Request | None, bytes]:
    """The first request in these bytes, and the bytes after its head. None, and all the bytes, until the head is complete."""
    end = data.find(b"\r\n\r\n", 0, _LONGEST_HEAD)
    if end < 0:
        if len(data) >= _LONGEST_HEAD or _NEVER.search(data, 0, _BEGINNING):
            raise Malformed("this is no request, or one that is too long")
        return None, data
    return _parsed(data[: end + 2].decode("latin-1")), data[end + 4 :]


def _parsed(text: str) -> Request:
    first, _, lines = text.partition("\r\n")
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise Malformed("this is no request")
    if lines.count("\r\n") > _MOST_FIELDS:
        raise Malformed("the request has too many headers")
    method, target, version = found.groups()
    headers = fields(lines)
    if ("host" not in headers and version == "HTTP/1.1") or "," in headers.get("host", ""):  # two hosts joined by a comma
        raise Malformed("the request must name one host")
    has_body = _has_body(version, headers)
    return Request(method, target, headers, stays_open(version, headers) and not has_body)


def _has_body(version: str, headers: Mapping[str, str]) -> bool:
    said = headers.get("content-length")
    announced = length(said) > 0 if said is not None else False
    if "transfer-encoding" not in headers:
        return announced
    if said is not None or version == "HTTP/1.0":  # a proxy may have used the other way
        raise Malformed("the request says in two ways where its body ends, or in one that its version does not have")
    return True
