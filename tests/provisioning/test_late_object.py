"""A PersistentVolume that a dead process has sent arrives while the next one looks for its volume. That one may be deleted by then, so what
the call makes, which has not ended, is another volume."""

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.api import Change
from sidecar.model.objects import Volume
from sidecar.provisioning.creations.creation_record import from_line, to_line
from tests.harness import samples
from tests.harness.provisioning.bench import rpc, run
from tests.harness.provisioning.journal import JournalInMemory
from tests.harness.provisioning.room import OpenDriver, Room, room_for, show

LATE, NO_ROOM = rpc(Code.DEADLINE_EXCEEDED), rpc(Code.RESOURCE_EXHAUSTED)
ITS_OWN, ANOTHER = CreatedVolume("test-volume-id", 100), CreatedVolume("made-late", 100)
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


def test_what_the_call_makes_after_that_is_found_and_deleted() -> None:
    room = arrives(looks(NO_ROOM, ANOTHER))
    room.claim_when_due()
    assert [line.shown for line in room.paper.lines.values()] == ["test-volume-id"] and not room.driver.count("delete")
    goes(room)
    to_the_end(room)
    assert room.driver.asked[-1] == ("delete", "made-late") and not room.paper.lines


def test_the_next_process_goes_on_with_that() -> None:
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
    room = arrives(looks(NO_ROOM, ITS_OWN))
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
