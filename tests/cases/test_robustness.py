"""Acceptance cases X as far as they can be shown without a real API server. The rest of X3 is in tests/e2e/test_robustness.py.

X4, a node that is removed, is the drain's.
"""

import asyncio
import heapq
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sidecar.csi.api import NOTHING, CreatedVolume, CreateRequest
from sidecar.doors import Doors, Instruments
from sidecar.kube.api import Change, Resource
from sidecar.kube.errors import Unavailable
from sidecar.kube.events.recorder import EventRecorder
from sidecar.model.objects import Volume
from sidecar.provisioning.creations import journal as journals
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.config import parsed
from tests.harness.loops import until
from tests.harness.provisioning.bench import UID, run
from tests.harness.provisioning.journal import written
from tests.harness.provisioning.room import Json, KeepingKube, OpenDriver, Room, room_for
from tests.harness.sidecar import SELECTED, ListedKube, SlowDriver, world_of


class Killed(BaseException):
    """Nobody catches it, as nobody catches the end of the process."""


class Disk(OpenDriver):
    """Volumes that are there, by name. Creating is idempotent; `dies` makes the volume and never answers."""

    def __init__(self, volumes: dict[str, str] | None = None, *, dies: bool = False) -> None:
        super().__init__()
        self.volumes = {} if volumes is None else volumes
        self.dies = dies
        self.made: Counter[str] = Counter()

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        self.asked.append(("create", request))
        if request.name not in self.volumes:
            self.made[request.name] += 1
            self.volumes[request.name] = f"id-of-{request.name}"
        if self.dies:
            raise Killed
        return CreatedVolume(self.volumes[request.name], request.required_bytes)

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        self.asked.append(("delete", volume_id))
        self.volumes = {name: held for name, held in self.volumes.items() if held != volume_id}


def killed_after_creating(folder: Path, driver: Disk) -> None:
    """A process that is killed between the driver's OK and the PersistentVolume. All that it leaves is in the folder and the driver."""

    async def life() -> None:
        journal = FileJournal(folder, samples.DRIVER, on_state=print)
        room = room_for(driver=driver)
        room.room.creations.journal = journal
        try:
            await room.room.handle_claim(UID)
        finally:
            os.close(journal._file)  # as the kernel does

    driver.dies = True
    with pytest.raises(Killed):
        asyncio.run(life())
    driver.dies = False


def next_life(folder: Path, room: Room) -> None:
    """Takes over, and looks at what it took over until nothing is left to do."""

    async def life() -> None:
        room.room.creations.journal = journal = FileJournal(folder, samples.DRIVER, on_state=print)
        for uid in await room.room.take_over():
            for _ in range(5):
                if await room.room.handle_claim(uid) is None:
                    break
        await journal.close()

    asyncio.run(life())


def test_X1_a_claim_deleted_between_the_drivers_OK_and_the_next_start_leaves_no_volume(tmp_path: Path) -> None:
    driver = Disk()
    killed_after_creating(tmp_path, driver)
    assert driver.volumes, "nobody but the file knows of it"
    room = Room(driver=driver)
    room.see(class_=samples.class_())
    next_life(tmp_path, room)
    assert driver.volumes == {}
    assert room.kube.wrote("create") == [] and list(tmp_path.iterdir()) == []


def test_X1_with_its_claim_still_there_the_same_volume_becomes_its_own(tmp_path: Path) -> None:
    driver = Disk()
    killed_after_creating(tmp_path, driver)
    room = room_for(driver=driver)
    next_life(tmp_path, room)
    assert room.kube.wrote_volume()["spec"]["csi"]["volumeHandle"] == "id-of-test-testi"
    assert driver.made == {"test-testi": 1} and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("orderly", [False, True])
def test_X1_a_volume_that_was_stored_and_then_kept_by_hand_is_not_taken_for_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    """Claim and PersistentVolume are deleted and the data kept, long before the process ends. An orderly end has another creation open."""
    monkeypatch.setattr(journals, "_ENDS_WAIT", 60.0 if orderly else 0.05)
    driver = Disk()
    other = CreationRecord("other", "ns", "other", "fake-class", CreateRequest(name="other", required_bytes=1, capabilities=()))

    async def life() -> None:
        journal = FileJournal(tmp_path, samples.DRIVER, on_state=print)
        room = room_for(driver=driver)
        room.room.creations.journal = journal
        await journal.begin(other)
        await room.room.handle_claim(UID)
        assert room.kube.wrote("create")
        if orderly:
            await journal.close()
        else:
            await written(journal)
            os.close(journal._file)

    asyncio.run(life())
    next_life(tmp_path, Room(driver=driver))
    assert driver.volumes == {"test-testi": "id-of-test-testi"}


def test_X2_a_cache_that_still_shows_the_claim_when_its_volume_has_come_and_gone_creates_nothing() -> None:
    """The claim was bound, deleted, its volume released and deleted, and the watch of claims has told nothing of it all."""
    room = room_for(driver=Disk())
    assert room.claim() is None
    stored = room.kube.wrote_volume()
    room.see(volume=Volume.of(stored))
    assert room.claim() is None
    room.see(volume=samples.volume(status={"phase": "Released"}))
    assert room.claim() is None
    room.kube.objects.pop(("persistentvolumeclaims", "fake-pvc"))
    room.caches.volumes.apply(Change("test-testi", None, None))
    room.room.volume_gone(UID)
    for _ in range(3):
        assert room.claim() is not None, "it is looked at again until the watch has told"
    room.forget_claim()
    assert room.claim() is None
    assert room.driver.count("create") == 1


