"""A driver that answers with one volume for two claims: the second claim is not given it, and nothing of the first is deleted."""

from collections.abc import Mapping
from typing import Any

from sidecar.csi.api import NOTHING, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code
from sidecar.kube.api import Change
from sidecar.kube.errors import Unavailable
from sidecar.model.names import SELECTED_NODE
from sidecar.model.objects import Claim
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.progress import RemovalStep
from sidecar.provisioning.progress_table import MOST_UNSEEN, ProgressTable
from tests.harness import samples
from tests.harness.provisioning.bench import rpc, run
from tests.harness.provisioning.room import KeepingKube, OpenDriver, Room, room_for, show

ONE, ANOTHER = CreatedVolume("one", 100), CreatedVolume("another", 100)
SECOND = "second-uid"
FAULTS = 'csi_node_sidecar_driver_faults_total{kind="duplicate-handle"}'


def bound_before_its_volume_is_shown(*creates: CreatedVolume) -> Room:
    """The watch of claims is ahead of the one of volumes: of the claim everything is settled, and it is kept no longer."""
    room = two(*creates)
    room.claim()
    room.forget_claim()
    room.claim()
    assert stored(room) == ["one"] and room.caches.volumes.get("test-testi") is None
    return room


def two(*creates: CreatedVolume | Exception, **doors: Any) -> Room:
    """Two claims that wait on this node."""
    room = room_for(driver=OpenDriver(creates=list(creates), **doors.pop("driver", {})), **doors)
    obj = samples.claim_json(annotations={SELECTED_NODE: samples.NODE}, meta={"name": "second", "uid": SECOND})
    room.add("persistentvolumeclaims", obj).see(claim=Claim.of(obj, keep_whole=True))
    return room


def second(room: Room) -> float | None:
    return run(room.room.handle_claim(SECOND))


def stored(room: Room) -> list[str]:
    return [body["spec"]["csi"]["volumeHandle"] for body in room.kube.wrote("create")]


def test_a_volume_that_a_persistent_volume_has_is_given_to_nobody_else_and_that_is_told_once() -> None:
    room = two(ONE)
    show(room, samples.volume_json(meta={"name": "first"}, spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "one"}}))
    for until in (101.0, 103.0, 107.0):
        assert second(room) == until
        room.now = until
    assert stored(room) == [] and room.driver.count("delete") == 0
    told = [text for _, _, reason, text in room.told.events if reason == "ProvisioningFailed"]
    assert len(told) == 1 and "answered with volume 'one', which is PersistentVolume first" in told[0]
    assert room.value(FAULTS) == 1
    assert room.paper.lines.keys() == {SECOND}, "when the claim goes, the driver is asked once more"
    room.driver.creates = [ANOTHER]
    second(room)
    assert stored(room) == ["another"] and not room.paper.lines


def test_when_that_claim_goes_the_volume_stays() -> None:
    room = two(ONE)
    show(room, samples.volume_json(meta={"name": "first"}, spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "one"}}))
    second(room)
    room.kube.objects.pop(("persistentvolumeclaims", "second"))
    room.caches.claims.apply(_gone())
    assert second(room) is None
    assert room.driver.count("delete") == 0 and not room.paper.lines and not room.room.concerns(SECOND)


def test_one_that_is_about_to_be_stored_counts_and_is_not_deleted_either() -> None:
    room = two(ONE, kube=KeepingKube(failures={"create": [Unavailable("away")]}))
    room.claim()
    second(room)
    assert room.table.unsaved() == 1 and room.value(FAULTS) == 1
    room.kube.objects.pop(("persistentvolumeclaims", "second"))
    room.caches.claims.apply(_gone())
    assert second(room) is None
    assert room.driver.count("delete") == 0 and room.paper.lines.keys() == {"testid"}
    room.claim()
    assert stored(room) == ["one", "one"], "the one that was refused, and again"


def begun_by_a_dead_process(*creates: CreatedVolume, **doors: Any) -> Room:
    """It had sent the PersistentVolume of the first claim. The request arrives now, and the watch does not show it yet."""
    room = two(*creates, **doors)
    request = CreateRequest("test-testi", 100, ())
    room.table.records.keep(CreationRecord("testid", "fake-ns", "fake-pvc", "fake-class", request, from_file=True))
    room.add(
        "persistentvolumes",
        samples.volume_json(meta={"name": "test-testi"}, spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "one"}}),
    )
    return room


def test_one_that_a_dead_process_sent_counts_before_the_cache_shows_it() -> None:
    room = begun_by_a_dead_process(ONE)
    second(room)
    assert stored(room) == [] and room.value(FAULTS) == 1
    room.driver.creates = [ANOTHER]
    second(room)
    assert stored(room) == ["another"]


def test_one_whose_deletion_may_still_happen_counts() -> None:
    room = two(CreatedVolume("one", 99), ONE, driver={"deletes": [rpc(Code.ABORTED)]})
    room.claim()
    second(room)
    assert stored(room) == [] and room.value(FAULTS) == 1


