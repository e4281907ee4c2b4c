"""What the referee of drain worlds takes for lost, and whom it lets give data up."""

import random
from typing import Any

import pytest

from hack.sim.cluster import Cluster
from hack.sim.cluster.kinds import TABLE
from hack.sim.drains.drain_world import _CONTENTS
from hack.sim.drains.truth import Truth
from hack.sim.drains.workloads import pod_of, workload_of
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.spec import Spec
from hack.sim.driver.state import LocalVolume
from sidecar.kube.api import CLAIMS, CLASSES, MERGE_PATCH, NODES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES
from sidecar.model import names

CLAIM, HANDLE = "data", "vol-1"


class Scene:
    """Node n1 with one volume, its claim, and a workload with one pod."""

    def __init__(self, *, reclaim: str = "Delete") -> None:
        self.at = 0.0
        self.cluster = Cluster(clock=lambda: self.at, rng=random.Random(1).random, kinds=(*TABLE, _CONTENTS))
        self.drivers = {"n1": LocalDriver(Spec(node_id="n1")), "n2": LocalDriver(Spec(node_id="n2"))}
        self.truth = Truth(self.cluster, lambda: self.drivers, clock=lambda: self.at)
        for name in self.drivers:
            self.cluster.create(NODES, {"metadata": {"name": name}})
        self.put(HANDLE, "n1")
        class_ = {"metadata": {"name": "local"}, "provisioner": "d", "volumeBindingMode": "Immediate"}
        self.cluster.create(CLASSES, class_)
        resources = {"requests": {"storage": "1Gi"}}
        spec = {"volumeName": "pv-1", "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": resources}
        claim = self.cluster.create(CLAIMS, {"metadata": {"name": CLAIM}, "spec": spec}, namespace="default").obj
        ref = {"namespace": "default", "name": CLAIM, "uid": claim["metadata"]["uid"]}
        volume: dict[str, Any] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "persistentVolumeReclaimPolicy": reclaim,
            "csi": {"driver": "d", "volumeHandle": HANDLE},
            "claimRef": ref,
        }
        self.cluster.create(VOLUMES, {"metadata": {"name": "pv-1"}, "spec": volume})
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": CLAIM}}]
        pod = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes}
        self.workload = self.cluster.create(STATEFUL_SETS, workload_of(STATEFUL_SETS, "app", pod), namespace="default").obj

    def put(self, handle: str, node: str) -> None:
        self.drivers[node]._state.volumes[handle] = LocalVolume(handle, handle, "standard", 1, 1)

    def run(self) -> None:
        self.cluster.create(PODS, pod_of(self.workload, "StatefulSet", "app-0"), namespace="default")
        status = {"status": {"phase": "Running"}}
        self.cluster.patch(PODS, "app-0", status, content_type=MERGE_PATCH, namespace="default", subresource="status")
        self.truth.look()

    def stop(self) -> None:
        self.change(STATEFUL_SETS, "app", {"spec": {"replicas": 0}})
        self.cluster.delete(PODS, "app-0", namespace="default")
        self.truth.look()

    def change(self, resource: Any, name: str, patch: dict[str, Any]) -> None:
        self.cluster.patch(resource, name, patch, content_type=MERGE_PATCH, namespace="default" if resource.namespaced else "")

    def note(self, resource: Any, name: str, key: str, text: str) -> None:
        self.at += 1.0
        self.change(resource, name, {"metadata": {"annotations": {key: text}}})
        self.truth.look()

    def lost(self, node: str = "n1", *gone: str) -> list[str]:
        return list(self.truth.losses(self.truth.look(), node, gone=lambda other: other in gone))

    def stranded(self) -> list[str]:
        return list(self.truth.strandings(self.truth.look(), "n1"))


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.run()
    return scene


def test_a_volume_that_no_pod_ran_with_is_nobody_s_loss():
    assert Scene().lost() == []


def test_what_was_written_is_lost_with_its_node_and_with_no_other(scene: Scene):
    assert (scene.lost(), scene.lost("n2")) == (["pv-1 (vol-1)"], [])


def test_what_another_node_has_too_is_lost_with_the_last_of_them(scene: Scene):
    scene.put(HANDLE, "n2")
    assert (scene.lost(), scene.lost("n1", "n2")) == ([], ["pv-1 (vol-1)"])


@pytest.mark.parametrize(
    "key, text, in_use, idle",
    [
        (names.DRAIN_POLICY, "Ignore", [], []),
        (names.DRAIN_POLICY, "AllowIdle", ["pv-1 (vol-1)"], ["pv-1 (vol-1)"]),
        (names.DRAIN_POLICY_RETIRE, "AllowIdle", ["pv-1 (vol-1)"], []),
        (names.DRAIN_POLICY_REBOOT, "Ignore", ["pv-1 (vol-1)"], ["pv-1 (vol-1)"]),
    ],
)
def test_a_word_gives_up_what_it_says(scene: Scene, key: str, text: str, in_use: list[str], idle: list[str]):
    scene.note(CLAIMS, CLAIM, key, text)
    assert scene.lost() == in_use
    scene.stop()
    assert scene.lost() == idle


def test_a_pod_that_is_about_to_be_made_again_still_needs_its_volume(scene: Scene):
    scene.note(CLAIMS, CLAIM, names.DRAIN_POLICY_RETIRE, "AllowIdle")
    scene.cluster.delete(PODS, "app-0", namespace="default")
    assert scene.lost() == ["pv-1 (vol-1)"]


def test_an_acknowledgement_lasts_until_the_next_use(scene: Scene):
    scene.stop()
    scene.note(VOLUMES, "pv-1", names.ACKNOWLEDGED, "by me")
    assert scene.lost() == []
    scene.at += 1.0
    scene.change(STATEFUL_SETS, "app", {"spec": {"replicas": 1}})
    scene.run()
    scene.stop()
    assert scene.lost() == ["pv-1 (vol-1)"]


@pytest.mark.parametrize("reclaim, lost", [("Delete", []), ("Retain", ["pv-1 (vol-1)"])])
def test_whoever_deletes_a_claim_knows_the_reclaim_policy(reclaim: str, lost: list[str]):
    scene = Scene(reclaim=reclaim)
    scene.run()
    scene.stop()
    scene.cluster.delete(CLAIMS, CLAIM, namespace="default")
    assert scene.lost() == lost


def test_a_claim_is_not_ephemeral_because_a_pod_owns_it(scene: Scene):
    uid = scene.cluster.get(PODS, "app-0", namespace="default").obj["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "app-0", "uid": uid}
    scene.change(CLAIMS, CLAIM, {"metadata": {"ownerReferences": [owner]}})
    assert scene.lost() == ["pv-1 (vol-1)"]


def test_a_snapshot_lies_where_the_world_has_put_it_until_it_is_acknowledged(scene: Scene):
    scene.cluster.create(SNAPSHOT_CONTENTS, {"metadata": {"name": "snap"}, "spec": {"driver": "d"}})
    scene.truth.snapshots["snap"] = "n2"
    assert scene.lost("n2") == ["snap"]
    scene.note(SNAPSHOT_CONTENTS, "snap", names.ACKNOWLEDGED, "by me")
    assert scene.lost("n2") == []


def test_block_forbids_a_reboot_while_somebody_wants_the_volume(scene: Scene):
    assert scene.stranded() == []
    scene.note(CLAIMS, CLAIM, names.DRAIN_POLICY_REBOOT, "Block")
    assert scene.stranded() == ["pv-1 (vol-1)"]
    scene.stop()
    assert scene.stranded() == []
