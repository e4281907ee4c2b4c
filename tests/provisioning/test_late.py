"""What the driver or the API server does late, when whoever has asked for it has given up, or is dead: no volume is lost sight of, and none
is deleted that somebody is given."""

from typing import Any

import pytest

from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code, DriverError, NotSent
from sidecar.kube.api import Change
from sidecar.kube.errors import Unavailable
from sidecar.model.names import SELECTED_NODE
from sidecar.model.objects import Volume
from sidecar.provisioning import progress_table
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord, from_line, to_line
from tests.harness import samples
from tests.harness.provisioning.bench import UID, rpc, run
from tests.harness.provisioning.journal import JournalInMemory
from tests.harness.provisioning.room import KeepingKube, OpenDriver, Room, room_for, settle, show

LATE, NO_ROOM, AWAY = rpc(Code.DEADLINE_EXCEEDED), rpc(Code.RESOURCE_EXHAUSTED), NotSent(Code.UNAVAILABLE, "away")
MADE = CreatedVolume("test-volume-id", 100)
TIMEOUT = 10.0


# --- a creation -------------------------------------------------------------------------------------------------------
# The driver goes on with a call that it has not answered in time, and denies meanwhile that there is anything.


def elsewhere(room: Room) -> None:
    room.show(samples.claim_json(annotations={SELECTED_NODE: "bar"}))


def denied(*later: CreatedVolume | Exception, first: Exception = LATE, denial: Exception = NO_ROOM) -> Room:
    """The driver says that there is nothing, after a call of which nobody knows how it ended."""
    room = room_for(driver=OpenDriver(creates=[first, denial, *later]))
    room.claim()
    room.claim()
    return room


def look_later(room: Room) -> float | None:
    room.now += TIMEOUT
    return settle(room)


def test_what_is_made_late_is_found_and_deleted() -> None:
    room = denied(NO_ROOM, MADE)
    elsewhere(room)
    assert settle(room) == room.now + TIMEOUT, "at once it would say the same again"
    assert room.driver.count("create") == 2
    look_later(room)
    assert room.driver.count("create") == 3 and room.paper.lines
    look_later(room)
    assert room.driver.asked[-1] == ("delete", "test-volume-id")
    assert not room.paper.lines and not room.kube.wrote("create")


def test_the_third_denial_is_believed() -> None:
    room = denied()
    elsewhere(room)
    look_later(room)
    assert room.paper.lines
    look_later(room)
    assert room.driver.count("create") == 4
    assert not room.paper.lines and room.value("csi_node_sidecar_suspected_leaks_total") == 0


def test_another_unknown_outcome_begins_the_count_anew() -> None:
    for again in [LATE, rpc(Code.ABORTED), rpc(Code.UNAVAILABLE)]:
        room = denied(NO_ROOM, again, NO_ROOM, NO_ROOM, NO_ROOM)
        elsewhere(room)
        for _ in range(4):
            look_later(room)
        assert room.driver.count("create") == 6 and room.paper.lines
        look_later(room)
        assert room.driver.count("create") == 7 and not room.paper.lines


def test_a_failure_that_says_nothing_may_go_on_too() -> None:
    """What the driver has started, such as a command of the operating system, outlives the answer."""
    for first in [rpc(Code.INTERNAL), rpc(Code.UNKNOWN), rpc(Code.DATA_LOSS)]:
        room = denied(MADE, first=first)
        elsewhere(room)
        look_later(room)
        assert room.driver.asked[-1] == ("delete", "test-volume-id") and not room.paper.lines


def test_a_claim_that_stays_gets_what_is_made_late() -> None:
    room = denied(MADE, denial=rpc(Code.FAILED_PRECONDITION))
    room.claim()
    assert room.kube.wrote_volume()["spec"]["csi"]["volumeHandle"] == "test-volume-id" and not room.paper.lines


def test_a_denial_of_a_call_that_has_ended_is_believed_at_once() -> None:
    room = room_for(driver=OpenDriver(creates=[NO_ROOM]))
    room.claim()
    assert not room.paper.lines


def test_a_call_of_the_process_before_may_take_as_long_as_its_flags_said() -> None:
    """Its driver takes minutes for a volume, and somebody has set --timeout to less meanwhile."""
    before = room_for(driver=OpenDriver(creates=[LATE]), options={"driver_timeout": 300.0})
    before.claim()
    room = Room(driver=OpenDriver(creates=[NO_ROOM]), kube=before.kube, paper=before.paper)
    elsewhere(room)
    assert run(room.room.take_over()) == [UID]
    settle(room)
    for _ in range(20):
        look_later(room)
    assert room.driver.count("create") == 1 and room.paper.lines
    for _ in range(2):
        room.now += 300.0
        settle(room)
    assert room.driver.count("create") == 3 and not room.paper.lines


