"""The driver behind its socket: as a process that is killed, and in the loop of the test."""

import asyncio
import contextlib
import gc
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from csi_proto import csi_pb2 as pb
from sidecar.csi.outcome import Code
from sidecar.simulation.calls import Call, Reception, read_calls
from sidecar.simulation.driver import LocalDriver
from sidecar.simulation.faults import parse_fault, write_faults
from sidecar.simulation.serve_driver import main, serving
from sidecar.simulation.spec import MIB, Spec
from sidecar.simulation.state import read_state
from tests.contract_driver.served import process, serve_driver

WRITER = pb.VolumeCapability(mount=pb.VolumeCapability.MountVolume(), access_mode=pb.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"))


def create(name: str = "pvc-1", **fields: Any) -> pb.CreateVolumeRequest:
    return pb.CreateVolumeRequest(name=name, volume_capabilities=[WRITER], **fields)


class Client:
    """Bare gRPC, so that nothing of ours stands between the test and the wire."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def ask(self, method: str, request: Message, answer: Any, *, timeout: float = 5.0) -> Any:
        call = self._channel.unary_unary(f"/csi.v1.{method}", type(request).SerializeToString, answer.FromString)
        return await call(request, timeout=timeout)

    async def create(self, request: pb.CreateVolumeRequest, *, timeout: float = 5.0) -> pb.CreateVolumeResponse:
        answer: pb.CreateVolumeResponse = await self.ask("Controller/CreateVolume", request, pb.CreateVolumeResponse, timeout=timeout)
        return answer

    async def code(self, call: Coroutine[Any, Any, Any]) -> str:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"


@contextlib.asynccontextmanager
async def client(endpoint: Path) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(f"unix:{endpoint}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Client(channel)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await main
        # gRPC's servers clean up when they are collected, and then need the loop they were made in.
        gc.collect()
        await asyncio.sleep(0.01)

    asyncio.run(limited())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # what is waited for is a file of another process
            await asyncio.sleep(0.02)


def test_killed_in_the_middle_of_a_creation(tmp_path: Path) -> None:
    """Before the effect there is no volume; after it, with the answer lost, there is, and asking again finds it."""
    endpoint, state, calls, faults = (tmp_path / name for name in ("csi.sock", "state", "calls", "faults"))
    command = serve_driver(endpoint, f"--state={state}", f"--calls={calls}", f"--faults={faults}")
    write_faults(faults, [parse_fault("CreateVolume:names=early,delay=60"), parse_fault("CreateVolume:names=late,linger=60")])

    async def first_life(child: "subprocess.Popen[bytes]") -> None:
        async with client(endpoint) as driver:
            await driver.create(create("whole"))
            waiting = [asyncio.ensure_future(driver.code(driver.create(create(name)))) for name in ("early", "late")]
            await until(lambda: len(read_state(state).volumes) == 2 and len(_creations(calls)) == 3)
            child.send_signal(signal.SIGKILL)
            assert await asyncio.gather(*waiting) == ["UNAVAILABLE", "UNAVAILABLE"]

    async def second_life() -> None:
        async with client(endpoint) as driver:
            before = {volume.name: volume.id for volume in read_state(state).volumes.values()}
            assert sorted(before) == ["late", "whole"]
            answers = {name: (await driver.create(create(name))).volume.volume_id for name in ("whole", "late", "early")}
            assert before.items() <= answers.items()
            assert len(set(answers.values())) == 3

    with process(command, endpoint=endpoint, log=tmp_path / "log-1") as child:
        run(first_life(child))
    assert endpoint.is_socket(), "a killed driver leaves its socket behind"
    write_faults(faults, [])
    with process(command, endpoint=endpoint, log=tmp_path / "log-2") as child:
        run(second_life())
        child.terminate()
        assert child.wait(5) == 0
    assert [(call.name, call.code) for call in _creations(calls)] == [
        *[("whole", Code.OK), ("early", None), ("late", None)],
        *[("whole", Code.OK), ("late", Code.OK), ("early", Code.OK)],
    ]
    assert (tmp_path / "log-2").read_text() == f"serving local.csi-node-sidecar.io for node node-a on {endpoint}\n"


def _creations(calls: Path) -> list[Call]:
    return [call for call in read_calls(calls) if call.method == "CreateVolume"]


def test_a_caller_whose_deadline_passes_is_answered_by_nobody_but_the_work_goes_on(tmp_path: Path) -> None:
    async def scene() -> None:
        driver = LocalDriver(Spec(node_id="node-a"))
        async with serving(driver, tmp_path / "csi.sock") as reception, client(tmp_path / "csi.sock") as caller:
            reception.faults.set([parse_fault("CreateVolume:times=1,delay=0.5")])
            assert await caller.code(caller.create(create(), timeout=0.2)) == "DEADLINE_EXCEEDED"
            assert await caller.code(caller.create(create())) == "ABORTED"
            assert driver.volumes() == ()
            await until(driver.volumes)
            assert await caller.code(caller.create(create())) == "OK"
            assert len(driver.volumes()) == 1
            assert [call.code for call in reception.record.calls] == [Code.CANCELLED, Code.ABORTED, Code.OK]

    run(scene())


def test_every_code_arrives_with_its_message(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            serving(LocalDriver(Spec(node_id="node-a")), tmp_path / "csi.sock") as reception,
            client(tmp_path / "csi.sock") as caller,
        ):
            for code in Code:
                if code is Code.OK:
                    continue
                reception.faults.set([parse_fault(f"CreateVolume:fail={code.name},message=because, simply")])
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await caller.create(create())
                assert (caught.value.code().name, caught.value.details()) == (code.name, "because, simply")

    run(scene())


def test_secrets_do_not_reach_the_record(tmp_path: Path) -> None:
    async def scene() -> None:
        reception = Reception()
        async with (
            serving(LocalDriver(Spec(node_id="node-a")), tmp_path / "csi.sock", reception=reception),
            client(tmp_path / "csi.sock") as caller,
        ):
            await caller.create(create(secrets={"key": "hunter2"}, capacity_range=pb.CapacityRange(required_bytes=5)))
        (call,) = reception.record.calls
        assert "hunter2" not in str(call)
        assert call.request["capacity_range"] == {"required_bytes": 5}

    run(scene())


@pytest.mark.parametrize(
    "capability",
    [
        pb.VolumeCapability(access_mode=pb.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER")),
        pb.VolumeCapability(mount=pb.VolumeCapability.MountVolume()),
        pb.VolumeCapability(mount=pb.VolumeCapability.MountVolume(), access_mode=pb.VolumeCapability.AccessMode.FromString(b"\x08\x63")),
    ],
)
def test_a_capability_that_says_too_little_is_invalid(tmp_path: Path, capability: pb.VolumeCapability) -> None:
    async def scene() -> None:
        async with serving(LocalDriver(Spec(node_id="node-a")), tmp_path / "csi.sock"), client(tmp_path / "csi.sock") as caller:
            request = pb.CreateVolumeRequest(name="pvc-1", volume_capabilities=[capability])
            assert await caller.code(caller.create(request)) == "INVALID_ARGUMENT"

    run(scene())


def test_probe_is_ready_after_a_while(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            serving(LocalDriver(Spec(node_id="node-a")), tmp_path / "csi.sock", ready_after=0.3),
            client(tmp_path / "csi.sock") as caller,
        ):
            start, ready = time.monotonic(), False
            while not ready:
                ready = (await caller.ask("Identity/Probe", pb.ProbeRequest(), pb.ProbeResponse)).ready.value
            assert time.monotonic() - start > 0.25

    run(scene())


def test_options_reach_the_driver(tmp_path: Path) -> None:
    endpoint = tmp_path / "csi.sock"
    options = ("--no-topology", "--no-capacity", "--no-multi-writer", "--probe-error=INTERNAL", "--pool=fast=5Gi", "--max-size=1Gi")

    async def scene() -> None:
        async with client(endpoint) as caller:
            assert await caller.code(caller.ask("Identity/Probe", pb.ProbeRequest(), pb.ProbeResponse)) == "INTERNAL"
            assert (
                await caller.code(caller.ask("Controller/GetCapacity", pb.GetCapacityRequest(), pb.GetCapacityResponse)) == "UNIMPLEMENTED"
            )
            too_large = create(capacity_range=pb.CapacityRange(required_bytes=1024 * MIB + 1))
            assert await caller.code(caller.create(too_large)) == "OUT_OF_RANGE"
            info = await caller.ask("Node/NodeGetInfo", pb.NodeGetInfoRequest(), pb.NodeGetInfoResponse)
            assert (info.node_id, info.HasField("accessible_topology")) == ("node-a", False)
            claimed = await caller.ask(
                "Identity/GetPluginCapabilities", pb.GetPluginCapabilitiesRequest(), pb.GetPluginCapabilitiesResponse
            )
            assert [item.service.type for item in claimed.capabilities] == [pb.PluginCapability.Service.CONTROLLER_SERVICE]

    with process(serve_driver(endpoint, *options), endpoint=endpoint, log=tmp_path / "log"):
        run(scene())


@pytest.mark.parametrize(
    "bad", ["--pool=fast", "--pool=fast=much", "--topology=zone", "--fault=CreateVolume", "--max-size=1", "--probe-error=OK", "--node-id="]
)
def test_bad_options_are_told_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"--endpoint={tmp_path / 'csi.sock'}", "--node-id=node-a", bad])
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_only_a_socket_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "csi.sock").write_text("precious")
    assert main([f"--endpoint={tmp_path / 'csi.sock'}", "--node-id=node-a"]) == 1
    assert "is no socket" in capsys.readouterr().err
    assert (tmp_path / "csi.sock").read_text() == "precious"


def test_a_path_too_long_for_a_socket_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--endpoint={tmp_path / ('x' * 108)}", "--node-id=node-a"]) == 1
    assert "too long" in capsys.readouterr().err
