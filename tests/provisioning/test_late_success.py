"""A driver that goes on with a creation of which it has not answered in time, and denies meanwhile that there is anything: what it makes in
the end is found, also where the claim has gone elsewhere."""

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code, NotSent
from sidecar.model.names import SELECTED_NODE
from tests.harness import samples
from tests.harness.provisioning.bench import UID, rpc, run
from tests.harness.provisioning.room import OpenDriver, Room, room_for, settle

LATE, NO_ROOM, AWAY = rpc(Code.DEADLINE_EXCEEDED), rpc(Code.RESOURCE_EXHAUSTED), NotSent(Code.UNAVAILABLE, "away")
MADE = CreatedVolume("test-volume-id", 100)
TIMEOUT = 10.0


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
