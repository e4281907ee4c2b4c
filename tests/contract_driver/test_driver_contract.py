"""What our rooms rely on from any driver, through our own door: held by our served driver and by Kubernetes' Go mock driver.

The titles below are the promises in the docstrings of `csi.api.Driver`. What drivers may do differently is not asserted.
"""

import asyncio
import contextlib
import functools
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.lib.control_plane import binaries
from sidecar.csi import api
from sidecar.csi.api import Capability, CapacityQuery, CreateRequest, DriverInfo
from sidecar.csi.driver import DriverConnection, GrpcDriver
from sidecar.csi.outcome import Code, DriverError
from tests.harness.driver.served import process, serve_driver

GIB = 2**30
CALL_SECONDS = 5.0
WRITER = Capability("SINGLE_NODE_WRITER", fs_type="ext4")


@dataclass(frozen=True)
class Served:
    """A running driver and what its makers say of it."""

    endpoint: Path
    name: str
    topology_key: str


def _ours(endpoint: Path) -> tuple[list[str], Served]:
    return serve_driver(endpoint), Served(endpoint, "local.csi-node-sidecar.io", "topology.local.csi-node-sidecar.io/node")


def _go_mock(endpoint: Path) -> tuple[list[str], Served]:
    binary = binaries("mock-driver") / "mock-driver"
    return [str(binary), f"--endpoint={endpoint}", "--node-id=node-a"], Served(
        endpoint, "mock.csi-node-sidecar.io", "io.kubernetes.storage.mock/node"
    )


@pytest.fixture(params=[_ours, pytest.param(_go_mock, marks=pytest.mark.real_api)], ids=["ours", "go-mock"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    command, driver = request.param(tmp_path / "csi.sock")
    with process(command, endpoint=driver.endpoint, log=tmp_path / "log"):
        yield driver


@contextlib.asynccontextmanager
async def connected(endpoint: Path) -> AsyncIterator[GrpcDriver]:
    connection = DriverConnection(str(endpoint), call_timeout=CALL_SECONDS, on_state=lambda _: None, on_call=lambda *_: None)
    moving = asyncio.create_task(connection.run())
    try:
        await connection.first_ready()
        yield connection.driver
    finally:
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
        await connection.close()


def with_driver(scene: Callable[[GrpcDriver], Awaitable[None]]) -> Callable[[Served], None]:
    @functools.wraps(scene)
    def test(served: Served) -> None:
        async def main() -> None:
            async with asyncio.timeout(30), connected(served.endpoint) as driver:
                await scene(driver)
            gc.collect()
            await asyncio.sleep(0.01)

        asyncio.run(main())

    del test.__wrapped__  # pytest would look for the scene's own parameter
    return test


def wanted(name: str, size: int = GIB, *, driver: GrpcDriver) -> CreateRequest:
    own = (driver.info.segment,)
    return CreateRequest(name=name, required_bytes=size, capabilities=(WRITER,), requisite=own, preferred=own)


async def refusal(call: Awaitable[object]) -> Code:
    with pytest.raises(DriverError) as caught:
        await call
    return caught.value.code


def test_it_says_who_and_where_it_is(served: Served) -> None:
    async def ask() -> DriverInfo:
        async with asyncio.timeout(30), connected(served.endpoint) as driver:
            return driver.info

    info = asyncio.run(ask())
    assert (info.name, info.node_id) == (served.name, "node-a")
    assert info.version
    assert info.plugin >= {api.CONTROLLER_SERVICE, api.TOPOLOGY}
    assert info.controller >= {api.CREATE_DELETE_VOLUME, api.GET_CAPACITY}
    assert list(info.segment.labels()) == [served.topology_key]


@with_driver
async def test_a_volume_has_an_id_and_at_least_the_size_that_was_asked_for(driver: GrpcDriver) -> None:
    volume = await driver.create_volume(wanted("pvc-size", GIB + 1, driver=driver))
    assert volume.volume_id
    assert volume.capacity_bytes >= GIB + 1 or volume.capacity_bytes == 0
    assert not volume.has_source


@with_driver
async def test_a_volume_says_that_this_node_reaches_it(driver: GrpcDriver) -> None:
    volume = await driver.create_volume(wanted("pvc-where", driver=driver))
    assert any(segment.within(driver.info.segment) for segment in volume.topologies)


@with_driver
async def test_asking_again_for_a_name_gives_the_same_volume(driver: GrpcDriver) -> None:
    first = await driver.create_volume(wanted("pvc-again", driver=driver))
    assert await driver.create_volume(wanted("pvc-again", driver=driver)) == first
    assert (await driver.create_volume(wanted("pvc-other", driver=driver))).volume_id != first.volume_id


@with_driver
async def test_a_name_never_gives_a_volume_that_is_too_small(driver: GrpcDriver) -> None:
    await driver.create_volume(wanted("pvc-larger", GIB, driver=driver))
    assert await refusal(driver.create_volume(wanted("pvc-larger", 2 * GIB, driver=driver))) is Code.ALREADY_EXISTS


@with_driver
async def test_a_request_without_a_name_or_a_use_is_invalid(driver: GrpcDriver) -> None:
    assert await refusal(driver.create_volume(wanted("", driver=driver))) is Code.INVALID_ARGUMENT
    useless = CreateRequest(name="pvc-useless", required_bytes=GIB, capabilities=())
    assert await refusal(driver.create_volume(useless)) is Code.INVALID_ARGUMENT


@with_driver
async def test_deleting_twice_is_deleting(driver: GrpcDriver) -> None:
    volume = await driver.create_volume(wanted("pvc-gone", driver=driver))
    for _ in range(2):
        await driver.delete_volume(volume.volume_id)
    await driver.delete_volume("never-was-there")
    assert await refusal(driver.delete_volume("")) is Code.INVALID_ARGUMENT


@with_driver
async def test_after_its_deletion_a_name_is_free(driver: GrpcDriver) -> None:
    first = await driver.create_volume(wanted("pvc-free", GIB, driver=driver))
    await driver.delete_volume(first.volume_id)
    second = await driver.create_volume(wanted("pvc-free", 2 * GIB, driver=driver))
    assert second.capacity_bytes >= 2 * GIB
    assert second.volume_id != first.volume_id


@with_driver
async def test_many_at_once_are_as_many_volumes(driver: GrpcDriver) -> None:
    names = [f"pvc-{number}" for number in range(20)]
    volumes = await asyncio.gather(*(driver.create_volume(wanted(name, driver=driver)) for name in names))
    assert len({volume.volume_id for volume in volumes}) == len(names)


@with_driver
async def test_a_driver_that_claims_capacity_tells_it_of_its_own_segment(driver: GrpcDriver) -> None:
    answer = await driver.get_capacity(CapacityQuery(segment=driver.info.segment))
    assert answer.available > 0
    assert answer.maximum is None or answer.maximum > 0
    if answer.maximum is not None:
        await driver.create_volume(wanted("pvc-largest", min(answer.maximum, answer.available), driver=driver))


@with_driver
async def test_a_driver_that_claims_lists_has_what_it_has_made_in_them(driver: GrpcDriver) -> None:
    if api.LIST_VOLUMES not in driver.info.controller:
        return
    made = await driver.create_volume(wanted("pvc-1", driver=driver))
    assert made.volume_id in await driver.list_volumes()
    await driver.delete_volume(made.volume_id)
    assert made.volume_id not in await driver.list_volumes()
