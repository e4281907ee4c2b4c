"""What is done about a volume that is to go, and what is told of it."""

from typing import Any

import pytest

from sidecar.csi.outcome import Code
from sidecar.kube.api import Change
from sidecar.kube.errors import Forbidden, Unavailable
from sidecar.model.objects import Attachment
from sidecar.provisioning.progress import RemovalStep
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube
from tests.harness.provisioning.bench import Bench, released, rpc

ELSEWHERE = {
    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": samples.KEY, "operator": "In", "values": ["bar"]}]}]}}
}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({}, id="released too"),
        pytest.param({"status": {"phase": "Bound"}}, id="bound"),
        pytest.param({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}, id="kept"),
        pytest.param({"spec": {"nodeAffinity": None}, "status": {"phase": "Available"}}, id="made by hand, without a place"),
    ],
)
def test_what_another_volume_leads_to_is_not_deleted_though_only_the_api_server_knows_that_one(other: dict[str, Any]) -> None:
    bench = released()
    bench.kube.objects["persistentvolumes", "other"] = samples.volume_json(**other, meta={"name": "other", "uid": "other-uid"})
    assert bench.volume() == 101.0
    assert bench.driver.asked == [] and bench.kube.wrote("delete") == [] and bench.kube.wrote("patch") == []
    name, type_, reason, message = bench.told.events[0]
    assert (name, type_, reason) == ("test-testi", "Warning", "VolumeFailedDelete")
    assert message.startswith("PersistentVolume other has the same handle, so the volume is not deleted") and "Retain" in message
    del bench.kube.objects["persistentvolumes", "other"]
    assert bench.volume() == 100.0
    assert bench.driver.asked == [("delete", "test-volume-id")]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(ELSEWHERE, id="on another node"),
        pytest.param({"csi": {"driver": samples.DRIVER, "volumeHandle": "another"}}, id="another handle"),
        pytest.param({"csi": {"driver": "other", "volumeHandle": "test-volume-id"}}, id="another driver"),
    ],
)
def test_other_volumes_keep_nothing(spec: dict[str, Any]) -> None:
    bench = released()
    bench.kube.objects["persistentvolumes", "other"] = samples.volume_json(meta={"name": "other", "uid": "other-uid"}, spec=spec)
    bench.volume()
    assert bench.driver.asked == [("delete", "test-volume-id")]


def test_nothing_is_deleted_while_the_volumes_cannot_be_listed() -> None:
    bench = released()
    bench.kube.failures["list"] = [Forbidden("list persistentvolumes: no")]
    assert bench.volume() == 101.0
    assert bench.driver.asked == []
    assert bench.told.reasons() == ["VolumeFailedDelete"]
    assert bench.volume() == 100.0
    assert bench.driver.count("delete") == 1


def test_P1_P3_finalizers_are_put_on_and_taken_off_by_patches_of_nothing_else() -> None:
    bench = Bench().see(volume=samples.volume(meta={"finalizers": ["other"]}, status={"phase": "Bound"}))
    assert bench.volume() is None
    bench.see(volume=samples.volume(spec={"persistentVolumeReclaimPolicy": "Retain"}))
    assert bench.volume() is None
    ours = "external-provisioner.volume.kubernetes.io/finalizer"
    assert bench.kube.wrote("patch") == [
        {"metadata": {"uid": "volume-uid", "finalizers": [ours]}},
        {"metadata": {"uid": "volume-uid", "$deleteFromPrimitiveList/finalizers": [ours]}},
    ]
    assert bench.driver.asked == []


def test_D2_D17_a_released_volume_is_emptied_then_removed_then_unfinalized() -> None:
    bench = released()
    assert bench.volume() == bench.now
    assert bench.driver.asked == [("delete", "test-volume-id")]
    assert bench.value("controller_persistentvolume_delete_total") == 0
    assert bench.volume() is None
    assert bench.kube.wrote("delete") == ["volume-uid"]
    bench.see(volume=samples.volume(meta={"deletionTimestamp": "now"}))
    assert bench.volume() is None
    assert bench.kube.wrote("patch") == [
        {
            "metadata": {
                "uid": "volume-uid",
                "$deleteFromPrimitiveList/finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
            }
        }
    ]
    assert bench.driver.count("delete") == 1
    assert bench.value("controller_persistentvolume_delete_total") == 1
    assert bench.changes == [("fake-class", True)]


