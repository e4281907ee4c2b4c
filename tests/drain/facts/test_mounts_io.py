"""What pods of this node mount, whatever node a PersistentVolume names."""

import asyncio
from dataclasses import replace
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.mounts_io import MountedVolumes, Mounts
from sidecar.kube.api import Resource
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model.nodes import Pod
from sidecar.model.objects import Volume
from tests.harness.drain.listed_cluster import DRIVER, OTHER, claim, meta, volume

Json = dict[str, Any]


def pod(name: str, *claims: str, phase: str = "Running") -> Pod:
    volumes = [{"name": item, "persistentVolumeClaim": {"claimName": item}} for item in claims]
    meta_ = meta(name, namespace="default")
    return Pod.of({"metadata": meta_, "spec": {"nodeName": "n1", "volumes": volumes}, "status": {"phase": phase}})


class Scene:
    """A volume without affinity that a pod of n1 mounts, one of another driver, and the part that asks."""

    def __init__(self) -> None:
        self.objects: dict[str, Json | ApiError] = {
            "a": claim("a", volume_name="pv-a"),
            "pv-a": volume("pv-a", "n2", claim="a"),
            "b": claim("b", volume_name="pv-b"),
            "pv-b": volume("pv-b", "n1", driver=OTHER, claim="b"),
            "unbound": claim("unbound"),
        }
        self.now, self.asked = 0.0, list[str]()
        self.asking = Asking(clock=lambda: self.now)
        self.part = MountedVolumes(self, self.asking, DRIVER)  # type: ignore[arg-type]

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        self.asked.append(name)
        found = self.objects.get(name, NotFound("none", status=404))
        if isinstance(found, ApiError):
            raise found
        return found

    def look(self, *pods: Pod, watched: dict[str, Volume] | None = None, observed: bool = True, **more: Any) -> Mounts:
        self.asking.begin()
        return asyncio.run(self.part.of(pods, watched or {}, observed=observed, **more))


def test_a_volume_of_another_node_that_is_mounted_here_is_read_every_minute() -> None:
    scene = Scene()
    for _ in range(3):
        assert [found.name for found in scene.look(pod("p", "a")).ours] == ["pv-a"]
    assert scene.asked == ["a", "pv-a"]
    scene.now = 61.0
    scene.look(pod("p", "a"))
    assert scene.asked == ["a", "pv-a", "a", "pv-a"]


def test_what_cannot_be_found_out_is_told_with_its_name() -> None:
    for answer in [Forbidden("no", status=403), NotFound("gone", status=404)]:
        for refused in ["a", "pv-a"]:
            scene = Scene()
            scene.objects[refused] = answer
            assert scene.look(pod("p", "a")).ours == ()
            (told,) = scene.asking.ignorance
            assert refused in told


def test_a_pod_that_waits_for_a_claim_that_nobody_makes_leaves_nothing_unknown() -> None:
    """Else any tenant could keep any node from being retired."""
    scene = Scene()
    scene.look(pod("p", "never-made", phase="Pending"))
    assert scene.asking.ignorance == []


def without_place() -> Scene:
    scene = Scene()
    obj = volume("pv-a", claim="a")
    del obj["spec"]["nodeAffinity"]
    scene.objects["pv-a"] = obj
    return scene


def elsewhere(phase: str, node: str) -> Pod:
    return replace(pod("p", "a", phase=phase), node=node)


def test_a_volume_that_says_nothing_of_nodes_stays_where_its_last_pod_ran() -> None:
    """The pod was evicted and is made again; it waits, and nothing else tells where its data is."""
    scene = without_place()
    scene.look(pod("p", "a"))
    for scene.now, others in ((1.0, ()), (100.0, (elsewhere("Pending", ""),)), (200.0, (elsewhere("Pending", "n2"),))):
        assert [item.name for item in scene.look(elsewhere=others).ours] == ["pv-a"]
    scene.now = 300.0
    assert scene.look(elsewhere=(elsewhere("Running", "n2"),)).ours == ()
    assert scene.look().ours == (), "it is there now"


def test_what_an_earlier_process_found_here_and_says_nothing_of_nodes_stays_here() -> None:
    scene = without_place()
    scene.objects["pv-c"] = volume("pv-c", "n2", claim="c")
    scene.objects["pv-d"] = Forbidden("no", status=403)
    scene.part.recall(("pv-a", "pv-c", "pv-d", "gone", "pv-e"), hidden=False)
    seen = {"default/e": Volume.of(volume("pv-e", "n1", claim="e"))}
    assert [item.name for item in scene.look(watched=seen).ours] == ["pv-a"]
    assert scene.asking.ignorance, "pv-d may be here"
    scene.asked.clear()
    scene.now, scene.objects["pv-d"] = 61.0, {**scene.objects["pv-a"], "metadata": meta("pv-d")}
    assert [item.name for item in scene.look(watched=seen).ours] == ["pv-a", "pv-d"]
    assert sorted(set(scene.asked)) == ["pv-a", "pv-d"]


def test_what_no_pod_mounts_does_not_lie_here() -> None:
    for pods in [(), (pod("p", "a", phase="Succeeded"),), (pod("p", "unbound"),), (pod("p"),)]:
        scene = Scene()
        assert scene.look(*pods) == Mounts((), ())
        assert scene.asking.ignorance == []
