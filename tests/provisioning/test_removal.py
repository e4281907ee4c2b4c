"""What is done about a volume that is to go, and what is told of it."""

from typing import Any

from sidecar.csi.outcome import Code
from sidecar.kube.api import Change
from sidecar.kube.errors import Forbidden
from sidecar.provisioning.progress import RemovalStep
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import Bench, released, rpc


def test_what_another_volume_leads_to_is_not_deleted_though_only_the_api_server_knows_that_one() -> None:
    for other in [
        {},
        {"status": {"phase": "Bound"}},
        {"spec": {"persistentVolumeReclaimPolicy": "Retain"}},
        {"spec": {"nodeAffinity": None}, "status": {"phase": "Available"}},
    ]:
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
    bench.volume()
    bench.see(volume=samples.volume(spec={"persistentVolumeReclaimPolicy": "Retain"}))
    assert bench.volume() is None
    ours = "external-provisioner.volume.kubernetes.io/finalizer"
    assert bench.kube.wrote("patch") == [
        {"metadata": {"uid": "volume-uid", "finalizers": [ours]}},
        {"metadata": {"uid": "volume-uid", "$deleteFromPrimitiveList/finalizers": [ours]}},
    ]
    assert bench.driver.asked == []


def test_D8_nothing_is_deleted_while_attachments_are_not_known() -> None:
    bench = released(attachments_known=False)
    assert bench.volume() == 101.0
    assert bench.driver.asked == []
    assert "VolumeAttachments" in bench.told.events[0][3]


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


def test_who_keeps_a_volume_whose_deletion_had_begun_hears_what_may_have_become_of_it() -> None:
    for kept in KEPT.values():
        for answer, told in [
            (rpc(Code.DEADLINE_EXCEEDED), "may be gone, or go yet"),
            (rpc(Code.INTERNAL), "may be gone, or go yet"),
            (None, "its data is gone"),
            (rpc(Code.FAILED_PRECONDITION), ""),
        ]:
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
