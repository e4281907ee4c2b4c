"""The driver behind its socket: as a process that is killed, and in the loop of the test."""

import asyncio
import contextlib
import gc
import os
import signal
import socket as socketlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from csi_proto import csi_pb2 as pb
from csi_proto import plugin_registration_pb2 as kubelet
from hack.sim.driver.calls import Call, Reception, read_calls
from hack.sim.driver.faults import parse_fault, write_faults
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.options import read_options
from hack.sim.driver.serve import main, serving
from hack.sim.driver.spec import MIB, Spec
from hack.sim.driver.state import read_state
from sidecar.csi.outcome import Code
from tests.harness.driver.served import process, serve_driver
from tests.harness.mounting import namespaces_or_skip

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
    assert (tmp_path / "log-2").read_text() == f"serve_driver: serving local.csi-node-sidecar.io for node node-a on {endpoint}\n"


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


def test_a_node_plugin_claims_a_controller_that_it_does_not_serve(tmp_path: Path) -> None:
    endpoint = tmp_path / "csi.sock"

    async def scene() -> None:
        async with client(endpoint) as caller:
            for method, message, answer in (
                ("Controller/ControllerGetCapabilities", pb.ControllerGetCapabilitiesRequest(), pb.ControllerGetCapabilitiesResponse),
                ("Controller/CreateVolume", create(), pb.CreateVolumeResponse),
            ):
                assert await caller.code(caller.ask(method, message, answer)) == "UNIMPLEMENTED"
            claimed = await caller.ask(
                "Identity/GetPluginCapabilities", pb.GetPluginCapabilitiesRequest(), pb.GetPluginCapabilitiesResponse
            )
            assert len(claimed.capabilities) == 2
            assert (await caller.ask("Node/NodeGetInfo", pb.NodeGetInfoRequest(), pb.NodeGetInfoResponse)).node_id

    with process(serve_driver(endpoint, "--node-service-only"), endpoint=endpoint, log=tmp_path / "log"):
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
    "bad",
    [
        *("--pool=fast", "--pool=fast=much", "--topology=zone", "--fault=CreateVolume", "--max-size=1", "--probe-error=OK", "--node-id="),
        *("--capacity=much", "--capacity=1Gi --pool=fast=1Gi", "--volumes=/nowhere --node-id=zone/node"),
        *("--kubelet-registration-dir=/registration", "--kubelet-socket-path=/csi.sock"),
    ],
)
def test_bad_options_are_told_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"--endpoint={tmp_path / 'csi.sock'}", "--node-id=node-a", *bad.split()])
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "pools", "measured"),
    [
        pytest.param("", {"standard": 100 * 2**30}, False, id="a budget by default"),
        pytest.param("--capacity=5Gi", {"standard": 5 * 2**30}, False, id="a budget"),
        pytest.param("--capacity=0", {"standard": 0}, False, id="no room at all"),
        pytest.param("--volumes=/v", {"standard": 100 * 2**30}, True, id="real volumes: the disk"),
        pytest.param("--volumes=/v --capacity=5Gi", {"standard": 5 * 2**30}, False, id="real volumes with a budget"),
        pytest.param("--volumes=/v --pool=fast=1Gi", {"fast": 2**30}, False, id="real volumes with pools"),
    ],
)
def test_how_much_room_there_is_said_to_be(given: str, pools: dict[str, int], measured: bool) -> None:
    spec = read_options(["--endpoint=/e", "--node-id=n", *given.split()]).spec
    assert (spec.pools, spec.measured) == (pools, measured)


@pytest.mark.parametrize(
    ("given", "state", "fsync"),
    [
        ("", None, False),
        ("--state=/s --fsync", Path("/s"), True),
        ("--volumes=/v", Path("/v/.journal"), True),
        ("--volumes=/v --state=/s", Path("/s"), True),
    ],
)
def test_real_volumes_have_a_journal_that_is_safe(given: str, state: Path | None, fsync: bool) -> None:
    options = read_options(["--endpoint=/e", "--node-id=n", *given.split()])
    assert (options.state, options.fsync) == (state, fsync)


def test_what_does_not_agree_with_the_journal_is_said_at_the_start(tmp_path: Path) -> None:
    endpoint, volumes = tmp_path / "csi.sock", tmp_path / "volumes"
    (volumes / "node-a-vol-7" / "data").mkdir(parents=True)
    with process(serve_driver(endpoint, f"--volumes={volumes}"), endpoint=endpoint, log=tmp_path / "log"):
        pass
    assert f"serve_driver: {volumes / 'node-a-vol-7'} holds data and is no volume" in (tmp_path / "log").read_text()


