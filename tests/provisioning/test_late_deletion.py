"""A DeleteVolume whose outcome is not known may still happen: nobody is given the volume until the driver has said how it ended."""

from typing import Any

import pytest

from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError, NotSent
from sidecar.model.names import SELECTED_NODE
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from tests.harness import samples
from tests.harness.provisioning.bench import UID, rpc, run
from tests.harness.provisioning.journal import JournalInMemory
from tests.harness.provisioning.room import OpenDriver, room_for, settle

SMALL, RIGHT = CreatedVolume("small", 99), CreatedVolume("right", 100)
REQUEST = CreateRequest("test-testi", 100, ())


UNCERTAIN = [rpc(Code.DEADLINE_EXCEEDED), rpc(Code.ABORTED), rpc(Code.INTERNAL), rpc(Code.UNAVAILABLE)]


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


def test_nor_does_the_next_process_give_it_to_anybody() -> None:
    before = room_for(driver=OpenDriver(creates=[SMALL], deletes=[rpc(Code.DEADLINE_EXCEEDED)]))
    before.claim()
    room = room_for(driver=OpenDriver(creates=[RIGHT], deletes=[rpc(Code.ABORTED), None]), kube=before.kube, paper=before.paper)
    assert run(room.room.take_over()) == [UID]
    room.claim()
    assert room.driver.asked == [("delete", "small")] and not room.kube.wrote("create")
    room.claim_when_due()
    assert settle(room) is None
    assert [method for method, _ in room.driver.asked] == ["delete", "delete", "create"] and not room.paper.lines


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
