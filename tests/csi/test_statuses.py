"""What gRPC says where the driver's answer is lost, as it really says it: by its code alone nothing is known of what the driver did."""

import asyncio
import contextlib
import gzip
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, cast

import pytest

from csi_proto import csi_pb2 as pb
from sidecar.csi.api import CreateRequest
from sidecar.csi.channel import LARGEST_ANSWER, Wire
from sidecar.csi.driver import CREATE, DELETE, Caller
from sidecar.csi.outcome import BadAnswer, Code, DriverError, MaybeRunning, NoSpaceHere, Refused, is_over, of_failure
from tests.harness.driver.in_loop import FakeDriver, connection
from tests.harness.loops import run

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


LARGE = b"\0" * (LARGEST_ANSWER + 1)
CREATED = pb.CreateVolumeResponse(volume=pb.Volume(volume_id="v")).SerializeToString()
HTML = ("content-type", "text/html")


def failed(path: Path, answer: Answer, *, timeout: float = 60.0, rpc: object = CREATE) -> DriverError:
    async def main() -> DriverError:
        wire = Wire(str(path / "csi.sock"), grace=0.0)
        caller = Caller(wire, timeout=timeout, on_call=lambda *_: None, clock=time.monotonic)
        async with answering(path / "csi.sock", answer):
            await wire.connect(5.0)
            with pytest.raises(DriverError) as caught:
                if rpc is DELETE:
                    await caller.call(DELETE, pb.DeleteVolumeRequest(volume_id="v"))
                else:
                    await caller.call(CREATE, pb.CreateVolumeRequest(name="v"))
            await wire.close()
        return caught.value

    return run(main())


def zipped(stream: int, body: bytes) -> bytes:
    return head(stream, grpc_encoding="gzip") + message(stream, body, flag=1) + trailers(stream, 0)


LOST: list[Answer] = [
    lambda s: head(s, grpc_encoding="zstd") + message(s, CREATED, flag=1) + trailers(s, 0),
    lambda s: head(s) + message(s, CREATED, flag=1) + trailers(s, 0),
    lambda s: zipped(s, b"no gzip"),
    lambda s: zipped(s, gzip.compress(LARGE * 2)),
    lambda s: head(s) + message(s, b"", claims=2**31),
    lambda s: head(s) + trailers(s, "none"),
    lambda s: head(s) + message(s, CREATED, last=True),
    lambda s: head(s) + message(s, CREATED) + reset(s, 2),
    lambda s: reset(s, 0),
    lambda s: reset(s, 7),
    lambda s: reset(s, 8),
    nonsense,
    lambda _: b"not HTTP/2 at all",
    lambda s: headers(s, (":status", "400"), HTML, last=True),
    lambda s: headers(s, (":status", "503"), HTML, last=True),
    lambda _: goaway(0),
    lambda _: b"",
    lambda _: None,
]


@pytest.mark.parametrize("answer", LOST)
def test_what_grpc_says_itself_is_never_the_certain_end_of_a_call(tmp_path: Path, answer: Answer) -> None:
    error = failed(tmp_path, answer, timeout=1.0)
    assert not is_over(error)
    for may_reschedule in (False, True):
        outcome = of_failure(error, may_reschedule=may_reschedule)
        assert isinstance(outcome, MaybeRunning) or (isinstance(outcome, Refused) and outcome.doubtful)


@pytest.mark.parametrize("code", [Code.RESOURCE_EXHAUSTED, Code.INTERNAL, Code.UNIMPLEMENTED, Code.PERMISSION_DENIED])
def test_what_the_driver_says_stays_its_word(tmp_path: Path, code: Code) -> None:
    number = list(Code).index(code)
    for answer in (
        lambda s: head(s) + trailers(s, number, "Stream removed (Socket closed)"),
        lambda s: headers(s, (":status", "200"), ("grpc-status", str(number)), ("grpc-message", "no room"), last=True),
        lambda s: head(s) + trailers(s, number, "no room") + reset(s, 8),
        lambda s: head(s) + message(s, CREATED) + trailers(s, number, "no room"),
        lambda s: head(s, **{f"x{n}": "y" * 2**18 for n in range(3)}) + trailers(s, number, "no room"),
    ):
        error = failed(tmp_path, answer)
        assert (type(error), error.code) == (DriverError, code)
        kind = NoSpaceHere if code is Code.RESOURCE_EXHAUSTED else Refused
        assert type(of_failure(error, may_reschedule=True)) is kind


@pytest.mark.parametrize("rpc", [CREATE, DELETE], ids=lambda rpc: rpc.name)
@pytest.mark.parametrize("answer", [
    lambda s: head(s) + trailers(s, 0),
    lambda s: head(s) + message(s, b"", claims=5) + trailers(s, 0),
    lambda s: head(s) + message(s, CREATED, flag=7) + trailers(s, 0),
], ids=["no message", "half a message", "an unknown flag"])  # fmt: skip
def test_OK_without_a_message_is_a_bad_answer(tmp_path: Path, rpc: object, answer: Answer) -> None:
    """gRPC returns None then, and raises nothing."""
    error = failed(tmp_path, answer, rpc=rpc)
    assert isinstance(error, BadAnswer)
    assert "OK but without a message" in error.message


@pytest.mark.parametrize("length", [LARGEST_ANSWER, 5_000_000])
def test_an_answer_that_is_too_large_says_nothing_of_space(tmp_path: Path, length: int) -> None:
    """The driver has made the volume by then."""

    async def main() -> DriverError:
        large = pb.Volume(volume_id="v", volume_context={"a": "b" * length})
        async with FakeDriver(tmp_path / "csi.sock", volume=large) as driver, connection(tmp_path / "csi.sock") as (door, _, _):
            await door.first_ready()
            with pytest.raises(DriverError) as caught:
                await door.driver.create_volume(CreateRequest("v", 1, ()))
            assert driver.count("CreateVolume") == 1
        return caught.value

    error = run(main())
    assert error.code is Code.INTERNAL and isinstance(of_failure(error, may_reschedule=True), MaybeRunning)