# ---- stopping ------------------------------------------------------------------------------------------------------


def program_on(folder: Path, driver: SlowDriver, kube: ListedKube) -> Sidecar:
    """The whole program but for its doors, with a journal on the disk."""
    config = parsed("--volume-name-prefix=test", "--volume-name-uuid-length=5", environ={"NODE_NAME": samples.NODE}).config
    doors = Doors(kube, kube, driver, FileJournal(folder, samples.DRIVER, on_state=print))  # type: ignore[arg-type]
    return Sidecar(config, doors, Instruments(), recorder=EventRecorder(kube, component="test"))  # type: ignore[arg-type]


async def stopped_while_creating(folder: Path, kube: ListedKube, *, limit: float, answers: bool) -> tuple[bool, SlowDriver]:
    """As on SIGTERM: no new work, what is in flight gets until `limit`. Whether all ended in time, and the driver."""
    driver = SlowDriver()
    driver.creates = [CreatedVolume("test-volume-id", 100)]
    program = program_on(folder, driver, kube)
    task = asyncio.create_task(program.run())
    try:
        async with asyncio.timeout(120):
            await until(lambda: driver.at_work == 1)
            draining = asyncio.create_task(program.drain(limit))
            await asyncio.sleep(0)
            kube.tell("persistentvolumeclaims", "ADDED", samples.claim_json(annotations=SELECTED, meta={"uid": "late", "name": "too-late"}))
            if answers:
                driver.go_on.release()
            return await draining, driver
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def volumes_in(kube: ListedKube) -> list[str]:
    return [body["metadata"]["name"] for body in kube.wrote("create") if body["kind"] == "PersistentVolume"]


def test_X3_a_call_that_ends_in_time_is_finished_with_and_nothing_is_begun(tmp_path: Path) -> None:
    kube = world_of(samples.claim_json(annotations=SELECTED))
    in_time, driver = asyncio.run(stopped_while_creating(tmp_path, kube, limit=60.0, answers=True))
    assert in_time and driver.count("create") == 1
    assert volumes_in(kube) == ["test-testi"]
    assert list(tmp_path.iterdir()) == [], "nothing is left to tell the next process"


def test_X3_a_call_that_does_not_end_is_left_to_the_next_process(tmp_path: Path) -> None:
    kube = world_of(samples.claim_json(annotations=SELECTED))
    in_time, _ = asyncio.run(stopped_while_creating(tmp_path, kube, limit=0.05, answers=False))
    assert not in_time and volumes_in(kube) == []
    disk = Disk({"test-testi": "id-of-test-testi"})
    room = Room(driver=disk)
    room.see(class_=samples.class_())
    next_life(tmp_path, room)
    assert disk.volumes == {}, "its claim was deleted while no process ran"


# ---- an API server that is away ------------------------------------------------------------------------------------


class AwayKube(KeepingKube):
    """Away until a given time. Of every third write that meets its absence the answer is lost, but not the write."""

    def __init__(self, clock: Any, back_at: float) -> None:
        super().__init__()
        self._clock, self._back_at = clock, back_at
        self._met = 0

    async def get(self, resource: Resource, name: str, **where: Any) -> Json:
        self._reach()
        return await super().get(resource, name, **where)

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        self._met += 1
        is_new = (resource.plural, body["metadata"]["name"]) not in self.objects
        if self._clock() < self._back_at and self._met % 3 == 0 and is_new:
            await super().create(resource, body, namespace=namespace)
        self._reach()
        return await super().create(resource, body, namespace=namespace)

    def _reach(self) -> None:
        if self._clock() < self._back_at:
            raise Unavailable("connection refused")


def test_X5_volumes_created_while_the_api_server_is_away_are_all_stored_and_none_is_made_twice() -> None:
    claims = 20
    now = [100.0]
    kube = AwayKube(lambda: now[0], back_at=400.0)
    room = Room(driver=(disk := Disk()), kube=kube, options={"volume_name_uuid_length": -1})
    room.see(class_=samples.class_())
    uids = [f"uid{number:02}" for number in range(claims)]
    for uid in uids:
        room.see(claim=samples.claim(selected="foo", meta={"uid": uid, "name": f"claim-{uid}"}))
    due = [(now[0], uid) for uid in uids]
    settled_at: dict[str, float] = {}
    while due:
        at, uid = heapq.heappop(due)
        now[0] = room.now = max(at, now[0])
        again = run(room.room.handle_claim(uid))
        if again is None:
            settled_at[uid] = room.now
        else:
            heapq.heappush(due, (again, uid))
    names = {f"test-{uid}" for uid in uids}
    assert {name for plural, name in kube.objects if plural == "persistentvolumes"} == names
    assert disk.made == Counter(names) and disk.count("create") == claims, "asked once each, by a name each"
    assert disk.count("delete") == 0 and len(disk.volumes) == claims
    assert max(settled_at.values()) <= 400.0 + 16.0, "soon after its return, however long it was away"
    assert room.told.reasons().count("ProvisioningSucceeded") == claims
    assert "ProvisioningFailed" not in room.told.reasons()
    assert room.table.unsaved() == 0 and not room.paper.lines