def test_looks_in_between_ask_nothing_and_count_nothing() -> None:
    room = denied()
    elsewhere(room)
    for _ in range(5):
        room.claim()
    assert room.driver.count("create") == 2 and room.paper.lines


def test_a_call_that_is_not_sent_says_neither() -> None:
    room = denied(AWAY, NO_ROOM, NO_ROOM)
    elsewhere(room)
    for _ in range(2):
        look_later(room)
    assert room.paper.lines
    look_later(room)
    assert not room.paper.lines


def test_denials_that_come_quickly_count_once() -> None:
    """A claim that stays is tried again sooner than the driver's timeout."""
    room = denied(denial=rpc(Code.FAILED_PRECONDITION))
    for _ in range(5):
        room.claim()
    assert room.paper.lines
    for _ in range(2):
        room.now += TIMEOUT
        room.claim()
    assert not room.paper.lines


# --- a deletion -------------------------------------------------------------------------------------------------------
# One whose outcome is not known may still happen: nobody is given the volume until the driver has said how it ended.


SMALL, RIGHT = CreatedVolume("small", 99), CreatedVolume("right", 100)
UNCERTAIN = [LATE, rpc(Code.ABORTED), rpc(Code.INTERNAL), rpc(Code.UNAVAILABLE)]


@pytest.mark.parametrize("error", UNCERTAIN, ids=lambda error: error.code.value)
def test_a_deletion_without_a_certain_end_is_asked_for_until_it_has_one(error: DriverError) -> None:
    room = room_for(driver=OpenDriver(creates=[SMALL, RIGHT], deletes=[error, error, None]))
    assert [room.claim(), room.claim()] == [101.0, 102.0]
    assert [method for method, _ in room.driver.asked] == ["create", "delete", "delete"]
    assert "the deletion of volume 'small' was begun, and CSI driver test-driver has not said how it ended" in room.said()
    room.now = 102.0
    assert settle(room) is None
    assert [method for method, _ in room.driver.asked] == ["create", "delete", "delete", "delete", "create"]
    assert room.kube.wrote_volume()["spec"]["csi"]["volumeHandle"] == "right"


def test_nor_does_the_next_process_give_a_volume_whose_deletion_was_begun_to_anybody() -> None:
    before = room_for(driver=OpenDriver(creates=[SMALL], deletes=[LATE]))
    before.claim()
    room = room_for(driver=OpenDriver(creates=[RIGHT], deletes=[rpc(Code.ABORTED), None]), kube=before.kube, paper=before.paper)
    assert run(room.room.take_over()) == [UID]
    room.claim()
    assert room.driver.asked == [("delete", "small")] and not room.kube.wrote("create")
    room.claim_when_due()
    assert settle(room) is None
    assert [method for method, _ in room.driver.asked] == ["delete", "delete", "create"] and not room.paper.lines


def test_a_deletion_that_is_refused_is_over() -> None:
    room = room_for(driver=OpenDriver(creates=[SMALL, RIGHT], deletes=[rpc(Code.FAILED_PRECONDITION)]))
    room.claim()
    assert [record.deletion for record in room.paper.lines.values()] == [None]
    assert settle(room) is None
    assert [method for method, _ in room.driver.asked] == ["create", "delete", "create"]


def test_a_deletion_that_was_not_sent_leaves_things_as_they_were() -> None:
    room = room_for(driver=OpenDriver(creates=[SMALL], deletes=[AWAY, rpc(Code.ABORTED), AWAY]))
    room.claim()
    assert [record.deletion for record in room.paper.lines.values()] == [None]
    room.claim()
    room.claim()
    assert [record.deletion for record in room.paper.lines.values()] == [BegunDeletion("small")]


@pytest.mark.parametrize("answer", [RIGHT, rpc(Code.RESOURCE_EXHAUSTED)], ids=["a volume", "no room"])
def test_a_deletion_learnt_of_while_the_driver_is_asked_counts_too(answer: CreatedVolume | DriverError) -> None:
    """Two processes share a node for a while, and the one that dies has begun to delete what the other is just given."""
    room = room_for(driver=OpenDriver(creates=[answer, RIGHT]))
    dead = JournalInMemory(
        {
            UID: CreationRecord(
                UID, "fake-ns", "fake-pvc", "fake-class", CreateRequest("test-testi", 100, ()), deletion=BegunDeletion("right")
            )
        }
    )
    create = room.driver.create_volume

    async def meanwhile(asked: CreateRequest, **secrets: Any) -> CreatedVolume:
        room.driver.create_volume = create  # type: ignore[method-assign]
        room.room.creations.journal = dead
        await room.room.take_over()
        room.room.creations.journal = room.paper
        return await create(asked, **secrets)

    room.driver.create_volume = meanwhile  # type: ignore[method-assign]
    room.claim()
    assert not room.kube.wrote("create")
    room.show(samples.claim_json(annotations={SELECTED_NODE: samples.NODE}))
    settle(room)
    assert [method for method, _ in room.driver.asked] == ["create", "delete", "create"]
    assert len(room.kube.wrote("create")) == 1 and room.paper.lines == {}


