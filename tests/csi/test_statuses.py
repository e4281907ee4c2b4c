"""What gRPC says where the driver's answer is lost, as it really says it: by its code alone nothing is known of what the driver did."""

import gzip
import time
from pathlib import Path

import pytest

from csi_proto import csi_pb2 as pb
from sidecar.csi.api import CreateRequest
from sidecar.csi.channel import LARGEST_ANSWER, Wire
from sidecar.csi.driver import CREATE, DELETE, Caller
from sidecar.csi.outcome import BadAnswer, Code, DriverError, MaybeRunning, NoSpaceHere, Refused, is_over, of_failure
from tests.harness.driver.frames import Answer, answering, goaway, head, headers, message, nonsense, reset, trailers
from tests.harness.driver.in_loop import FakeDriver, connection
from tests.harness.loops import run

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
