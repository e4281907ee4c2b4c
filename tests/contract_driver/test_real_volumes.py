"""The served driver with real volumes, as a kubelet meets it: mounts are seen by others, outlive the driver, and end with the machine."""

import asyncio
import itertools
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from csi_proto import csi_pb2 as pb
from hack.sim.driver.state import read_state
from tests.harness.driver.served import process, serve_driver
from tests.harness.mounting import Namespace, namespace, namespaces_or_skip

pytestmark = pytest.mark.real_api
WRITER = pb.VolumeCapability(mount=pb.VolumeCapability.MountVolume(), access_mode=pb.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"))
MIB = 2**20


class Node:
    """The folders of a node, which outlive its reboots."""

    def __init__(self, folder: Path) -> None:
        self.volumes, self.target, self.endpoint, self.log = (folder / name for name in ("volumes", "pod", "csi.sock", "log"))

    def driver(self, machine: Namespace) -> Any:
        command = machine.inside(*serve_driver(self.endpoint, f"--volumes={self.volumes}", "--pool=standard=1Gi"))
        return process(command, endpoint=self.endpoint, log=self.log)

    def ask(self, method: str, request: Message, answer: Any) -> Any:
        async def call() -> Any:
            async with grpc.aio.insecure_channel(f"unix:{self.endpoint}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                bare = channel.unary_unary(f"/csi.v1.{method}", type(request).SerializeToString, answer.FromString)
                return await bare(request, timeout=5.0)

        return asyncio.run(call())

    def create(self) -> str:
        request = pb.CreateVolumeRequest(name="pvc-1", volume_capabilities=[WRITER], capacity_range=pb.CapacityRange(required_bytes=MIB))
        answer: str = self.ask("Controller/CreateVolume", request, pb.CreateVolumeResponse).volume.volume_id
        return answer

    def publish(self, volume: str) -> None:
        request = pb.NodePublishVolumeRequest(volume_id=volume, target_path=str(self.target), volume_capability=WRITER)
        self.ask("Node/NodePublishVolume", request, pb.NodePublishVolumeResponse)

    def unpublish(self, volume: str) -> None:
        request = pb.NodeUnpublishVolumeRequest(volume_id=volume, target_path=str(self.target))
        self.ask("Node/NodeUnpublishVolume", request, pb.NodeUnpublishVolumeResponse)

    def delete(self, volume: str) -> None:
        self.ask("Controller/DeleteVolume", pb.DeleteVolumeRequest(volume_id=volume), pb.DeleteVolumeResponse)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    namespaces_or_skip()
    yield Node(tmp_path)


def test_data_outlives_the_driver_and_the_machine(node: Node) -> None:
    with namespace() as machine:
        with node.driver(machine) as child:
            volume = node.create()
            node.publish(volume)
            machine.seen(node.target / "file").write_text("data")
            assert (node.volumes / volume / "file").read_text() == "data"
            child.send_signal(signal.SIGKILL)
            child.wait(5)
        with node.driver(machine):
            assert machine.seen(node.target / "file").read_text() == "data", "a mount is the kernel's, not the driver's"
            node.publish(volume)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                node.delete(volume)
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    with namespace() as machine, node.driver(machine):
        assert list(machine.seen(node.target).iterdir()) == [], "the reboot has ended the mount"
        node.publish(volume)
        assert machine.seen(node.target / "file").read_text() == "data"
        node.unpublish(volume)
        assert not node.target.exists()
        node.delete(volume)
    assert [path.name for path in node.volumes.iterdir()] == [".journal"]
    assert node.log.read_text().splitlines()[1:] == []


def test_killed_among_creations_and_deletions_nothing_is_left_over(node: Node) -> None:
    """What a kill leaves on the disk is what the next driver has to live with."""
    for answers in (5, 12, 23, 38):
        with namespace() as machine:
            with node.driver(machine) as child:
                asyncio.run(_storm(node, kill_after=answers, kill=child.kill))
                child.wait(5)
            with node.driver(machine):
                known = read_state(node.volumes / ".journal").volumes
                assert {path.name for path in node.volumes.iterdir()} == {*known, ".journal"}
                assert known, "nothing was made before the driver was killed"
                for volume in known:
                    node.delete(volume)


async def _storm(node: Node, *, kill_after: int, kill: Callable[[], None]) -> None:
    """Creations and deletions, four at a time, until the driver is killed among them."""
    answered = itertools.count(1)

    async def caller(number: int, ask: Callable[..., Awaitable[Any]]) -> None:
        for turn in itertools.count():
            answer = await ask(
                "CreateVolume",
                pb.CreateVolumeRequest(name=f"pvc-{kill_after}-{number}-{turn}", volume_capabilities=[WRITER]),
                pb.CreateVolumeResponse,
            )
            if turn % 2:
                await ask("DeleteVolume", pb.DeleteVolumeRequest(volume_id=answer.volume.volume_id), pb.DeleteVolumeResponse)

    async with grpc.aio.insecure_channel(f"unix:{node.endpoint}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:

        async def ask(method: str, request: Message, answers: Any) -> Any:
            bare = channel.unary_unary(f"/csi.v1.Controller/{method}", type(request).SerializeToString, answers.FromString)
            answer = await bare(request, timeout=60.0)
            if next(answered) == kill_after:
                kill()
            return answer

        ends = await asyncio.gather(*(caller(number, ask) for number in range(4)), return_exceptions=True)
    assert all(isinstance(end, grpc.aio.AioRpcError) and end.code() is grpc.StatusCode.UNAVAILABLE for end in ends), ends