def test_only_a_socket_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "csi.sock").write_text("precious")
    assert main([f"--endpoint={tmp_path / 'csi.sock'}", "--node-id=node-a"]) == 1
    assert "is no socket" in capsys.readouterr().err
    assert (tmp_path / "csi.sock").read_text() == "precious"


def test_a_path_too_long_for_a_socket_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--endpoint={tmp_path / ('x' * 108)}", "--node-id=node-a"]) == 1
    assert "too long" in capsys.readouterr().err


def test_it_stops_when_asked_before_it_has_begun(tmp_path: Path) -> None:
    with slow_to_import(tmp_path, serve_driver(tmp_path / "csi.sock")) as child:
        child.terminate()
        assert child.wait(5) == 0


@pytest.mark.slow
def test_as_process_1_it_stops_when_asked_before_it_has_begun(tmp_path: Path) -> None:
    """Without a handler the kernel keeps the signal from it, and it is killed after the pod's whole grace period."""
    namespaces_or_skip()
    of_its_own = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with slow_to_import(tmp_path, [*of_its_own, *serve_driver(tmp_path / "csi.sock")]) as outer:
        (first,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert outer.wait(5) == 0


@contextlib.contextmanager
def slow_to_import(folder: Path, command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """In the block the process has begun to import what takes its time, and gets no further."""
    (folder / "grpc.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{Path(__file__).resolve().parents[3]}"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"importing\n"
            yield child
        finally:
            child.kill()


# ---- the kubelet ----


@contextlib.contextmanager
def registered_driver(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    options = (f"--kubelet-registration-dir={folder}", "--kubelet-socket-path=/var/lib/kubelet/plugins/local/csi.sock")
    endpoint = folder / "csi.sock"
    with process(serve_driver(endpoint, *options), endpoint=endpoint, log=folder / "log") as child:
        yield child


async def kubelet_calls(socket: Path, method: str, request: Message, answer: Any) -> Any:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        path = f"/pluginregistration.Registration/{method}"
        call = channel.unary_unary(path, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString)
        return await call(request, timeout=5.0, wait_for_ready=True)


def test_the_kubelet_learns_where_the_driver_is(tmp_path: Path) -> None:
    socket = tmp_path / "local.csi-node-sidecar.io-reg.sock"
    with contextlib.closing(unix_socket(socket)):
        assert socket.is_socket(), "a killed driver leaves its socket behind"

    async def scene(child: "subprocess.Popen[bytes]") -> None:
        for _ in range(2):  # a kubelet that is started anew asks anew
            info = await kubelet_calls(socket, "GetInfo", kubelet.InfoRequest(), kubelet.PluginInfo)
            assert (info.type, info.name) == ("CSIPlugin", "local.csi-node-sidecar.io")
            assert (info.endpoint, list(info.supported_versions)) == ("/var/lib/kubelet/plugins/local/csi.sock", ["1.0.0"])
            done = kubelet.RegistrationStatus(plugin_registered=True)
            await kubelet_calls(socket, "NotifyRegistrationStatus", done, kubelet.RegistrationStatusResponse)
        assert child.poll() is None

    with registered_driver(tmp_path) as child:
        run(scene(child))
        child.terminate()
        assert child.wait(5) == 0
    assert not socket.exists()
    assert (tmp_path / "log").read_text().count("the kubelet has registered") == 2


def test_a_driver_that_the_kubelet_refuses_ends_with_its_reason(tmp_path: Path) -> None:
    socket = tmp_path / "local.csi-node-sidecar.io-reg.sock"
    no = kubelet.RegistrationStatus(plugin_registered=False, error="another driver has this name")
    with registered_driver(tmp_path) as child:
        run(kubelet_calls(socket, "NotifyRegistrationStatus", no, kubelet.RegistrationStatusResponse))
        assert child.wait(5) == 1
    assert not socket.exists()
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last == "serve_driver: the kubelet refuses to register the driver: another driver has this name"


def test_a_folder_of_registrations_that_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A short name: that of the socket has to fit into 107 bytes beneath it, wherever the tests keep their files.
    options = [f"--kubelet-registration-dir={tmp_path / 'none'}", "--kubelet-socket-path=/csi.sock", "--name=d"]
    assert main([f"--endpoint={tmp_path / 'csi.sock'}", "--node-id=node-a", *options]) == 1
    assert f"the folder {tmp_path / 'none'} for a socket is missing" in capsys.readouterr().err


def unix_socket(path: Path) -> socketlib.socket:
    bound = socketlib.socket(socketlib.AF_UNIX)
    bound.bind(str(path))
    return bound
