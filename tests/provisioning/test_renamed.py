"""The flags for names of volumes change while a creation is under way: what was begun under the old name is seen to before the claim gets a
volume under the new one."""

from dataclasses import replace
from typing import Any

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.model.names import SELECTED_NODE
from sidecar.model.objects import Json
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from tests.harness import samples
from tests.harness.provisioning.bench import UID, rpc, run
from tests.harness.provisioning.journal import JournalInMemory
from tests.harness.provisioning.room import KeepingKube, OpenDriver, Room, settle, show

MADE = CreatedVolume("id", 100)
OLD, NEW = "test-testi", "new-test"
CHANGED = {"volume_name_prefix": "new", "volume_name_uuid_length": 4}
OURS = {"driver": samples.DRIVER, "volumeHandle": f"id-{OLD}"}


async def refuse(begun: CreationRecord) -> str:
    return "no room on the disk"


def restarted(*answers: CreatedVolume | Exception, **changed: Any) -> Room:
    """One process dies between CreateVolume and the store; the next one has other flags, and a minute has passed."""
    kube, paper = KeepingKube(), JournalInMemory()
    claim = samples.claim_json(annotations={SELECTED_NODE: samples.NODE})
    before = Room(driver=OpenDriver(creates=[rpc(Code.DEADLINE_EXCEEDED)]), kube=kube, paper=paper)
    before.show(claim).see(class_=samples.class_())
    before.claim()
    after = Room(driver=OpenDriver(creates=list(answers), own_handles=True), kube=kube, paper=paper, options=CHANGED | changed)
    after.show(claim).see(class_=samples.class_())
    assert run(after.room.take_over()) == [UID]
    assert settle(after) == after.now + 60.0 and not after.driver.asked
    after.now += 60.0
    return after


def stored(room: Room) -> list[str]:
    return [name for plural, name in room.kube.objects if plural == "persistentvolumes"]


def of_the_old_name(**changes: Any) -> Json:
    return samples.volume_json(meta={"name": OLD}, spec={"csi": OURS}, **changes)


def calls(room: Room) -> list[str]:
    return [f"{method} {getattr(what, 'name', what)}" for method, what in room.driver.asked]


def test_what_the_old_name_has_goes_before_the_claim_gets_the_new_one() -> None:
    room = restarted(MADE, MADE)
    settle(room)
    assert calls(room) == [f"create {OLD}", f"delete id-{OLD}", f"create {NEW}"]
    assert stored(room) == [NEW] and not room.paper.lines


def test_while_the_old_name_is_open_nothing_is_made_under_the_new_one() -> None:
    room = restarted(rpc(Code.ABORTED), MADE, MADE)
    until = settle(room)
    assert calls(room) == [f"create {OLD}"] and room.paper.lines
    assert until is not None
    room.now = until
    settle(room)
    assert stored(room) == [NEW] and not room.paper.lines


def test_a_claim_whose_volume_has_the_old_name_keeps_it() -> None:
    """The process before this one has stored it, and did not live to write that down."""
    room = show(restarted(), of_the_old_name())
    assert settle(room) is None
    assert not room.driver.asked and stored(room) == [OLD] and not room.paper.lines
    settle(room)
    assert not room.driver.asked, "also once nothing is on record"


def looks(room: Room, most: int = 30) -> int:
    """Looks at the claim whenever it is due, until it has a volume. Returns how often."""
    for number in range(most):
        if stored(room):
            return number
        room.now += 600.0
        settle(room)
    raise AssertionError(f"the claim has no volume after {most} looks")


def test_an_old_name_that_the_driver_never_finds_does_not_keep_the_claim_for_ever() -> None:
    for code in [Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.INTERNAL]:
        room = restarted(*[rpc(code)] * 10, MADE)
        looks(room)
        assert calls(room) == [f"create {OLD}"] * 10 + [f"create {NEW}"] and stored(room) == [NEW]
        assert room.value("csi_node_sidecar_suspected_leaks_total") == 1
        assert any("leftovers` lists it" in event[3] for event in room.told.events)
        assert [(line.request.name, bool(line.suspect)) for line in room.paper.lines.values()] == [(OLD, True)]


