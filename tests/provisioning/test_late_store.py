"""A PersistentVolume that was sent may arrive after its sender has died or given up: until then its volume is not deleted, though the
driver now says of it that nobody can use it."""

import pytest

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.errors import Unavailable
from sidecar.model.names import SELECTED_NODE
from sidecar.provisioning import progress_table
from tests.harness import samples
from tests.harness.provisioning.bench import rpc, run
from tests.harness.provisioning.journal import JournalInMemory
from tests.harness.provisioning.room import KeepingKube, OpenDriver, Room, settle

USABLE, TOO_SMALL = CreatedVolume("id", 100), CreatedVolume("id", 1)


def begun(*answers: CreatedVolume | Exception, kube: KeepingKube, paper: JournalInMemory) -> Room:
    claim = samples.claim_json(annotations={SELECTED_NODE: samples.NODE})
    room = Room(driver=OpenDriver(creates=list(answers)), kube=kube, paper=paper)
    room.show(claim).see(class_=samples.class_())
    return room


def started(*answers: CreatedVolume | Exception, kube: KeepingKube | None = None, paper: JournalInMemory | None = None) -> Room:
    room = begun(*answers, kube=kube or KeepingKube(), paper=paper or JournalInMemory())
    run(room.room.take_over())
    return room


def test_of_a_process_that_is_gone() -> None:
    kube, paper = KeepingKube(), JournalInMemory()
    begun(rpc(Code.DEADLINE_EXCEEDED), kube=kube, paper=paper).claim()
    room = started(TOO_SMALL, kube=kube, paper=paper)
    assert settle(room) == room.now + 60.0 and room.driver.count("delete") == 0
    assert "may still arrive" in room.said()
    room.now += 60.0
    settle(room)
    assert room.driver.count("delete") == 1


def test_of_this_process_which_got_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_table, "MOST_KEPT", 10)  # so the driver is asked again for what to store
    room = started(USABLE, TOO_SMALL, kube=KeepingKube(failures={"create": [Unavailable("no answer")]}))
    room.now += 600.0
    until = room.claim()
    assert until is not None
    room.now = until
    assert settle(room) == room.now + 60.0 - (until - 700.0) and room.driver.count("delete") == 0
    room.now += 60.0
    settle(room)
    assert room.driver.count("delete") == 1
