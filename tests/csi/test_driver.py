"""The driver's calls and the whole connection, against a real server."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from csi_proto import csi_pb2 as pb
from sidecar.csi import outcome
from sidecar.csi.api import CONTROLLER_SERVICE, CREATE_DELETE_VOLUME, GET_CAPACITY, TOPOLOGY, CapacityAnswer, CapacityQuery, CreateRequest
from sidecar.csi.api import Driver as DriverProtocol
from sidecar.csi.driver import VERBOSE
from sidecar.csi.link import GaveUp, Lost, Probing, Reading, Ready, Waiting
from sidecar.csi.outcome import BadAnswer, Code, DriverError
from sidecar.errors import Fatal, shortened
from sidecar.model.topology import Segment
from tests.harness.driver.in_loop import FakeDriver, becomes, connection
from tests.harness.loops import real, run, until

REQUEST = CreateRequest(name="pvc-1", required_bytes=100, capabilities=())
CANARY = "canary-19c4"
CREATE = "/csi.v1.Controller/CreateVolume"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "csi.sock"


# ---- becoming ready -----------------------------------------------------------------------------------------------------


@real
async def test_the_first_ready_info(path: Path) -> None:
    async with FakeDriver(path), connection(f"unix://{path}") as (door, seen, _):
        with pytest.raises(RuntimeError, match="not been ready yet"):
            _ = door.driver.info
        info = await door.first_ready()
        assert (info.name, info.version, info.node_id) == ("test-driver", "v1", "node-1")
        assert info.plugin == {CONTROLLER_SERVICE, TOPOLOGY}
        assert info.controller == {CREATE_DELETE_VOLUME, GET_CAPACITY}
        assert info.segment == Segment((("topology.test/node", "node-1"),))
        assert door.driver.info is info
        assert door.state == Ready(info)
        assert seen.names == ["Waiting", "Probing", "Reading", "Ready"]
        assert await door.first_ready() is info
        fits: DriverProtocol = door.driver
        assert fits.info.name == "test-driver"


@real
async def test_a_driver_that_is_not_ready_is_waited_for(path: Path) -> None:
    async with FakeDriver(path, ready=False) as driver, connection(path) as (door, seen, _):
        await until(lambda: driver.count("Probe") >= 5)
        assert seen.states[-1] == Probing("the driver says that it is not ready; it is waited for without limit")
        assert driver.count("GetPluginInfo") == 0
        driver.ready = True
        await door.first_ready()
        assert seen.names == ["Waiting", "Probing", "Probing", "Reading", "Ready"]


@pytest.mark.parametrize("method", ["Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities", "NodeGetInfo"])
@real
async def test_a_driver_that_hangs_at_start_is_waited_for(path: Path, method: str) -> None:
    async with FakeDriver(path, slow={method: 60.0}) as driver, connection(path, timeout=0.1) as (door, seen, _):
        await until(lambda: seen.codes(method).count("DeadlineExceeded") >= 2)
        assert isinstance(seen.states[-1], Probing | Reading)
        driver.slow.clear()
        await door.first_ready()


@pytest.mark.parametrize(
    "trouble", [{"slow": {"Probe": 60.0}}, {"slow": {"NodeGetInfo": 60.0}}, {"ready": False}], ids=["hangs", "hangs-later", "not-ready"]
)
@real
async def test_a_driver_that_lives_on_without_ever_getting_ready_makes_way_for_the_one_that_takes_its_socket(
    path: Path, trouble: Any
) -> None:
    old, new = FakeDriver(path, **trouble), FakeDriver(path)
    await old.start()
    async with connection(path, timeout=0.1) as (door, seen, _):
        await until(lambda: old.count(next(iter(trouble.get("slow", {"Probe": 0})))) >= 2)
        await asyncio.to_thread(path.unlink)
        await new.start()
        await door.first_ready()
        assert any("replaced by another socket" in state.why for state in seen.states)
    await new.stop()
    await old.stop()


@pytest.mark.parametrize("method", ["Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities", "NodeGetInfo"])
@real
async def test_a_driver_that_fails_at_start_ends_the_process(path: Path, method: str) -> None:
    fails = {method: (grpc.StatusCode.UNIMPLEMENTED, "no such thing")}
    async with FakeDriver(path, fails=fails), connection(path) as (door, seen, task):
        with pytest.raises(Fatal) as first:
            await door.first_ready()
        with pytest.raises(Fatal) as ran:
            await task
        assert str(first.value) == str(ran.value)
        assert seen.states[-1] == GaveUp(str(ran.value))
        assert f"does not implement {method}" in str(ran.value) and "no such thing" in str(ran.value)


@real
async def test_an_unavailable_answer_is_retried(path: Path) -> None:
    """The driver itself may say UNAVAILABLE on a connection that is fine."""

    async with (
        FakeDriver(path, fails={"Probe": (grpc.StatusCode.UNAVAILABLE, "warming up")}) as driver,
        connection(path) as (door, seen, _),
    ):
        await until(lambda: driver.count("Probe") >= 3)
        assert any("warming up" in state.why for state in seen.states if isinstance(state, Waiting))
        driver.fails.clear()
        await door.first_ready()


@real
async def test_no_controller_service_and_no_controller(path: Path) -> None:
    async with (
        FakeDriver(path, plugin=[], fails={"ControllerGetCapabilities": (grpc.StatusCode.UNIMPLEMENTED, "")}),
        connection(path) as (door, _, _),
    ):
        info = await door.first_ready()
        assert (info.plugin, info.controller) == (frozenset(), frozenset())


@pytest.mark.parametrize("advertised", [True, False], ids=["advertised", "not advertised"])
@real
async def test_where_nothing_is_provisioned_the_node_service_is_enough(path: Path, advertised: bool) -> None:
    """The node sockets of central drivers advertise the controller that they have elsewhere."""

    unserved = {"ControllerGetCapabilities": (grpc.StatusCode.UNIMPLEMENTED, "unknown service")}
    async with (
        FakeDriver(path, fails=unserved) if advertised else FakeDriver(path, plugin=[], fails=unserved),
        connection(path, needs_controller=False) as (door, _, _),
    ):
        info = await door.first_ready()
        assert (info.plugin, info.controller) == ({CONTROLLER_SERVICE, TOPOLOGY} if advertised else frozenset(), frozenset())


@real
async def test_a_controller_that_fails_is_not_taken_for_one_that_is_not_there(path: Path) -> None:
    async with (
        FakeDriver(path, fails={"ControllerGetCapabilities": (grpc.StatusCode.INTERNAL, "")}),
        connection(path, needs_controller=False) as (door, _, _),
    ):
        with pytest.raises(Fatal):
            await door.first_ready()


# ---- calls --------------------------------------------------------------------------------------------------------------


@real
async def test_each_call_reaches_the_driver_and_is_counted(path: Path) -> None:
    async with FakeDriver(path) as driver, connection(path) as (door, seen, _):
        await door.first_ready()
        assert (await door.driver.create_volume(REQUEST, secrets={"a": "b"})).volume_id == "test-volume-id"
        assert driver.requests[-1].secrets == {"a": "b"}
        await door.driver.delete_volume("v", secrets={"c": "d"})
        assert driver.requests[-1] == pb.DeleteVolumeRequest(volume_id="v", secrets={"c": "d"})
        assert await door.driver.get_capacity(CapacityQuery()) == CapacityAnswer(1000)
        paths = [path for path, _, _ in seen.calls]
        assert paths[-3:] == [CREATE, "/csi.v1.Controller/DeleteVolume", "/csi.v1.Controller/GetCapacity"]
        assert paths[0] == "/csi.v1.Identity/Probe"
        assert {code for _, code, _ in seen.calls} == {"OK"}
        assert all(0.0 < seconds < 5.0 for _, _, seconds in seen.calls)


def page(*handles: str, token: str = "", **places: str) -> pb.ListVolumesResponse:
    """`places`: the node that reaches a volume, where the driver says so."""
    reach = {handle: [pb.Topology(segments={"topology.test/node": node})] for handle, node in places.items()}
    volumes = (pb.Volume(volume_id=handle, accessible_topology=reach.get(handle, ())) for handle in (*handles, *places))
    return pb.ListVolumesResponse(entries=[pb.ListVolumesResponse.Entry(volume=volume) for volume in volumes], next_token=token)


def listing(
    path: Path, *pages: pb.ListVolumesResponse, timeout: float = 60.0, **settings: Any
) -> tuple[Mapping[str, bool] | DriverError, list[str]]:
    """What a list comes to, and the tokens that were sent."""

    async def main() -> tuple[Mapping[str, bool] | DriverError, list[str]]:
        async with FakeDriver(path, pages=list(pages), **settings) as driver, connection(path, timeout=timeout) as (door, _, _):
            await door.first_ready()
            try:
                found: Mapping[str, bool] | DriverError = await door.driver.list_volumes()
            except DriverError as error:
                found = error
        asked = [request for request in driver.requests if isinstance(request, pb.ListVolumesRequest)]
        assert all(request.max_entries == 0 for request in asked), "the driver knows best"
        return found, [request.starting_token for request in asked]

    return run(main())


def test_a_list_has_all_pages_and_what_lies_here(path: Path) -> None:
    pages = page("a", token="2"), page(token="3"), page("b", here="node-1", there="node-2")
    assert listing(path, *pages) == ({"a": False, "b": False, "here": True}, ["", "2", "3"])


def test_a_volume_that_other_nodes_reach_too_is_not_here_alone(path: Path) -> None:
    both = pb.Volume(
        volume_id="both", accessible_topology=[pb.Topology(segments={"topology.test/node": name}) for name in ("node-1", "node-2")]
    )
    wide = pb.Volume(volume_id="wide", accessible_topology=[pb.Topology()])
    answer = pb.ListVolumesResponse(entries=[pb.ListVolumesResponse.Entry(volume=volume) for volume in (both, wide)])
    assert listing(path, answer)[0] == {"both": False, "wide": False}


def test_a_list_that_comes_to_no_end_is_the_drivers_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error, tokens = listing(path, page("a", token="2"), page("b", token="3"), page("c", token="2"))
    assert isinstance(error, BadAnswer) and "given before" in str(error)
    assert tokens == ["", "2", "3"]
    monkeypatch.setattr("sidecar.csi.driver.MOST_PAGES", 4)
    error, tokens = listing(path, *(page(token=str(number)) for number in range(9)))
    assert isinstance(error, BadAnswer) and "more than 4 pages" in str(error)
    assert len(tokens) == 4


def test_a_list_is_bounded_in_entries_and_handles(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver gone bad must not fill the memory of a node."""
    monkeypatch.setattr("sidecar.csi.driver.MOST_LISTED", 3)
    error, tokens = listing(path, page("a", "b", token="2"), page("c", "d", token="3"), page("e"))
    assert isinstance(error, BadAnswer) and "more than 3 volumes" in str(error)
    assert tokens == ["", "2"]
    assert listing(path, page("a", "b", token="2"), page("b", "c"))[0] == {"a": False, "b": False, "c": False}
    error, tokens = listing(path, page(token="t" * 100_000), page())
    assert isinstance(error, BadAnswer) and "next_token" in str(error) and len(str(error)) < 200 and tokens == [""]
    error, _ = listing(path, page("x" * 100_000))
    assert isinstance(error, BadAnswer) and len(str(error)) < 200


