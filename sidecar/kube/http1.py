"""HTTP/1.1 as bytes: the request as it is sent, and `Reading`, an answer as it comes in. No sockets, no time.

Our own, because a general library's third of a millisecond for each request was half of what a volume costs this process. It speaks
what API servers and proxies speak: one request at a time on a connection, bodies by length, in chunks or up to the end, gzip.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

_LONGEST_HEAD = 2**16
_LONGEST_CHUNK_LINE = 2**12
_MOST_DIGITS = 15
# Of a body that is read whole. The longest that is meant is a page of 500 large objects.
_LONGEST_BODY = 2**28
_NO_BODY = frozenset((204, 304))
_HEX = frozenset(b"0123456789abcdefABCDEF")


class Malformed(ConnectionError):
    """What came is no HTTP, or broke off. Nothing is known of the outcome."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first part of an answer. Names of headers are in lower case, repeated ones are joined by commas."""

    status: int
    headers: Mapping[str, str]
    stays_open: bool


def request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """A line break in a header would begin another one, or another request."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    for line in lines:
        if not line.isprintable():
            raise ValueError(f"the request would have a line break or control character in its {line.partition(':')[0][:40]!r}")
    return "\r\n".join((*lines, "\r\n")).encode() + (body or b"")


class Reading:
    """One answer. `feed` it what arrives, `end` it when nothing more will, `take` its body, in pieces if wanted."""

    def __init__(self, *, bodiless: bool = False) -> None:
        """Bodiless are the answers to CONNECT: what follows them is not HTTP."""
        self.head: Head | None = None
        self.complete = False
        self.held = 0
        """Bytes of the body that nobody has taken."""
        self._bodiless = bodiless
        self._rest = b""
        self._pieces: list[bytes] = []
        self._chunked = False
        self._within_chunks = True
        self._to_end = False
        self._left = 0
        self._after_chunk = False
        self._unzip: zlib._Decompress | None = None

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on this connection: everything was read, and there was nothing besides."""
        return self.complete and self.head is not None and self.head.stays_open and not self._to_end and not self._rest

    def feed(self, data: bytes) -> bool:
        """Whether the answer is complete."""
        if self.head is None:
            head, data = _head(self._rest + data)
            if head is None:
                self._rest = data
                return False
            self._rest = b""
            self._begin(head)
        self._feed_body(data)
        return self.complete

    def end(self) -> None:
        """The connection is closed. That is the end of an answer only if it said neither length nor chunks."""
        if self.complete:
            return
        if self.head is None or not self._to_end:
            raise Malformed("the connection was closed " + ("within the answer" if self.head else "before there was an answer"))
        self._finish()

    def take(self) -> bytes:
        """What there is of the body and was not taken before."""
        pieces, self._pieces, self.held = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _begin(self, head: Head) -> None:
        self.head = head
        if head.headers.get("content-encoding", "").lower() == "gzip":
            self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
        if self._bodiless or head.status in _NO_BODY:
            self._unzip = None
            self.complete = True
        elif coding is not None:
            if coding.lower() != "chunked":
                raise Malformed(f"the answer's transfer coding {coding[:40]!r} is not known")
            self._chunked = True
        elif length is None:
            self._to_end = True
        elif not length.isdecimal() or len(length) > _MOST_DIGITS:
            raise Malformed(f"the answer's length {length[:40]!r} is no number that can be meant")
        else:
            self._left = int(length)
            if not self._left:
                self._finish()

    def _feed_body(self, data: bytes) -> None:
        if self.complete:
            self._rest += data
        elif self._chunked:
            self._feed_chunks(data)
        elif self._to_end:
            self._hold(data)
        else:
            self._feed_counted(data)

    def _feed_counted(self, data: bytes) -> None:
        if len(data) > self._left:
            data, self._rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self._hold(data)
        if not self._left:
            self._finish()

    def _feed_chunks(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        while at < size:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._after_chunk = not self._left
                self._hold(piece)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if size - at > _LONGEST_CHUNK_LINE:
                    raise Malformed("a chunk of the answer has no size")
                break
            line, at = data[at:end], end + 2
            if self._after_chunk:
                if line:
                    raise Malformed("a chunk of the answer is longer than it says")
                self._after_chunk = False
            elif self._within_chunks:
                self._left = _chunk_size(line)
                self._within_chunks = self._left > 0
            elif not line:  # after the last chunk trailers may come, which nobody needs
                self._finish()
                break
        self._rest = data[at:]

    def _hold(self, data: bytes) -> None:
        if self._unzip is not None:
            try:
                data = self._unzip.decompress(data, _LONGEST_BODY + 1 - self.held)
            except zlib.error as error:
                raise Malformed(f"the answer's compression is broken: {error}") from error
            if self._unzip.unused_data:
                raise Malformed("something follows the answer's compressed body")
        if data:
            self._pieces.append(data)
            self.held += len(data)
        if self.held > _LONGEST_BODY:  # sooner than memory ends
            raise Malformed(f"the answer is longer than {_LONGEST_BODY} bytes")

    def _finish(self) -> None:
        if self._unzip is not None and not self._unzip.eof:
            raise Malformed("the answer's compression broke off")
        self.complete = True


def _head(data: bytes) -> tuple[Head | None, bytes]:
    """The head and what follows it; None while it has not all come. Interim answers (100 Continue) say nothing."""
    while True:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _LONGEST_HEAD or not data.startswith(b"HTTP/1."[: len(data)]):
                raise Malformed(f"this is no HTTP answer: {data[:40]!r}")
            return None, data
        head = _parsed(data[:end].decode("latin-1"))
        data = data[end + 4 :]
        if head.status >= 200:
            return head, data


def _parsed(text: str) -> Head:
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest.partition(" ")[0]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not (status.isdecimal() and len(status) == 3):
        raise Malformed(f"this is no HTTP answer: {first[:40]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise Malformed(f"this is no header: {line[:40]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    connection = headers.get("connection", "").lower()
    return Head(int(status), headers, "close" not in connection and (version == "HTTP/1.1" or "keep-alive" in connection))


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 8 or not _HEX.issuperset(digits):
        raise Malformed(f"this is no size of a chunk: {line[:40]!r}")
    return int(digits, 16)
