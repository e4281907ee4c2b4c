"""What once leaked a volume, deleted somebody's, or waited for ever: each was found by a test and mended."""

import pytest

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.api import Change
from sidecar.model.objects import Volume
from tests import samples
from tests.cases.room import OpenDriver, Room, room_for, secret
from tests.provisioning.test_controller import rpc, run
from tests.provisioning.test_secrets import NAME, NAMESPACE


def begun_and_unknown(answer: CreatedVolume | Code, **room: str) -> Room:
    """The first attempt may have made a volume; the next one is answered like that."""
    creates = [rpc(Code.DEADLINE_EXCEEDED), rpc(answer) if isinstance(answer, Code) else answer]
    made = room_for(driver=OpenDriver(creates=list(creates)), parameters=room)
    made.add("secrets", secret("a", "fake-ns", key="value"))
    made.claim()
    assert made.paper.lines
    return made


def test_a_volume_that_was_left_alone_because_another_one_uses_it_is_left_alone_when_its_claim_goes() -> None:
    room = room_for(driver=OpenDriver(creates=[CreatedVolume("shared", 99)]))
    used = samples.volume_json(
        meta={"name": "another"},
        spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "shared"}, "claimRef": {"uid": "o", "namespace": "n", "name": "other"}},
        status={"phase": "Bound"},
    )
    room.add("persistentvolumes", used).see(volume=Volume.of(used))
    room.claim()
    assert "left alone" in room.said()
    room.delete_claim()
    room.claim()
    assert room.driver.count("delete") == 0, "it is somebody's data"


@pytest.mark.parametrize("answer", [Code.ALREADY_EXISTS, Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE])
def test_a_refusal_of_a_changed_class_says_nothing_of_what_the_former_one_has_made(answer: Code) -> None:
    room = begun_and_unknown(answer)
    room.see(class_=samples.class_(metadata={"name": "fake-class", "uid": "another"}, parameters={"pool": "slow"}))
    room.claim()
    assert room.paper.lines


def test_what_may_have_been_made_for_a_claim_that_is_gone_does_not_wait_for_its_class_to_come_back() -> None:
    room = begun_and_unknown(CreatedVolume("test-volume-id", 100))
    room.delete_claim()
    room.caches.classes.apply(Change("fake-class", None, None))
    for _ in range(5):
        room.now = max(room.now, room.claim() or 0.0)
    assert not room.paper.lines
    assert room.driver.count("delete") == 1


def test_a_secret_that_went_with_the_claim_does_not_keep_its_volume() -> None:
    first = begun_and_unknown(Code.DEADLINE_EXCEEDED, **{NAME: "a", NAMESPACE: "fake-ns"})
    room = Room(driver=OpenDriver(), paper=first.paper)
    run(room.room.take_over())
    for _ in range(8):
        room.now = max(room.now, room.claim() or 0.0)
    assert room.driver.count("delete") == 1
    assert not room.paper.lines
