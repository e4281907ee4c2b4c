"""PersistentVolumes that wait for the API server, of volumes of which the driver has much to say: what is kept of them is bounded."""

import heapq
from collections.abc import Mapping
from typing import Any

import pytest

from sidecar.csi.api import NOTHING, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code
from sidecar.kube.api import Resource
from sidecar.kube.errors import Invalid, Unavailable
from sidecar.provisioning import progress_table
from sidecar.provisioning.progress import Creating
from tests.harness import samples
from tests.harness.provisioning.bench import UID, rpc, run
from tests.harness.provisioning.room import Json, KeepingKube, OpenDriver, Room, room_for

LARGE, MOST_KEPT = 20_000, 1_600_000
AWAY = Unavailable("connection refused")


class Talkative(OpenDriver):
    """Idempotent by name, with a context of so many characters in so many entries."""

    def __init__(self, size: int = LARGE, entries: int = 1) -> None:
        super().__init__()
        self.size, self.entries = size, entries

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        self.asked.append(("create", request))
        each = self.size // self.entries
        context = {f"{number:06}": request.name.ljust(each, ".") for number in range(self.entries)}
        return CreatedVolume(f"id-of-{request.name}", request.required_bytes, context=context)


class Refusing(KeepingKube):
    """Takes no PersistentVolume while it has a reason."""

    why: Exception | None = AWAY

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        if self.why is not None and resource.plural == "persistentvolumes":
            raise type(self.why)(str(self.why))  # one that was raised would hold the frames it went through
        return await super().create(resource, body, namespace=namespace)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_table, "MOST_KEPT", MOST_KEPT)


def waiting(claims: int, driver: Talkative) -> tuple[Room, list[tuple[float, str]]]:
    room = Room(driver=driver, kube=Refusing(), options={"volume_name_uuid_length": -1})
    room.see(class_=samples.class_())
    uids = [f"uid{number:03}" for number in range(claims)]
    for uid in uids:
        room.see(claim=samples.claim(selected="foo", meta={"uid": uid, "name": f"claim-{uid}"}))
    return room, [(room.now, uid) for uid in uids]


def live(room: Room, due: list[tuple[float, str]], *, until: float) -> None:
    """Looks at each claim when it is due."""
    while due and due[0][0] <= until:
        at, uid = heapq.heappop(due)
        room.now = max(at, room.now)
        again = run(room.room.handle_claim(uid))
        if again is not None:
            assert again <= room.now + 16.0, "it is looked at again soon, however often it has failed"
            heapq.heappush(due, (again, uid))
    room.now = until


@pytest.mark.usefixtures("little_room")
def test_all_that_is_kept_together_is_bounded_in_bytes() -> None:
    for why in [AWAY, Invalid("422: no such label")]:
        room, due = waiting(100, Talkative())
        room.kube.why = why
        live(room, due, until=101.0)
        assert 70 * LARGE < room.table.kept() <= MOST_KEPT
        assert room.table.unsaved() == 100, "each is known to exist, whether its PersistentVolume is kept or not"
        assert all(not room.table.takes_space(uid) for _, uid in due)


def without_room(monkeypatch: pytest.MonkeyPatch, why: Exception, *, driver: OpenDriver | None = None) -> Room:
    """A claim whose volume exists, and of whose PersistentVolume nothing is kept."""
    monkeypatch.setattr(progress_table, "MOST_KEPT", 10)
    room = room_for(driver=driver or Talkative(size=10), kube=Refusing())
    room.kube.why = why
    assert room.claim() == 101.0
    assert room.table.kept() == 0 and isinstance(room.table.progress(UID), Creating)
    return room


def test_the_claim_says_why_it_was_refused_and_the_driver_is_asked_again_for_what_to_store(monkeypatch: pytest.MonkeyPatch) -> None:
    room = without_room(monkeypatch, Invalid("422: no such label"))
    assert room.said() == "the volume was created, but storing PersistentVolume test-testi failed: 422: no such label"
    assert room.claim() == 102.0 and room.driver.count("create") == 2
    assert "422: no such label" in room.said()
    room.kube.why = None
    assert room.claim() is None
    assert room.kube.wrote_volume()["spec"]["csi"]["volumeHandle"] == "id-of-test-testi" and not room.paper.lines


def test_a_driver_that_then_knows_nothing_of_its_volume_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    for code in [Code.RESOURCE_EXHAUSTED, Code.FAILED_PRECONDITION]:
        driver = OpenDriver(creates=[CreatedVolume("id", 100), rpc(code), CreatedVolume("id", 100)])
        room = without_room(monkeypatch, AWAY, driver=driver)
        room.claim()
        assert room.paper.lines.keys() == {UID}, "when the claim goes, the driver is asked once more"


def test_the_handle_of_a_volume_that_is_not_kept_is_given_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    room = without_room(monkeypatch, AWAY)
    assert room.table.holder("id-of-test-testi", besides="another") == f"the volume of claim {UID}"
    assert room.table.holder("id-of-another", besides="another") == ""