def test_an_old_volume_that_the_driver_does_not_delete_does_not_keep_the_claim_for_ever() -> None:
    for code in [Code.INTERNAL, Code.DEADLINE_EXCEEDED, Code.FAILED_PRECONDITION]:
        room = restarted(*[MADE] * 12)
        room.driver.deletes = [rpc(code)] * 30
        looks(room)
        assert calls(room).count(f"delete id-{OLD}") == 10 and calls(room)[-1] == f"create {NEW}"
        assert stored(room) == [NEW] and room.value("csi_node_sidecar_suspected_leaks_total") == 1


def test_the_user_is_told_what_the_claim_waits_for() -> None:
    room = restarted(rpc(Code.ABORTED))
    room.claim()
    assert OLD in room.said() and "as flags were then" in room.said()


def flags_taken_back(*answers: CreatedVolume | Exception, deletes: list[Exception | None]) -> Room:
    """What was begun under the old name could not be deleted, and was left to people; then the flags were taken back."""
    kube, paper = KeepingKube(), JournalInMemory()
    claim = samples.claim_json(annotations={SELECTED_NODE: samples.NODE})
    first = Room(driver=OpenDriver(creates=[rpc(Code.DEADLINE_EXCEEDED)]), kube=kube, paper=paper)
    first.show(claim).see(class_=samples.class_())
    first.claim()
    (line,) = paper.lines.values()
    paper.lines = {each.key: each for each in [replace(line, suspect="it could not be deleted", deletion=BegunDeletion(f"id-{OLD}"))]}
    room = Room(driver=OpenDriver(creates=list(answers), deletes=deletes, own_handles=True), kube=kube, paper=paper)
    room.show(claim).see(class_=samples.class_())
    run(room.room.take_over())
    return room


def test_when_flags_are_taken_back_a_deletion_that_may_still_happen_ends_before_the_claim_is_given_the_volume() -> None:
    room = flags_taken_back(MADE, deletes=[rpc(Code.DEADLINE_EXCEEDED), None])
    settle(room)
    assert calls(room) == [f"delete id-{OLD}"] and not stored(room)
    room.now += 60.0
    settle(room)
    assert calls(room)[1:] == [f"delete id-{OLD}", f"create {OLD}"] and stored(room) == [OLD] and not room.paper.lines


def test_what_was_left_to_people_stays_on_record_when_its_name_cannot_be_begun_anew() -> None:
    room = flags_taken_back(MADE, deletes=[None])
    begin, room.paper.begin = room.paper.begin, refuse  # type: ignore[method-assign]
    settle(room)
    assert not room.driver.asked
    room.paper.begin = begin  # type: ignore[method-assign]
    assert room.table.records.suspects() == 1
    room.now += 60.0
    settle(room)
    assert calls(room) == [f"delete id-{OLD}", f"create {OLD}"] and not room.paper.lines


def test_a_driver_that_does_not_survive_the_old_name_does_not_keep_the_claim_for_ever() -> None:
    room = restarted(MADE)
    record = room.table.records.get(UID)
    assert record is not None
    room.room._losses.remember(record.call, 10, room.now)
    settle(room)
    room.now += 600.0
    settle(room)
    assert calls(room) == [f"create {NEW}"] and stored(room) == [NEW]
    assert room.value("csi_node_sidecar_suspected_leaks_total") == 1


def test_a_volume_that_somebody_else_made_under_another_name_does_not_end_what_is_begun_here() -> None:
    """Another process with other flags runs here for a moment. What is begun is seen to when the claim is bound to the other, or gone."""
    for is_gone in (False, True):
        room = Room(driver=OpenDriver(creates=[rpc(Code.DEADLINE_EXCEEDED), MADE], own_handles=True), options=CHANGED)
        room.show(samples.claim_json(annotations={SELECTED_NODE: samples.NODE})).see(class_=samples.class_())
        room.claim()
        show(room, of_the_old_name())
        if is_gone:
            room.delete_claim()
        room.now += 60.0
        settle(room)
        if not is_gone:
            assert calls(room) == [f"create {NEW}"] and [line.request.name for line in room.paper.lines.values()] == [NEW]
            room.show(samples.claim_json(annotations={SELECTED_NODE: samples.NODE}, volumeName=OLD))
            settle(room)
        assert calls(room)[1:] == [f"create {NEW}", f"delete id-{NEW}"] and stored(room) == [OLD] and not room.paper.lines
