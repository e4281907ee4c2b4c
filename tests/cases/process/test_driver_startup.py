"""Section 2 of the provisioning cases, as far as the driver's door decides them. Times are shares of a limit made short."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from sidecar.csi.api import CreateRequest
from sidecar.csi.link import Lost, Ready
from sidecar.csi.outcome import Code, DriverError
from sidecar.errors import Fatal
from tests.harness.driver.in_loop import PLUGIN, QUICK, FakeDriver, becomes, connection
from tests.harness.loops import run, until

START = 1.2
SECOND = START / 30  # of the real thing
REQUEST = CreateRequest(name="pvc-1", required_bytes=100, capabilities=())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "csi.sock"


async def start_with(driver: FakeDriver, *, after: float) -> str:
    """The text it gave up with; empty when it became ready."""
    async with connection(driver.path, limits=replace(QUICK, start=START)) as (door, _, _):
        late = asyncio.create_task(_later(driver, after))
        try:
            await door.first_ready()
        except Fatal as error:
            return str(error)
        finally:
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)
            await driver.stop()
    return ""


async def _later(driver: FakeDriver, after: float) -> None:
    await asyncio.sleep(after)
    await driver.start()


def test_S1_a_socket_after_20_s(path: Path) -> None:
    assert run(start_with(FakeDriver(path), after=20 * SECOND)) == ""


def test_S1_a_socket_after_40_s(path: Path) -> None:
    text = run(start_with(FakeDriver(path), after=40 * SECOND))
    assert f"within {START:g} s: {path} does not exist" in text
    assert "--csi-address" in text


@pytest.mark.parametrize(("make", "kind"), [(Path.mkdir, "a directory"), (Path.touch, "a regular file")], ids=["directory", "regular file"])
def test_S1_what_is_no_socket_is_called_so(path: Path, make: Callable[[Path], None], kind: str) -> None:
    async def main() -> None:
        make(path)
        async with connection(path, limits=replace(QUICK, start=0.2)) as (_, _, task):
            with pytest.raises(Fatal, match=f"is no socket but {kind}"):
                await task

    run(main())


def test_S3_an_empty_name(path: Path) -> None:
    assert "GetPluginInfo with an empty name" in run(start_with(FakeDriver(path, name=""), after=0.0))


def test_S3_an_error_instead_of_a_name(path: Path) -> None:
    driver = FakeDriver(path, fails={"GetPluginInfo": (grpc.StatusCode.INTERNAL, "no idea")})
    assert "failed GetPluginInfo at start: rpc error: code = Internal desc = no idea" in run(start_with(driver, after=0.0))


def test_S6_a_driver_without_topology_starts(path: Path) -> None:
    assert run(start_with(FakeDriver(path, plugin=[PLUGIN.CONTROLLER_SERVICE]), after=0.0)) == ""


def test_S8_a_lost_driver_comes_back_in_the_process(path: Path) -> None:
    async def main() -> None:
        async with FakeDriver(path) as driver, connection(path) as (door, seen, task):
            await door.first_ready()
            for _ in range(3):
                await driver.stop()
                await becomes(seen, Lost)
                with pytest.raises(DriverError) as caught:
                    await door.driver.create_volume(REQUEST)
                assert caught.value.code is Code.UNAVAILABLE
                await asyncio.sleep(0.1)
                assert not task.done()
                await driver.start()
                await becomes(seen, Ready)
                await door.driver.create_volume(REQUEST)
            changes = [name for before, name in zip(["", *seen.names], seen.names, strict=False) if name != before]
            assert changes == ["Waiting", "Probing", "Reading", "Ready"] + ["Lost", "Probing", "Reading", "Ready"] * 3

    run(main())


async def come_back_changed(path: Path, change: Callable[[FakeDriver], None], *, topology: bool = True) -> str:
    driver = FakeDriver(path)
    await driver.start()
    async with connection(path, topology=topology) as (door, seen, task):
        await door.first_ready()
        await driver.stop()
        await becomes(seen, Lost)
        change(driver)
        await driver.start()
        await until(lambda: task.done() or isinstance(seen.states[-1], Ready))
        with contextlib.suppress(asyncio.TimeoutError):
            try:
                await asyncio.wait_for(asyncio.shield(task), 0.05)
            except Fatal as error:
                return str(error)
            finally:
                await driver.stop()
    return ""


def test_S8_another_name_ends_the_process(path: Path) -> None:
    text = run(come_back_changed(path, lambda driver: setattr(driver, "name", "other-driver")))
    assert "its name was 'test-driver' and is now 'other-driver'" in text


def test_S8_another_topology_ends_the_process(path: Path) -> None:
    text = run(come_back_changed(path, lambda driver: setattr(driver, "segments", {"rack": "b"})))
    assert "topology was 'topology.test/node=node-1' and is now 'rack=b'" in text


def test_S8_another_node_ends_the_process(path: Path) -> None:
    assert "the node's id was" in run(come_back_changed(path, lambda driver: setattr(driver, "node_id", "node-2")))


def test_S8_topology_that_nobody_uses_may_change(path: Path) -> None:
    assert run(come_back_changed(path, lambda driver: setattr(driver, "segments", {"rack": "b"}), topology=False)) == ""