def test_a_handle_that_the_driver_has_again_may_be_given_again() -> None:
    """The cache may be late; and a PersistentVolume may outlive its volume for a while."""
    for how in ["gone", "emptied"]:
        room = two(ONE)
        obj = samples.volume_json(meta={"name": "first"}, spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "one"}})
        show(room, obj)
        held = room.caches.volumes.get("first")
        assert held is not None
        if how == "gone":
            room.kube.objects.pop(("persistentvolumes", "first"))
        else:
            room.table.reach_removal_step(held, RemovalStep.EMPTIED)
        second(room)
        assert stored(room) == ["one"] and room.value(FAULTS) == 0


def _gone() -> Change[Claim]:
    return Change(SECOND, None, None)


class Hasty(OpenDriver):
    """Answers with a volume that is deleted while it is asked."""

    def __init__(self, *answers: CreatedVolume | Exception) -> None:
        super().__init__(creates=list(answers))
        self.rooms: list[Room] = []

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        while self.rooms:
            room = self.rooms.pop()
            room.now += 1.0
            await room.room.removal.handle("first")
        return await super().create_volume(request, secrets=secrets)


def test_one_that_was_deleted_while_the_driver_was_asked_is_given_to_nobody() -> None:
    driver = Hasty(ONE, ANOTHER)
    room = room_for(driver=driver)
    spec = {"csi": {"driver": samples.DRIVER, "volumeHandle": "one"}, "claimRef": {"uid": "gone", "namespace": "fake-ns", "name": "gone"}}
    show(room, samples.volume_json(meta={"name": "first"}, spec=spec))
    driver.rooms.append(room)
    room.claim()
    assert driver.count("delete") == 1 and stored(room) == []
    assert "which is a volume that was deleted while the driver was asked" in room.said()
    room.now += 10.0
    room.claim()
    assert stored(room) == ["another"]


def test_one_whose_claim_is_bound_counts_before_the_cache_shows_it() -> None:
    room = bound_before_its_volume_is_shown(ONE)
    second(room)
    assert stored(room) == ["one"] and room.value(FAULTS) == 1
    show(room, {**room.kube.objects["persistentvolumes", "test-testi"]})
    room.table.seen("test-testi")
    second(room)
    assert stored(room) == ["one"] and room.value(FAULTS) == 1 and not room.table.unseen()


def test_while_the_api_server_cannot_be_asked_for_it_nothing_is_given() -> None:
    room = begun_by_a_dead_process(ONE, ANOTHER, kube=KeepingKube(failures={"get": [Unavailable("away")]}))
    until = second(room)
    assert until is not None and stored(room) == [] and room.value(FAULTS) == 0
    room.now = until
    second(room)
    assert stored(room) == ["another"], "the driver is asked again"


def test_without_the_api_server_the_cache_is_believed() -> None:
    room = two(ONE, kube=KeepingKube(failures={"get": [Unavailable("away")]}))
    show(room, samples.volume_json(meta={"name": "first"}, spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "one"}}))
    second(room)
    assert stored(room) == []


def test_what_is_never_shown_is_bounded() -> None:
    table = ProgressTable()
    for number in range(3 * MOST_UNSEEN):
        table.stored(f"pvc-{number}", f"handle-{number}")
    assert len(table.unseen()) == MOST_UNSEEN and table.unseen()[f"pvc-{3 * MOST_UNSEEN - 1}"] == f"handle-{3 * MOST_UNSEEN - 1}"


def test_one_that_came_and_went_before_the_cache_showed_it_counts_no_longer() -> None:
    room = bound_before_its_volume_is_shown(ONE)
    room.kube.objects.pop(("persistentvolumes", "test-testi"))
    second(room)
    assert stored(room) == ["one", "one"] and room.value(FAULTS) == 0
    assert "one" in room.table.unseen().values() and "test-testi" not in room.table.unseen()


def test_without_the_api_server_all_claims_together_ask_for_it_as_often_as_one() -> None:
    """Each has a back-off of its own for the driver; the object that is asked for is the same."""
    others = [f"uid-{number}" for number in range(10)]
    room = begun_by_a_dead_process(ANOTHER, kube=KeepingKube(failures={"get": [Unavailable("away")] * 100}))
    for uid in others:
        obj = samples.claim_json(annotations={SELECTED_NODE: samples.NODE}, meta={"name": uid, "uid": uid})
        room.add("persistentvolumeclaims", obj).see(claim=Claim.of(obj, keep_whole=True))
    due = dict.fromkeys(others, room.now)
    while room.now < 130.0:
        for uid in [uid for uid, at in due.items() if at <= room.now]:
            due[uid] = run(room.room.handle_claim(uid)) or room.now
        room.now += 0.5
    asked = [name for verb, _, name, _ in room.kube.asked if verb == "get" and name == "test-testi"]
    assert room.driver.count("create") > 30 and len(asked) == 5 and stored(room) == []
