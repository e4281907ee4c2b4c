"""Statuses that gRPC makes on our side, row by row, each as gRPC really makes it; and beside them the driver's own."""

import gzip
import time
from pathlib import Path

import pytest

from csi_proto import csi_pb2 as pb
from sidecar.csi.api import CreateRequest
from sidecar.csi.channel import LARGEST_OTHER, Wire
from sidecar.csi.driver import CREATE, DELETE, Caller
from sidecar.csi.outcome import BadAnswer, Code, DriverError, MaybeRunning, NoSpaceHere, Refused, Unheard, of_failure
from sidecar.csi.unheard import STATUSES, failure
from tests.harness.driver.frames import Answer, answering, goaway, head, headers, message, nonsense, reset, trailers
from tests.harness.driver.in_loop import FakeDriver, connection
from tests.harness.loops import run

LARGE = b"\0" * (LARGEST_OTHER + 1)
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


# By row of the table: answers after which the driver may have made the volume, and the code that gRPC gives them.
OURS: dict[str, list[tuple[Code, Answer]]] = {
    "Stream removed (": [
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s) + message(s, LARGE) + trailers(s, 0)),
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s) + message(s, b"", claims=2**31)),
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s, **{f"x{n}": "y" * 2**18 for n in range(3)}) + message(s, CREATED) + trailers(s, 0)),
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s) + message(s, CREATED) + trailers(s, 0, "y" * (LARGEST_OTHER + 1))),
        (Code.INTERNAL, lambda s: head(s, grpc_encoding="zstd") + message(s, CREATED, flag=1) + trailers(s, 0)),
        (Code.INTERNAL, lambda s: head(s) + trailers(s, "none")),
        (Code.INTERNAL, nonsense),
        (Code.UNKNOWN, lambda s: head(s) + message(s, CREATED, last=True)),
        (Code.UNKNOWN, lambda _: b"not HTTP/2 at all"),
        (Code.INTERNAL, lambda s: reset(s, 0)),
        (Code.INTERNAL, lambda s: head(s) + message(s, CREATED) + reset(s, 2)),
        (Code.UNAVAILABLE, lambda s: reset(s, 7)),
        (Code.CANCELLED, lambda s: reset(s, 8)),
        (Code.RESOURCE_EXHAUSTED, lambda s: reset(s, 11)),
        (Code.PERMISSION_DENIED, lambda s: reset(s, 12)),
        (Code.UNAVAILABLE, lambda _: goaway(0)),
        (Code.UNAVAILABLE, lambda _: None),
    ],
    "CLIENT: Received message larger than max": [
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s, grpc_encoding="gzip") + message(s, gzip.compress(LARGE), flag=1) + trailers(s, 0)),
    ],
    "Decompressed message larger than max": [
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s, grpc_encoding="gzip") + message(s, gzip.compress(LARGE * 2), flag=1) + trailers(s, 0)),
    ],
    "Decompression failed": [
        (Code.INTERNAL, lambda s: head(s, grpc_encoding="gzip") + message(s, b"no gzip", flag=1) + trailers(s, 0)),
    ],
    "Compression bit set but no encoding configured": [
        (Code.INTERNAL, lambda s: head(s) + message(s, CREATED, flag=1) + trailers(s, 0)),
    ],
    "Received http2 header with status: ": [
        (Code.INTERNAL, lambda s: headers(s, (":status", "400"), HTML, last=True)),
        (Code.UNAUTHENTICATED, lambda s: headers(s, (":status", "401"), HTML, last=True)),
        (Code.PERMISSION_DENIED, lambda s: headers(s, (":status", "403"), HTML, last=True)),
        (Code.UNIMPLEMENTED, lambda s: headers(s, (":status", "404"), HTML, last=True)),
        (Code.UNKNOWN, lambda s: headers(s, (":status", "500"), HTML, last=True)),
        (Code.UNAVAILABLE, lambda s: headers(s, (":status", "503"), HTML, last=True)),
    ],
    "Deadline Exceeded": [(Code.DEADLINE_EXCEEDED, lambda _: b"")],
    # What gRPC says in the driver's process comes as a status like the driver's.
    "SERVER: Sent message larger than max": [
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s) + trailers(s, 8, "SERVER: Sent message larger than max (9 vs. 8)")),
    ],
    "grpc: trying to send message larger than max": [
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s) + trailers(s, 8, "grpc: trying to send message larger than max (9 vs. 8)")),
    ],
    "trying to send message larger than max": [
        (Code.RESOURCE_EXHAUSTED, lambda s: head(s) + trailers(s, 8, "trying to send message larger than max (9 vs. 8)")),
    ],
}  # fmt: skip
EACH = [
    pytest.param(row, code, answer, id=f"{row}-{code.value}-{number}")
    for row, cases in OURS.items()
    for number, (code, answer) in enumerate(cases)
]


def test_each_row_has_its_answers() -> None:
    assert set(OURS) == set(STATUSES)
    assert all(cases for cases in OURS.values())


@pytest.mark.parametrize(("row", "code", "answer"), EACH)
def test_what_grpc_says_itself_is_not_the_drivers_word(tmp_path: Path, row: str, code: Code, answer: Answer) -> None:
    error = failed(tmp_path, answer, timeout=0.2 if row == "Deadline Exceeded" else 60.0)
    assert (type(error), error.code) == (Unheard, code)
    assert row in error.message
    for may_reschedule in (False, True):
        assert type(of_failure(error, may_reschedule=may_reschedule)) is MaybeRunning


@pytest.mark.parametrize("code", [Code.RESOURCE_EXHAUSTED, Code.INTERNAL, Code.UNIMPLEMENTED, Code.PERMISSION_DENIED])
def test_what_the_driver_says_stays_its_word(tmp_path: Path, code: Code) -> None:
    number = list(Code).index(code)
    for answer in (
        lambda s: head(s) + trailers(s, number, "no room"),
        lambda s: headers(s, (":status", "200"), ("grpc-status", str(number)), ("grpc-message", "no room"), last=True),
        lambda s: head(s) + trailers(s, number, "no room") + reset(s, 8),
        lambda s: head(s) + message(s, CREATED) + trailers(s, number, "no room"),
    ):
        error = failed(tmp_path, answer)
        assert (type(error), error.code, error.message) == (DriverError, code, "no room")
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


def test_an_answer_that_the_drivers_grpc_does_not_send(tmp_path: Path) -> None:
    """The driver has made the volume by then."""

    async def main() -> DriverError:
        driver = FakeDriver(tmp_path / "csi.sock", volume=pb.Volume(volume_id="v" * 100_000))
        await driver.start(("grpc.max_send_message_length", 1000))
        async with connection(tmp_path / "csi.sock") as (door, _, _):
            await door.first_ready()
            with pytest.raises(DriverError) as caught:
                await door.driver.create_volume(CreateRequest("v", 1, ()))
        assert driver.count("CreateVolume") == 1
        await driver.stop()
        return caught.value

    error = run(main())
    assert isinstance(error, Unheard) and "SERVER: Sent message larger than max" in error.message


def test_the_beginning_of_a_status_decides() -> None:
    """A driver may hand on what its own client was told: then nobody knows what was done."""
    assert type(failure(Code.RESOURCE_EXHAUSTED, "Stream removed (Socket closed)")) is Unheard
    assert type(failure(Code.RESOURCE_EXHAUSTED, "the pool's Stream removed (x)")) is DriverError