def test_D14_a_failed_deletion_is_told_on_the_volume_and_backed_off() -> None:
    bench = released(driver=ScriptedDriver(deletes=[rpc(Code.NOT_FOUND)]))
    assert [bench.volume(), bench.volume()] == [101.0, 102.0]
    assert bench.told.events[0] == ("test-testi", "Warning", "VolumeFailedDelete", "rpc error: code = NotFound desc = text")
    assert bench.kube.wrote("delete") == []


@pytest.mark.parametrize(("error", "told"), [(Unavailable("down"), 0), (Forbidden("delete persistentvolumes: no"), 1)])
def test_D15_an_object_that_cannot_be_deleted_is_tried_again(error: Exception, told: int) -> None:
    bench = released(kube=ScriptedKube(failures={"delete": [error]}))
    bench.volume()
    assert bench.volume() == 101.0
    assert bench.value("controller_persistentvolume_delete_failed_total") == told
    assert bench.told.reasons() == ["VolumeFailedDelete"] * told
    assert bench.volume() is None
    assert bench.driver.count("delete") == 1
    assert bench.value("controller_persistentvolume_delete_total") == 1


def test_nothing_is_deleted_on_an_old_picture() -> None:
    bench = released()
    bench.kube.objects["persistentvolumes", "test-testi"] = samples.volume_json(
        meta={"resourceVersion": "10"}, spec={"persistentVolumeReclaimPolicy": "Retain"}
    )
    assert bench.volume() == 101.0
    assert bench.driver.asked == []


def test_D8_nothing_is_deleted_while_attachments_are_not_known() -> None:
    bench = released(attachments_known=False)
    assert bench.volume() == 101.0
    assert bench.driver.asked == []
    assert "VolumeAttachments" in bench.told.events[0][3]


def test_D8_an_attached_volume_is_not_touched() -> None:
    bench = released()
    bench.caches.attachments.apply(Change("a", None, Attachment("a", "test-testi", "foo")))
    assert bench.volume() == 101.0
    assert bench.driver.asked == []


def test_D18_volumes_of_other_nodes_are_not_counted() -> None:
    elsewhere = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": samples.KEY, "operator": "In", "values": ["bar"]}]}]}}
    bench = Bench().see(volume=samples.volume(spec={"nodeAffinity": elsewhere}))
    assert bench.volume() is None
    assert bench.driver.asked == [] and bench.kube.asked == []
    assert bench.value("controller_persistentvolume_delete") == 0


def test_what_was_emptied_is_forgotten_when_it_is_gone() -> None:
    bench = released()
    bench.volume()
    bench.caches.volumes.apply(Change("test-testi", None, None))
    assert bench.volume() is None
    assert bench.room.removal.view("test-testi").progress is RemovalStep.NOT_YET
    assert not bench.see(volume=samples.volume()).room.removal.view("test-testi").progress.value


KEPT: dict[str, dict[str, Any]] = {
    "its reclaim policy is Retain now": {"spec": {"persistentVolumeReclaimPolicy": "Retain"}},
    "it is for another claim": {"spec": {"claimRef": None}, "status": {"phase": "Available"}},
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=list(KEPT))
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(rpc(Code.DEADLINE_EXCEEDED), "may be gone, or go yet", id="nobody knows"),
        pytest.param(rpc(Code.INTERNAL), "may be gone, or go yet", id="it says nothing"),
        pytest.param(None, "its data is gone", id="deleted"),
        pytest.param(rpc(Code.FAILED_PRECONDITION), "", id="refused"),
    ],
)
def test_who_keeps_a_volume_whose_deletion_had_begun_hears_what_may_have_become_of_it(kept: Any, answer: Any, told: str) -> None:
    bench = released(driver=ScriptedDriver(deletes=[answer]))
    bench.volume()
    before = len(bench.told.events)
    bench.see(volume=samples.volume(**kept))
    for _ in range(3):
        if bench.room.removal.glance("test-testi") is not None:
            bench.volume()
    after = [event[3] for event in bench.told.events[before:]]
    assert len(after) == bool(told) and all(told in text and "on node foo" in text for text in after)
    assert bench.driver.count("delete") == 1


def test_a_volume_that_goes_as_it_should_is_told_of_by_nobody() -> None:
    bench = released(driver=ScriptedDriver(deletes=[rpc(Code.DEADLINE_EXCEEDED), None]))
    for _ in range(3):
        bench.volume()
    told = len(bench.told.events)
    assert bench.kube.wrote("delete") == ["volume-uid"]
    bench.volume()
    bench.see(volume=samples.volume(meta={"deletionTimestamp": "now"}))
    bench.volume()
    bench.caches.volumes.apply(Change("test-testi", None, None))
    bench.volume()
    assert len(bench.told.events) == told == 1
