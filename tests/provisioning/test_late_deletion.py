"""A DeleteVolume whose outcome is not known may still happen: nobody is given the volume until the driver has said how it ended.

The driver is the simulated one, which goes on with a deletion that nobody waits for any more.
"""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.driver.calls import Reception
from hack.sim.driver.faults import Fault, Faults
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.spec import Spec
from hack.sim.world.doors import NodeDriver
from hack.sim.world.life import Life
from hack.sim.world.network import Network, Weather
from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError, NotSent, Unheard
from sidecar.model.names import SELECTED_NODE
from sidecar.model.objects import Json
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from tests.harness import samples
from tests.harness.provisioning.bench import UID, rpc
from tests.harness.provisioning.journal import JournalInMemory
from tests.harness.provisioning.room import KeepingKube, OpenDriver, Room, room_for, settle

DEADLINE, LATE = 10.0, 60.0
SMALL, RIGHT = CreatedVolume("small", 99), CreatedVolume("right", 100)
REQUEST = CreateRequest("test-testi", 100, ())
LOST_ANSWER = Fault(method="CreateVolume", times=1, lose=Code.DEADLINE_EXCEEDED)
LATE_DELETION = Fault(method="DeleteVolume", times=1, delay=LATE)


@dataclass
class Node:
    """A driver that lives as long as the test, and processes beside it, one after the other."""

    faults: list[Fault] = field(default_factory=lambda: [LOST_ANSWER, LATE_DELETION])
    kube: KeepingKube = field(default_factory=KeepingKube)
    paper: JournalInMemory = field(default_factory=JournalInMemory)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec = Spec(node_id=samples.NODE, name=samples.DRIVER, topology={samples.KEY: samples.NODE}, unit=1, pools={"standard": 1000})
        self.local = LocalDriver(spec)
        self.reception = Reception(faults=Faults(self.faults))
        self.process = self.begin_process()

    def begin_process(self) -> Room:
        weather = Network(random.Random(0), Weather())
        driver: Any = NodeDriver(self.local, self.reception, Life(1), network=weather, timeout=DEADLINE, tell=self.told.append)
        self.process = Room(driver=driver, kube=self.kube, paper=self.paper).see(class_=samples.class_())
        return self.process

    def show_claim(self, node: str) -> None:
        self.process.show(samples.claim_json(annotations={SELECTED_NODE: node}))

    async def live(self, seconds: float) -> None:
        """Looks at the claim whenever the room wants to, as the loop does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            self.process.now = loop.time()
            again = await self.process.room.handle_claim(UID)
            await asyncio.sleep(max(0.0, min(end, end if again is None else again) - loop.time()))

    async def lose_the_claim(self) -> None:
        """A volume is made for it; then another node has it, and the deletion of the volume takes long."""
        self.show_claim(samples.NODE)
        await self.live(1.0)
        self.show_claim("bar")
        await self.live(DEADLINE + 5.0)
        assert self.asked("DeleteVolume") and len(self.local.volumes()) == 1

    def asked(self, method: str) -> int:
        return sum(call.method == method for call in self.reception.record.calls)

    def stored(self) -> list[Json]:
        return [obj for (plural, _), obj in self.kube.objects.items() if plural == "persistentvolumes"]

    def assert_whole(self) -> None:
        """The claim has a PersistentVolume, and a volume is behind it."""
        (stored,) = self.stored()
        assert [volume.id for volume in self.local.volumes()] == [stored["spec"]["csi"]["volumeHandle"]]
        assert not self.paper.lines


def play(story: Coroutine[Any, Any, None]) -> None:
    run_virtual(story, limit=10_000.0)


def test_a_volume_whose_deletion_may_still_happen_is_given_to_nobody() -> None:
    async def story() -> None:
        node = Node()
        await node.lose_the_claim()
        node.show_claim(samples.NODE)
        before = node.asked("CreateVolume")
        await node.live(20.0)
        assert (node.asked("CreateVolume"), node.stored()) == (before, [])
        await node.live(LATE * 3)
        node.assert_whole()

    play(story())


def test_nor_by_the_next_process() -> None:
    async def story() -> None:
        node = Node()
        await node.lose_the_claim()
        node.begin_process()
        assert await node.process.room.take_over() == [UID]
        node.show_claim(samples.NODE)
        await node.live(20.0)
        assert not node.stored()
        await node.live(LATE * 3)
        node.assert_whole()

    play(story())


UNCERTAIN = [rpc(Code.DEADLINE_EXCEEDED), rpc(Code.ABORTED), rpc(Code.INTERNAL), Unheard(Code.NOT_FOUND, "")]


@pytest.mark.parametrize("error", UNCERTAIN, ids=lambda error: error.code.value)
def test_a_deletion_without_a_certain_end_is_asked_for_until_it_has_one(error: DriverError) -> None:
    bench = room_for(driver=OpenDriver(creates=[SMALL, RIGHT], deletes=[error, error, None]))
    assert [bench.claim(), bench.claim()] == [101.0, 102.0]
    assert [method for method, _ in bench.driver.asked] == ["create", "delete", "delete"]
    assert "the deletion of volume 'small' was begun, and CSI driver test-driver has not said how it ended" in bench.said()
    bench.now = 102.0
    assert settle(bench) is None
    assert [method for method, _ in bench.driver.asked] == ["create", "delete", "delete", "delete", "create"]
    assert bench.kube.wrote_volume()["spec"]["csi"]["volumeHandle"] == "right"


def test_a_deletion_that_is_refused_is_over() -> None:
    bench = room_for(driver=OpenDriver(creates=[SMALL, RIGHT], deletes=[rpc(Code.FAILED_PRECONDITION)]))
    bench.claim()
    assert [record.deletion for record in bench.paper.lines.values()] == [None]
    assert settle(bench) is None
    assert [method for method, _ in bench.driver.asked] == ["create", "delete", "create"]


def test_one_that_was_not_sent_leaves_things_as_they_were() -> None:
    away = NotSent(Code.UNAVAILABLE, "away")
    bench = room_for(driver=OpenDriver(creates=[SMALL], deletes=[away, rpc(Code.ABORTED), away]))
    bench.claim()
    assert [record.deletion for record in bench.paper.lines.values()] == [None]
    bench.claim()
    bench.claim()
    assert [record.deletion for record in bench.paper.lines.values()] == [BegunDeletion("small")]


@pytest.mark.parametrize("answer", [RIGHT, rpc(Code.RESOURCE_EXHAUSTED)], ids=["a volume", "no room"])
def test_a_deletion_learnt_of_while_the_driver_is_asked_counts_too(answer: CreatedVolume | DriverError) -> None:
    """Two processes share a node for a while, and the one that dies has begun to delete what the other is just given."""
    bench = room_for(driver=OpenDriver(creates=[answer, RIGHT]))
    dead = JournalInMemory({UID: CreationRecord(UID, "fake-ns", "fake-pvc", "fake-class", REQUEST, deletion=BegunDeletion("right"))})
    create = bench.driver.create_volume

    async def meanwhile(request: CreateRequest, **secrets: Any) -> CreatedVolume:
        bench.driver.create_volume = create  # type: ignore[method-assign]
        bench.room.creations.journal = dead
        await bench.room.take_over()
        bench.room.creations.journal = bench.paper
        return await create(request, **secrets)

    bench.driver.create_volume = meanwhile  # type: ignore[method-assign]
    bench.claim()
    assert not bench.kube.wrote("create")
    bench.show(samples.claim_json(annotations={SELECTED_NODE: samples.NODE}))
    settle(bench)
    assert [method for method, _ in bench.driver.asked] == ["create", "delete", "create"]
    assert len(bench.kube.wrote("create")) == 1 and bench.paper.lines == {}