def test_a_list_is_bounded_in_the_memory_that_it_takes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lists are held at a time: what was said last, and what is being said."""
    monkeypatch.setattr("sidecar.csi.driver.MOST_MEMORY", 4500)
    error, tokens = listing(path, page("a" * 2000, token="2"), page("b" * 2000, token="3"), page("c" * 200, token="4"))
    assert isinstance(error, BadAnswer) and "more than 4500 bytes" in str(error) and tokens == ["", "2", "3"]
    assert len(listing(path, page("a" * 2000, token="2"), page("a" * 2000, token="3"), page("b" * 2000))[0]) == 2
    error, tokens = listing(path, page("中" * 1000, token="2"), page("文" * 1500, token="3"), page("c", token="4"))
    assert isinstance(error, BadAnswer) and tokens == ["", "2"], "a letter may take more than a byte"
    error, _ = listing(path, page(*(f"{number:02}" for number in range(40))))
    assert isinstance(error, BadAnswer), "and a handle more than its letters"


def test_what_is_listed_twice_is_here_alone_if_either_says_so(path: Path) -> None:
    assert listing(path, page(here="node-1", token="2"), page("here"))[0] == {"here": True}
    assert listing(path, page("here", token="2"), page(here="node-1"))[0] == {"here": True}


def test_a_list_that_fails_or_hangs_is_an_error(path: Path) -> None:
    failed, _ = listing(path, page(), fails={"ListVolumes": (grpc.StatusCode.ABORTED, "begin anew")})
    assert isinstance(failed, DriverError) and failed.code is Code.ABORTED
    hung, _ = listing(path, page(), slow={"ListVolumes": 60.0}, timeout=0.2)
    assert isinstance(hung, DriverError) and hung.code is Code.DEADLINE_EXCEEDED


@real
async def test_V9_every_status_arrives(path: Path) -> None:
    async with FakeDriver(path) as driver, connection(path) as (door, seen, _):
        await door.first_ready()
        for status in grpc.StatusCode:
            if status is grpc.StatusCode.OK:
                continue
            driver.fails = {"CreateVolume": (status, f"said {status.name}")}
            with pytest.raises(DriverError) as caught:
                await door.driver.create_volume(REQUEST)
            assert (caught.value.code.name, caught.value.message) == (status.name, f"said {status.name}")
            assert str(caught.value) == f"rpc error: code = {caught.value.code.value} desc = said {status.name}"
            assert not isinstance(caught.value, outcome.Lost)
            assert seen.calls[-1][:2] == (CREATE, caught.value.code.value)
        assert isinstance(door.state, Ready)  # an answer, even UNAVAILABLE, says nothing about the connection


@pytest.mark.parametrize("length", [9_000, 17_000, 5_000_000])
@real
async def test_V9_a_text_however_long_leaves_the_status_as_it_is(path: Path, length: int) -> None:
    """It is metadata, of which gRPC takes little unless told otherwise: what may be running must not become no room, or the reverse."""

    async with FakeDriver(path) as driver, connection(path) as (door, _, _):
        await door.first_ready()
        for status in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.ABORTED, grpc.StatusCode.INVALID_ARGUMENT):
            driver.fails = {"CreateVolume": (status, "e" * length)}
            for _ in range(5):
                with pytest.raises(DriverError) as caught:
                    await door.driver.create_volume(REQUEST)
                assert (caught.value.code.name, caught.value.message) == (status.name, shortened("e" * length))


@real
async def test_a_driver_that_hangs_later_costs_one_deadline(path: Path) -> None:
    async with FakeDriver(path, slow={"CreateVolume": 60.0}) as driver, connection(path, timeout=0.2) as (door, seen, _):
        await door.first_ready()
        with pytest.raises(DriverError) as caught:
            await door.driver.create_volume(REQUEST)
        assert caught.value.code is Code.DEADLINE_EXCEEDED
        assert seen.codes("CreateVolume") == ["DeadlineExceeded"]
        await until(lambda: driver.cancelled == 1)
        assert isinstance(door.state, Ready)


@real
async def test_V10_bad_answers(path: Path) -> None:
    async with FakeDriver(path, volume=None) as driver, connection(path) as (door, seen, _):
        await door.first_ready()
        with pytest.raises(BadAnswer, match="OK but without a volume"):
            await door.driver.create_volume(REQUEST)
        driver.raw["CreateVolume"] = b"\xff\xff\xff no message"
        with pytest.raises(BadAnswer, match="answered CreateVolume with bytes that are no CreateVolumeResponse"):
            await door.driver.create_volume(REQUEST)
        assert seen.codes("CreateVolume") == ["OK", "OK"]
        driver.raw["CreateVolume"] = pb.CreateVolumeResponse(volume=pb.Volume(volume_id="v" * 5000)).SerializeToString()
        with pytest.raises(BadAnswer, match="a volume_id of more than 4096 characters"):
            await door.driver.create_volume(REQUEST)


@real
async def test_cancelling_the_caller_cancels_the_call(path: Path) -> None:
    async with FakeDriver(path, slow={"CreateVolume": 60.0}) as driver, connection(path) as (door, _, _):
        await door.first_ready()
        call = asyncio.create_task(door.driver.create_volume(REQUEST))
        await until(lambda: driver.running == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: driver.cancelled == 1)


@real
async def test_closing_under_a_call_is_an_error_and_no_cancellation(path: Path) -> None:
    """A worker must not end because somebody closed a channel: only who cancels a task may end it."""

    driver = FakeDriver(path, slow={"CreateVolume": 60.0})
    await driver.start()
    async with connection(path) as (door, _, _):
        await door.first_ready()
        call = asyncio.create_task(door.driver.create_volume(REQUEST))
        await until(lambda: driver.running == 1)
        await door.close()
        with pytest.raises(DriverError) as caught:
            await call
        assert caught.value.code is Code.CANCELLED
    with pytest.raises(DriverError) as caught:
        await door.driver.create_volume(REQUEST)
    assert caught.value.code is Code.UNAVAILABLE
    await driver.stop()


# ---- losing the driver, and having it back ------------------------------------------------------------------------------


@real
async def test_calls_fail_at_once_while_the_driver_is_away(path: Path) -> None:
    async with connection(path) as (door, seen, _):
        with pytest.raises(DriverError) as caught:
            await door.driver.delete_volume("v")
        assert caught.value.code is Code.UNAVAILABLE
        assert caught.value.message == f"DeleteVolume was not sent, the driver is away: connecting to {path}"
        await until(lambda: any("does not exist" in state.why for state in seen.states))
        with pytest.raises(DriverError, match=r"csi\.sock does not exist"):
            await door.driver.get_capacity(CapacityQuery())
        assert seen.calls == []


@real
async def test_calls_in_flight_fail_when_the_driver_is_killed(path: Path) -> None:
    driver = FakeDriver(path, slow={"CreateVolume": 60.0})
    await driver.start()
    async with connection(path) as (door, seen, _):
        await door.first_ready()
        call = asyncio.create_task(door.driver.create_volume(REQUEST))
        await until(lambda: driver.running == 1)
        await driver.stop()
        with pytest.raises(DriverError) as caught:
            await call
        assert caught.value.code in (Code.UNAVAILABLE, Code.CANCELLED)
        assert isinstance(caught.value, outcome.Lost)
        await becomes(seen, Lost)


@real
async def test_a_graceful_stop_lets_calls_finish(path: Path) -> None:
    async with FakeDriver(path, held={"CreateVolume"}) as driver, connection(path) as (door, seen, _):
        await door.first_ready()
        call = asyncio.create_task(door.driver.create_volume(REQUEST))
        await until(lambda: driver.running == 1)
        stopping = asyncio.create_task(driver.stop(grace=60.0))
        await becomes(seen, Lost)
        assert not call.done()
        driver.let_go.set()
        assert (await call).volume_id == "test-volume-id"
        await stopping


@real
async def test_errors_after_the_start_are_retried(path: Path) -> None:
    async with FakeDriver(path) as driver, connection(path) as (door, seen, task):
        await door.first_ready()
        await driver.stop()
        driver.fails = {"NodeGetInfo": (grpc.StatusCode.INTERNAL, "half asleep")}
        await driver.start()
        await until(lambda: any("half asleep" in state.why for state in seen.states if isinstance(state, Lost)))
        assert not task.done()
        driver.fails.clear()
        await becomes(seen, Ready)


# ---- what is logged -----------------------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture, *, method: str) -> list[tuple[str, dict[str, str]]]:
    found = [(record.message, record.__dict__["fields"]) for record in caplog.records if record.levelno == VERBOSE]
    return [(message, fields) for message, fields in found if fields["method"].endswith("/" + method)]


async def create_once_well_and_once_badly(path: Path) -> None:
    async with FakeDriver(path) as driver, connection(path) as (door, _, _):
        await door.first_ready()
        await door.driver.create_volume(replace(REQUEST, parameters={"kind": "fast"}), secrets={"password": CANARY})
        await door.driver.delete_volume("v", secrets={"password": CANARY})
        driver.fails = {"CreateVolume": (grpc.StatusCode.INTERNAL, "broken disk")}
        with pytest.raises(DriverError):
            await door.driver.create_volume(REQUEST, secrets={"password": CANARY})


def test_E7_secrets_never_appear_in_logs(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1):
        run(create_once_well_and_once_badly(path))
    assert CANARY not in "".join(str(record.__dict__) for record in caplog.records)
    call, answer, second, failure = logged(caplog, method="CreateVolume")
    assert [call[0], answer[0], second[0], failure[0]] == ["GRPC call", "GRPC response", "GRPC call", "GRPC error"]
    assert json.loads(call[1]["request"]) == {
        "name": "pvc-1", "capacity_range": {"required_bytes": 100}, "parameters": {"kind": "***stripped***"}, "secrets": "***stripped***",
    }  # fmt: skip
    assert json.loads(answer[1]["response"]) == {"volume": {"capacity_bytes": 100, "volume_id": "test-volume-id"}}
    assert failure[1]["error"] == "rpc error: code = Internal desc = broken disk"


@pytest.mark.parametrize("length", [0, 500_000])
def test_E7_what_the_driver_says_of_a_secret_is_shown_to_nobody(path: Path, caplog: pytest.LogCaptureFixture, length: int) -> None:
    async def main() -> list[DriverError]:
        driver = FakeDriver(path)
        status = (grpc.StatusCode.RESOURCE_EXHAUSTED, f"login -p {CANARY} failed{'.' * length}")
        await driver.start()
        async with connection(path) as (door, _, _):
            await door.first_ready()
            driver.fails = {"CreateVolume": status, "DeleteVolume": status}
            with pytest.raises(DriverError) as created:
                await door.driver.create_volume(REQUEST, secrets={"password": CANARY})
            with pytest.raises(DriverError) as deleted:
                await door.driver.delete_volume("v", secrets={"password": CANARY})
        await driver.stop()
        return [created.value, deleted.value]

    with caplog.at_level(1):
        errors = run(main())
    assert all(error.message.startswith("login -p ***stripped*** failed") for error in errors)
    assert CANARY not in "".join(str(record.__dict__) for record in caplog.records)


@real
async def test_a_failure_keeps_nothing_of_the_call(path: Path) -> None:
    """Secrets live as long as the call: the error must not hold on to gRPC's, whose frames still hold the request."""
    async with FakeDriver(path, fails={"CreateVolume": (grpc.StatusCode.INTERNAL, "")}), connection(path) as (door, _, _):
        await door.first_ready()
        with pytest.raises(DriverError) as caught:
            await door.driver.create_volume(REQUEST, secrets={"password": CANARY})
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
