"""`AnswerReader` reads one answer from the bytes that a server or a proxy sends, however they are cut.

It reads what API servers and proxies send: bodies by length, in chunks or up to the end of the connection, and gzip. Each reader reads
one answer; with the next request on the same connection a new one begins.

A body is whole or streamed. A whole one is held until it is complete, and may only have so many bytes. Of a streamed one, which may have
any number, as much is unpacked as its reader may hold, and the rest when that has been taken: a few packed bytes can stand for very many.
"""

import itertools
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.http1.fields import Malformed, fields, length, stays_open

_LONGEST_HEAD = 2**16
_LONGEST_CHUNK_LINE = 2**12
# Bytes of a whole body, unpacked. etcd stores no object above 1.5 MiB, and JSON takes up to six bytes for one of text.
LONGEST_BODY = 10 * 2**20
# Bytes of a streamed body that are unpacked before any is taken.
_MOST_UNPACKED = 2**19
# Bytes of a streamed body that are taken at once, a little more or less: 50 claims of usual size, which take some milliseconds.
_PIECE = 2**16
_NO_BODY = frozenset((204, 304))
# Without control characters: a line feed within the reason would hide the header behind it.
_STATUS_LINE = re.compile(r"(HTTP/1\.[01]) ([1-9][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEX = frozenset(b"0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Head:
    """The first part of an answer. Names of headers are in lower case, repeated ones are joined by commas."""

    status: int
    headers: Mapping[str, str]
    stays_open: bool


class AnswerReader:
    """Reads one answer: `feed` it what arrives, call `end` when the connection is closed, and `take` its body, in pieces if wanted."""

    def __init__(self, *, bodiless: bool = False, streamed: bool = False) -> None:
        """`bodiless`: an answer to CONNECT, since what follows it is not HTTP."""
        self.head: Head | None = None
        self.complete = False
        self.held = 0
        """Bytes of the body that were not taken yet."""
        self._bodiless = bodiless
        self._streamed = streamed
        self._rest = b""
        self._pieces: list[bytes] = []
        self._chunked = False
        self._within_chunks = True
        self._to_end = False
        self._left = 0
        self._after_chunk = False
        self._unzip: zlib._Decompress | None = None
        self._packed = b""
        self._arrived = False

    @property
    def waits_packed(self) -> bool:
        """Whether a part of a streamed body has arrived and is only unpacked when what was unpacked before it has been taken."""
        return bool(self._packed)

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on this connection: the answer is complete, and nothing came after it."""
        return self.complete and self.head is not None and self.head.stays_open and not self._to_end and not self._rest

    def feed(self, data: bytes) -> bool:
        """Returns whether the answer is complete."""
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
        """The connection was closed. That ends an answer without a length and without chunks; any other is Malformed."""
        if self._arrived or self.complete:
            return
        if self.head is None or not self._to_end:
            raise Malformed("the connection was closed " + ("within the answer" if self.head else "before there was an answer"))
        self._finish()

    def take(self) -> bytes:
        """What has arrived of the body and was not taken before, but of a streamed one not much at once. Empty: that was all so far."""
        count = len(self._pieces)
        if self._streamed:
            ends = itertools.accumulate(map(len, self._pieces))
            count = next((number for number, end in enumerate(ends, 1) if end >= _PIECE), count)
        pieces, self._pieces = self._pieces[:count], self._pieces[count:]
        self.held -= sum(map(len, pieces))
        if self._packed or (self._arrived and not self.complete):
            self._unpack()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _begin(self, head: Head) -> None:
        self.head = head
        if head.headers.get("content-encoding", "").lower() == "gzip":
            self._unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        coding, said = head.headers.get("transfer-encoding"), head.headers.get("content-length")
        if self._bodiless or head.status in _NO_BODY:
            self._unzip = None
            self.complete = True
        elif coding is not None:
            if coding.lower() != "chunked":
                raise Malformed(f"the answer's transfer coding {coding[:40]!r} is not known")
            self._chunked = True
        elif said is None:
            self._to_end = True
        else:
            self._left = length(said)
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
            elif not line:  # the end of the trailers, which are not used
                self._finish()
                break
            elif b"\n" in line:  # other readers take it for the end of the trailers
                raise Malformed("a trailer of the answer has a line feed of its own")
        self._rest = data[at:]

    def _hold(self, data: bytes) -> None:
        if self._unzip is None:
            self._keep(data)
        else:
            self._packed += data
            self._unpack()

    def _keep(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self.held += len(data)
        if self.held > LONGEST_BODY and not self._streamed:  # or a server could fill our memory
            raise Malformed(f"the answer is longer than {LONGEST_BODY} bytes")

    def _unpack(self) -> None:
        """Unpack what may be held now, and note the end if it has been reached."""
        assert self._unzip is not None
        most = _MOST_UNPACKED if self._streamed else LONGEST_BODY + 1
        piece = _PIECE if self._streamed else most
        while room := max(0, most - self.held):
            try:
                data = self._unzip.decompress(self._packed, min(room, piece))
            except zlib.error as error:
                raise Malformed(f"the answer's compression is broken: {error}") from error
            self._packed = self._unzip.unconsumed_tail
            if self._unzip.unused_data:
                raise Malformed("something follows the answer's compressed body")
            self._keep(data)
            if len(data) < min(room, piece):
                self._note_unpacked()
                return

    def _note_unpacked(self) -> None:
        if self._arrived:
            if self._unzip is not None and not self._unzip.eof:
                raise Malformed("the answer's compression broke off")
            self.complete = True

    def _finish(self) -> None:
        self._arrived = True
        if self._unzip is None:
            self.complete = True
        else:
            self._unpack()


def _head(data: bytes) -> tuple[Head | None, bytes]:
    """The head and what follows it; None until it is complete. Interim answers (100 Continue) are skipped."""
    while True:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _LONGEST_HEAD or not data.startswith(b"HTTP/1."[: len(data)]):
                raise Malformed(f"this is no HTTP answer: {data[:40]!r}")
            return None, data
        head = _parsed(data[: end + 2].decode("latin-1"))
        data = data[end + 4 :]
        if head.status >= 200:
            return head, data


def _parsed(text: str) -> Head:
    first, _, lines = text.partition("\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise Malformed(f"this is no HTTP answer: {first[:40]!r}")
    version, status = found.groups()
    headers = fields(lines)
    return Head(int(status), headers, stays_open(version, headers))


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")
    # Extensions are not used, but a line feed within one is where other readers end the line.
    if not digits or len(digits) > 8 or not _HEX.issuperset(digits) or b"\n" in line:
        raise Malformed(f"this is no size of a chunk: {line[:40]!r}")
    return int(digits, 16)
