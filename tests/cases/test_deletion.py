"""Acceptance cases D of the whole room: what becomes of a volume that was released, and of what is behind it.

D15 is met in a better way than by upstream: what the driver has deleted is not deleted again because its object could not go.
"""

import pytest

from sidecar.csi.outcome import Code
from sidecar.kube.api import Change
from sidecar.kube.errors import Forbidden, Unavailable
from sidecar.model.objects import Attachment
from tests.harness import samples
from tests.harness.provisioning.bench import rpc
from tests.harness.provisioning.room import NAME, NAMESPACE, KeepingKube, OpenDriver, Room, released, secret, show

NAME_NOTE, NAMESPACE_NOTE = (f"volume.kubernetes.io/provisioner-deletion-secret-{half}" for half in ("name", "namespace"))
OURS = "external-provisioner.volume.kubernetes.io/finalizer"
WITH_SECRET = {NAME: "of-${pvc.name}", NAMESPACE: "b"}


def deleted(room: Room) -> dict[str, str]:
    """The driver was asked once, the object is gone, nobody complains. Returns the secrets the driver was given."""
    assert room.volume() == room.now, "the next step is taken at once"
    assert room.volume() is None
    ((method, secrets),) = room.driver.given
    assert (method, room.driver.asked) == ("delete", [("delete", "test-volume-id")])
    assert room.kube.wrote("delete") == ["volume-uid"]
    assert room.told.events == []
    return secrets


def left_alone(room: Room) -> None:
    """Neither asked nor written nor told nor counted; it will not be looked at again by itself."""
    assert room.volume() is None
    assert room.driver.asked == [] and room.kube.asked == [] and room.told.events == []
    assert room.value("controller_persistentvolume_delete") == 0


def counted(room: Room) -> tuple[float, float]:
    return tuple(room.value(f"controller_persistentvolume_delete_{what}") for what in ("total", "failed_total"))  # type: ignore[return-value]


def test_D1_a_volume_that_is_not_csi_is_not_ours_to_delete_even_if_it_says_that_we_made_it() -> None:
    for source in [{"csi": None, "hostPath": {"path": "/x"}}, {"csi": None}]:
        left_alone(released(samples.volume_json(spec=source)))


def test_D1_a_volume_without_a_handle_is_told_of_and_kept() -> None:
    room = released(samples.volume_json(spec={"csi": {"driver": samples.DRIVER, "volumeHandle": ""}}))
    assert room.volume() == 101.0
    assert room.driver.asked == [] and room.kube.wrote("delete") == []
    assert "no handle" in room.said()


def test_D2_D3_empty_notes_mean_no_secret_whatever_the_class_says_by_now() -> None:
    room = released(parameters=WITH_SECRET).add("secrets", secret("of-fake-pvc", "b", key="value"))
    assert deleted(room) == {}
    assert "secrets" not in [plural for _, plural, _, _ in room.kube.asked]


def test_D4_the_secret_that_was_noted_is_used_whatever_became_of_the_class() -> None:
    for parameters in [None, {}, WITH_SECRET, {NAME: "a"}]:
        room = released(samples.volume_json(annotations={NAME_NOTE: "s", NAMESPACE_NOTE: "n"}), parameters=parameters)
        assert deleted(room.add("secrets", secret("s", "n", key="noted"))) == {"key": "noted"}


