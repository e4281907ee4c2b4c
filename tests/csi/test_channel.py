"""The socket itself, against a real server."""

import asyncio
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from csi_proto import csi_pb2 as pb
from sidecar.csi import channel
from sidecar.csi.link import Connected, ConnectFailed, Disconnected
from sidecar.errors import Fatal
from tests.harness.driver.in_loop import FakeDriver
from tests.harness.loops import real, run, until
from tests.harness.open_files import no_more_files

PATIENT = 60.0
PROBE = "/csi.v1.Identity/Probe"


def wire_to(path: Path, *, grace: float = 2.0, recheck: float = 0.02) -> channel.Wire:
    return channel.Wire(str(path), grace=grace, recheck=recheck)


async def refused(path: Path, *, patience: float = PATIENT) -> str:
    wire = wire_to(path)
    event = await wire.connect(patience)
    await wire.close()
    assert isinstance(event, ConnectFailed)
    assert str(path) in event.why
    return event.why.replace(str(path), "PATH")


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/csi/csi.sock", "/csi/csi.sock"),
        ("unix:///csi/csi.sock", "/csi/csi.sock"),
        ("unix:/csi/csi.sock", "/csi/csi.sock"),
        ("unix:csi.sock", "csi.sock"),
    ],
)
def test_F5_addresses(address: str, path: str) -> None:
    assert channel.socket_path(address) == path


@pytest.mark.parametrize("address", ["dns:///x", "tcp://127.0.0.1:1", "localhost:1", "csi.sock", "unix", ""])
def test_F5_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(Fatal, match="is no unix socket"):
        channel.socket_path(address)


def test_a_missing_socket(tmp_path: Path) -> None:
    assert run(refused(tmp_path / "csi.sock")) == "PATH does not exist"
    assert run(refused(tmp_path / "no" / "csi.sock")) == "PATH does not exist"


def test_no_socket_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    assert run(refused(tmp_path)) == "PATH is no socket but a directory"
    assert run(refused(tmp_path / "file")) == "PATH is no socket but a regular file"
    assert run(refused(tmp_path / "pipe")) == "PATH is no socket but something else"
    assert run(refused(tmp_path / "file" / "csi.sock")) == "PATH cannot be reached (Not a directory)"


def test_a_socket_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "csi.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert run(refused(path)) == "nobody listens on PATH (a socket left behind by a driver that ended)"


def test_a_socket_that_does_not_speak(tmp_path: Path) -> None:
    path = tmp_path / "csi.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        assert "did not answer on one for 0.2 s" in run(refused(path, patience=0.2))


def test_a_socket_that_speaks_something_else(tmp_path: Path) -> None:
    async def main() -> str:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 welcome to something else\r\n")
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_unix_server(greet, path):
            return await refused(path)

    path = tmp_path / "csi.sock"
    assert run(main()) == "what listens on PATH does not speak gRPC"


@pytest.mark.parametrize("spare", [0, 4])
@real
async def test_without_files_to_spare_no_channel_is_opened(tmp_path: Path, spare: int) -> None:
    path = tmp_path / "csi.sock"

    driver = FakeDriver(path)
    await driver.start()
    with no_more_files(spare):
        assert "cannot be connected to (Too many open files" in await refused(path)
    assert await connects(str(path))
    await driver.stop()


async def connects(path: str) -> bool:
    wire = channel.Wire(path, grace=1.0)
    event = await wire.connect(PATIENT)
    await wire.close()
    return event == Connected()


@real
async def test_a_killed_driver_is_noticed_without_a_call(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path / "csi.sock")
    await driver.start()
    wire = wire_to(driver.path, recheck=60.0)
    assert await wire.connect(PATIENT) == Connected()
    watch = asyncio.create_task(wire.broken())
    await asyncio.sleep(0.05)
    assert not watch.done()
    await driver.stop()
    assert await watch == Disconnected(f"the connection to the driver at {driver.path} was lost")
    await wire.close()


@real
async def test_a_socket_replaced_under_a_living_driver_is_noticed(tmp_path: Path) -> None:
    old, new = FakeDriver(tmp_path / "csi.sock"), FakeDriver(tmp_path / "csi.sock")
    await old.start()
    wire = wire_to(old.path)
    assert await wire.connect(PATIENT) == Connected()
    watch = asyncio.create_task(wire.broken())
    old.path.unlink()
    await asyncio.sleep(0.1)
    assert not watch.done()  # a socket that is merely gone still serves those who are connected
    await new.start()
    assert "replaced by another socket" in (await watch).why
    assert await wire.connect(PATIENT) == Connected()
    await wire.unary(PROBE, b"", timeout=PATIENT)
    assert (old.calls, new.calls) == ([], ["Probe"])
    await wire.close()
    await new.stop()
    await old.stop()


@real
async def test_calls_on_a_replaced_connection_come_to_their_end(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path / "csi.sock", held={"Probe"})
    await driver.start()
    wire = wire_to(driver.path)
    await wire.connect(PATIENT)
    call = asyncio.create_task(wire.unary(PROBE, b"", timeout=PATIENT))
    await until(lambda: driver.running == 1)
    assert await wire.connect(PATIENT) == Connected()
    driver.let_go.set()
    assert await call == pb.ProbeResponse().SerializeToString()
    await wire.close()
    await driver.stop()


def test_a_threaded_server_sees_a_plain_authority(tmp_path: Path) -> None:
    """Servers written in Go refuse what gRPC would send by itself: the percent-encoded path."""
    seen: list[str] = []

    def probe(_request: bytes, context: Any) -> bytes:
        seen.append(context._rpc_event.call_details.host.decode())
        return b""

    async def main() -> None:
        wire = wire_to(tmp_path / "csi.sock")
        assert await wire.connect(PATIENT) == Connected()
        await wire.unary(PROBE, b"", timeout=PATIENT)
        await wire.close()

    server = grpc.server(ThreadPoolExecutor(1))
    handler: Any = grpc.unary_unary_rpc_method_handler(probe)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("csi.v1.Identity", {"Probe": handler}),))
    server.add_insecure_port(f"unix:{tmp_path / 'csi.sock'}")
    server.start()
    run(main())
    server.stop(0).wait()
    assert seen == ["localhost"]
