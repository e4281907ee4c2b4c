"""A server that answers each call with HTTP/2 frames of the test's choice: what no gRPC library would send, a broken driver may."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, cast

Answer = Callable[[int], bytes | None]
"""From the number of the stream to what is sent; None closes the connection."""

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _CONTINUATION = 0, 1, 3, 4, 6, 7, 9
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_LARGEST: Final = 16_000
_PREFACE: Final = 24


@contextlib.asynccontextmanager
async def answering(path: Path, answer: Answer) -> AsyncIterator[None]:
    """Each call is answered when the whole request has come."""
    serving = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await reader.readexactly(_PREFACE)
            writer.write(_frame(_SETTINGS, 0, 0))
            while True:
                head = await reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
                body = await reader.readexactly(int.from_bytes(head[:3]))
                if kind in (_SETTINGS, _PING) and not flags & _ACK:
                    writer.write(_frame(kind, _ACK, 0, body if kind == _PING else b""))
                if kind in (_HEADERS, _DATA) and flags & _END_STREAM:
                    out = answer(stream)
                    if out is None:
                        break
                    writer.write(out)
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def head(stream: int, **more: str) -> bytes:
    """The headers with which a gRPC answer begins."""
    return headers(stream, (":status", "200"), ("content-type", "application/grpc"), *_spelled(more))


def trailers(stream: int, status: int | str, text: str = "", **more: str) -> bytes:
    """The driver's status, with which an answer ends."""
    return headers(stream, ("grpc-status", str(status)), ("grpc-message", text), *_spelled(more), last=True)


def headers(stream: int, *pairs: tuple[str, str], last: bool = False) -> bytes:
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)
    out, kind, flags = b"", _HEADERS, _END_STREAM if last else 0
    while len(block) > _LARGEST:
        out += _frame(kind, flags, stream, block[:_LARGEST])
        block, kind, flags = block[_LARGEST:], _CONTINUATION, 0
    return out + _frame(kind, flags | _END_HEADERS, stream, block)


def message(stream: int, body: bytes, *, flag: int = 0, claims: int | None = None, last: bool = False) -> bytes:
    """One message. `flag` 1 says that it is compressed; `claims`: the length that is said."""
    data = bytes([flag]) + struct.pack(">I", len(body) if claims is None else claims) + body
    pieces = [data[start : start + _LARGEST] for start in range(0, len(data), _LARGEST)]
    return b"".join(_frame(_DATA, _END_STREAM if last and piece is pieces[-1] else 0, stream, piece) for piece in pieces)


def reset(stream: int, code: int) -> bytes:
    return _frame(_RESET, 0, stream, struct.pack(">I", code))


def goaway(code: int) -> bytes:
    return _frame(_GOAWAY, 0, 0, struct.pack(">II", 0, code))


def nonsense(stream: int) -> bytes:
    """Headers that cannot be read."""
    return _frame(_HEADERS, _END_HEADERS, stream, b"\xff" * 6)


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def _spelled(more: dict[str, str]) -> list[tuple[str, str]]:
    return [(name.replace("_", "-"), value) for name, value in more.items()]


def _text(value: str) -> bytes:
    """As HPACK writes a text that it does not compress."""
    data = value.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, length = len(data) - 127, b"\x7f"
    while rest >= 128:
        length, rest = length + bytes([rest % 128 + 128]), rest // 128
    return length + bytes([rest]) + data