@pytest.mark.parametrize("error", [None, Forbidden("get secrets: no")])
def test_D5_a_noted_secret_that_cannot_be_had_does_not_keep_the_volume(error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    obj = samples.volume_json(annotations={NAME_NOTE: "s", NAMESPACE_NOTE: "n"})
    # The first read is the volume's own, right before what cannot be taken back.
    assert deleted(released(obj, kube=KeepingKube(failures={"get": [None, error]}))) == {}
    (warning,) = [record for record in caplog.records if record.message == "Deleting without a secret"]
    assert ("get secrets: no" if error else "Secret n/s does not exist") in str(warning.__dict__["fields"])


def test_D5_while_the_api_server_is_away_nothing_is_known_of_the_secret_and_nothing_deleted() -> None:
    obj = samples.volume_json(annotations={NAME_NOTE: "s", NAMESPACE_NOTE: "n"})
    room = released(obj, kube=KeepingKube(failures={"get": [None, Unavailable("away")]})).add("secrets", secret("s", "n", key="value"))
    assert room.volume() == 101.0
    assert room.driver.asked == [] and room.told.events == []
    assert deleted(room) == {"key": "value"}


def test_D6_without_notes_the_class_tells_the_secret() -> None:
    room = released(samples.volume_without_notes(), parameters=WITH_SECRET).add("secrets", secret("of-fake-pvc", "b", key="of the class"))
    assert deleted(room) == {"key": "of the class"}


def test_D6_a_class_that_makes_no_sense_keeps_the_volume_and_is_told_of() -> None:
    room = released(samples.volume_without_notes(), parameters={NAME: "a"})
    assert room.volume() == 101.0
    assert room.driver.asked == [] and "StorageClass 'fake-class': parameter" in room.said()


def attach(room: Room, volume: str, *, name: str = "a", node: str = "foo") -> None:
    obj = {"metadata": {"name": name}, "spec": {"source": {"persistentVolumeName": volume}, "nodeName": node}}
    room.caches.attachments.apply(Change(name, None, Attachment.of(obj)))


def test_D8_as_long_as_an_attachment_exists_whatever_its_state_nothing_is_deleted() -> None:
    for node in ["foo", "bar", ""]:
        room = released()
        attach(room, "test-testi", node=node)
        assert room.volume() == 101.0
        assert room.driver.asked == [] and room.kube.asked == []
        assert room.told.reasons() == ["VolumeFailedDelete"] and "still attached" in room.said()
        room.caches.attachments.apply(Change("a", None, None))
        room.told.events.clear()
        deleted(room)


def test_D8_an_attachment_of_another_volume_is_not_in_the_way() -> None:
    room = released()
    attach(room, "another")
    deleted(room)


def test_D10_D18_a_volume_of_another_node_is_ignored_and_not_counted() -> None:
    for nodes in [("bar",), ("bar", "baz")]:
        room = released(samples.volume_json(spec={"nodeAffinity": samples.placed(*nodes)}))
        left_alone(room)
        assert room.changes == [], "and no figure of free space changes"


def test_D11_D12_a_volume_of_this_node_is_deleted_and_one_term_that_matches_is_enough() -> None:
    for nodes in [("foo",), ("foo", "bar"), ("bar", "foo"), ("bar", "baz", "foo")]:
        room = released(samples.volume_json(spec={"nodeAffinity": samples.placed(*nodes)}))
        deleted(room)
        assert room.changes == [("fake-class", True)]
        assert counted(room) == (1, 0)


def test_D14_whatever_the_driver_says_but_OK_the_volume_stays_and_it_is_asked_again() -> None:
    for code in [code for code in Code if code is not Code.OK]:
        room = released(driver=OpenDriver(deletes=[rpc(code), rpc(code), rpc(code), None]))
        assert [room.volume_when_due() for _ in range(3)] == [101.0, 103.0, 107.0]
        assert room.kube.wrote("delete") == []
        assert {event[:3] for event in room.told.events} == {("test-testi", "Warning", "VolumeFailedDelete")}
        assert room.said() == f"rpc error: code = {code.value} desc = text"
        assert counted(room) == (0, 3)
        assert [room.volume_when_due(), room.volume()] == [room.now, None]
        assert room.kube.wrote("delete") == ["volume-uid"] and counted(room) == (1, 3)


def test_D15_an_object_that_cannot_be_deleted_is_a_failure_and_the_driver_is_not_asked_twice() -> None:
    room = released(kube=KeepingKube(failures={"delete": [Forbidden("delete persistentvolumes: no")] * 2}))
    assert [room.volume(), room.volume(), room.volume()] == [100.0, 101.0, 102.0]
    assert counted(room) == (0, 2)
    assert "delete persistentvolumes: no" in room.said()
    assert room.volume() is None
    assert room.driver.count("delete") == 1 and counted(room) == (1, 2)


def test_D15_a_process_that_begins_anew_asks_the_driver_again_which_says_OK() -> None:
    room = released(kube=KeepingKube(failures={"delete": [Forbidden("no")]}))
    room.volume()
    room.volume()
    assert room.kube.wrote("delete") == ["volume-uid"], "which was refused"
    room.kube.asked.clear()
    deleted(released(kube=room.kube))


def test_D17_a_terminating_volume_is_emptied_and_then_loses_our_finalizer_and_no_other() -> None:
    room = released(samples.volume_json(meta={"deletionTimestamp": "now"}))
    assert room.volume() == room.now
    assert room.kube.wrote("patch") == [], "not before the driver has said that it is gone"
    assert room.volume() is None
    assert room.kube.wrote("patch") == [{"metadata": {"uid": "volume-uid", "$deleteFromPrimitiveList/finalizers": [OURS]}}]
    assert room.kube.wrote("delete") == [] and room.driver.count("delete") == 1


def test_B2_without_the_right_to_patch_the_volume_is_deleted_its_object_stays_and_the_error_is_seen() -> None:
    """Its deletion was accepted, so it is Terminating. It is asked for again and again, with back-off, and never the driver."""
    denied = Forbidden('persistentvolumes "test-testi" is forbidden: cannot patch resource "persistentvolumes"')
    room = released(kube=KeepingKube(failures={"patch": [denied, denied, denied]}))
    deleted(room)
    show(room, samples.volume_json(meta={"deletionTimestamp": "now", "resourceVersion": "10"}))
    assert [room.volume(), *(room.volume_when_due() for _ in range(2))] == [101.0, 103.0, 107.0]
    assert room.told.reasons() == ["VolumeFailedDelete"] * 3 and "cannot patch" in room.said()
    assert room.driver.count("delete") == 1
    assert ("persistentvolumes", "test-testi") in room.kube.objects
    assert room.volume_when_due() is None, "once the right is granted"
    assert room.driver.count("delete") == 1