# --- a PersistentVolume, while its volume is looked for ---------------------------------------------------------------
# A dead process has sent it. Its volume may be deleted by then, so what the call makes, which has not ended, is another one.


ANOTHER = CreatedVolume("made-late", 100)
NAME = "test-testi"


def looks(*answers: CreatedVolume | Exception) -> Room:
    """The claim is gone, and the driver has not said how the look for its volume ended."""
    first = room_for(driver=OpenDriver(creates=[LATE]))
    first.claim()
    room = Room(driver=OpenDriver(creates=[LATE, *answers]), paper=first.paper)
    run(room.room.take_over())
    room.claim()
    assert room.driver.count("create") == 1
    return room


def arrives(room: Room) -> Room:
    obj = samples.volume_json(status={"phase": "Released"})
    show(room, obj).table.seen(NAME, Volume.of(obj))
    return room


def goes(room: Room) -> None:
    room.kube.objects.pop(("persistentvolumes", NAME))
    room.caches.volumes.apply(Change(NAME, None, None))


def to_the_end(room: Room) -> None:
    for _ in range(10):
        if room.claim_when_due() is None:
            return
    raise AssertionError("it has no end")


def test_what_the_call_makes_after_its_object_has_come_is_found_and_deleted() -> None:
    room = arrives(looks(NO_ROOM, ANOTHER))
    room.claim_when_due()
    assert [line.shown for line in room.paper.lines.values()] == ["test-volume-id"] and not room.driver.count("delete")
    goes(room)
    to_the_end(room)
    assert room.driver.asked[-1] == ("delete", "made-late") and not room.paper.lines


def test_the_next_process_goes_on_with_what_the_call_may_make() -> None:
    before = arrives(looks(NO_ROOM))
    before.claim_when_due()
    paper = JournalInMemory(lines={uid: from_line(to_line(line)) for uid, line in before.paper.lines.items()})
    room = show(Room(driver=OpenDriver(creates=[NO_ROOM, ANOTHER]), paper=paper), samples.volume_json(status={"phase": "Released"}))
    run(room.room.take_over())
    room.claim()
    assert room.paper.lines
    goes(room)
    to_the_end(room)
    assert room.driver.asked[-1] == ("delete", "made-late") and not room.paper.lines


def test_its_own_volume_is_left_to_people_when_the_object_has_come_and_gone() -> None:
    """Somebody may have set it to Retain and deleted it, to keep the data."""
    room = arrives(looks(NO_ROOM, MADE))
    room.claim_when_due()
    goes(room)
    to_the_end(room)
    assert not room.driver.count("delete") and "come and gone" in room.paper.suspect().suspect


def test_another_volume_than_that_of_the_object_that_has_just_come_is_not_forgotten() -> None:
    """The call itself has made it, for that of the PersistentVolume was deleted before."""
    room = looks(ANOTHER)

    def meanwhile() -> None:
        room.add("persistentvolumes", samples.volume_json(status={"phase": "Released"}))

    room.driver.meanwhile = meanwhile
    room.claim_when_due()
    room.driver.meanwhile = lambda: None
    assert room.paper.lines and not room.driver.count("delete")
    room.kube.objects.clear()
    to_the_end(room)
    assert room.driver.asked[-1] == ("delete", "made-late") and not room.paper.lines


# --- a PersistentVolume, of whose volume the driver says meanwhile that nobody can use it -----------------------------
# It may arrive after its sender has died or given up: until then its volume is not deleted.


USABLE, TOO_SMALL = CreatedVolume("id", 100), CreatedVolume("id", 1)


def test_what_a_process_that_is_gone_has_sent() -> None:
    first = room_for(driver=OpenDriver(creates=[LATE]))
    first.claim()
    room = room_for(driver=OpenDriver(creates=[TOO_SMALL]), kube=first.kube, paper=first.paper)
    run(room.room.take_over())
    assert settle(room) == room.now + 60.0 and room.driver.count("delete") == 0
    assert "may still arrive" in room.said()
    room.now += 60.0
    settle(room)
    assert room.driver.count("delete") == 1


def test_what_this_process_has_sent_and_got_no_answer_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_table, "MOST_KEPT", 10)  # so the driver is asked again for what to store
    room = room_for(driver=OpenDriver(creates=[USABLE, TOO_SMALL]), kube=KeepingKube(failures={"create": [Unavailable("no answer")]}))
    run(room.room.take_over())
    room.now += 600.0
    until = room.claim()
    assert until is not None
    room.now = until
    assert settle(room) == room.now + 60.0 - (until - 700.0) and room.driver.count("delete") == 0
    room.now += 60.0
    settle(room)
    assert room.driver.count("delete") == 1
