"""Where volumes are, in the whole program: what labels do not tell is told by pods, by the driver, or by who else is about to go."""

from typing import Any

from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from hack.sim.world.node import TOPOLOGY_KEY as KEY
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, VOLUMES
from sidecar.model import names
from tests.harness.drain.simulated import change, node_of, play, report_of, wait, with_pod

Json = dict[str, Any]
ALLOWING = {names.DRAIN_POLICY: "AllowIdle", f"{names.DRAIN_POLICY}.retire": "AllowIdle"}


def term(*values: str) -> Json:
    return {"matchExpressions": [{"key": KEY, "operator": "In", "values": list(values)}]}


async def static(bench: NotebookWorld, name: str, *terms: Json, handle: str = "", claim: bool = True) -> None:
    """A volume that a person made, and its claim, bound to each other."""
    spec: Json = {
        "csi": {"driver": DRIVER, "volumeHandle": handle or f"by-hand-{name}"},
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "by-hand",
        **({"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}),
    }
    if claim:
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
        made = await bench.you.create(
            CLAIMS, {"metadata": {"name": name}, "spec": {**asked, "storageClassName": "by-hand"}}, namespace="default"
        )
        spec["claimRef"] = {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]}
    obj = await bench.you.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
    await bench.you.replace(VOLUMES, {**obj, "status": {"phase": "Bound" if claim else "Available"}}, name=name, subresource="status")


async def pod(bench: NotebookWorld, name: str, claim: str, *, node: str = "") -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes} | ({"nodeName": node} if node else {})
    await bench.you.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace="default")


async def retire(bench: NotebookWorld, node: str) -> tuple[str, str]:
    said = (await report_of(bench, node))["verdicts"]["retire"]
    return said["status"], said["reason"]


async def cordon(bench: NotebookWorld, *nodes: str) -> None:
    for node in nodes:
        await change(bench, node, {"unschedulable": True})


def test_an_evicted_pod_that_waits_for_its_volume_keeps_it_in_use() -> None:
    """Though the volume's owner allows to lose it while it is idle."""

    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await bench.you.patch(CLAIMS, "a", {"metadata": {"annotations": ALLOWING}}, content_type=MERGE_PATCH, namespace="default")
        await cordon(bench, "n0")
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await wait(bench, 3)
        assert (await retire(bench, "n0"))[0] == "False", "the pod may be made again"
        await pod(bench, "a", "a")
        for _ in range(4):
            await wait(bench, 50)
            assert await retire(bench, "n0") == ("False", "VolumeInUse")
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await wait(bench, 190)
        assert await retire(bench, "n0") == ("True", "NothingBlocks")

    play(story)


def test_a_volume_without_affinity_is_where_its_pod_runs_and_stays_there_when_the_pod_is_evicted() -> None:
    async def story(bench: NotebookWorld) -> None:
        await static(bench, "loose")
        await wait(bench, 10)
        assert [(await retire(bench, node))[0] for node in ("n0", "n1")] == ["True", "True"]
        await pod(bench, "p", "loose", node="n0")
        await wait(bench, 10)
        assert [(await retire(bench, node))[0] for node in ("n0", "n1")] == ["False", "True"]
        assert "VolumeInUse" in [blocker["reason"] for blocker in (await report_of(bench, "n0"))["blockers"]]
        await cordon(bench, "n0")
        await bench.you.delete(PODS, "p", namespace="default", grace_period_seconds=0)
        await wait(bench, 200)
        assert (await retire(bench, "n0"))[0] == "False"
        for _ in range(2):
            await do(bench, "kill n0")
            await wait(bench, 200)
            assert await retire(bench, "n0") == ("False", "LastCopy"), "the report tells it to the next process"
        await bench.you.delete(CLAIMS, "loose", namespace="default")
        await wait(bench, 5)
        await bench.you.delete(VOLUMES, "loose")
        await wait(bench, 120)
        assert (await retire(bench, "n0"))[0] == "True"

    play(story)


def test_of_two_nodes_that_share_a_volume_the_last_one_cannot_be_retired() -> None:
    async def story(bench: NotebookWorld) -> None:
        await static(bench, "shared", term("n0", "n1"))
        await wait(bench, 10)
        assert [(await retire(bench, node))[0] for node in ("n0", "n1")] == ["True", "True"]
        await cordon(bench, "n0")
        await wait(bench, 10)
        assert (await retire(bench, "n0"))[0] == "True"
        await cordon(bench, "n1")
        await wait(bench, 10)
        assert (await retire(bench, "n1"))[0] == "False"

    play(story)


def test_a_volume_that_the_driver_has_here_under_the_name_of_another_node_blocks() -> None:
    async def story(bench: NotebookWorld) -> None:
        bench.fill("n0", "1Gi")
        (made,) = bench.nodes["n0"].driver.volumes()
        await static(bench, "old", term("former-name"), handle=made.id, claim=False)
        await wait(bench, 700)
        assert await retire(bench, "n0") == ("False", "NodeRenamed")
        assert await retire(bench, "n1") == ("True", "NoVolumes")
        await bench.you.delete(VOLUMES, "old")
        await bench.you.patch(VOLUMES, "old", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        await wait(bench, 130)
        assert (await retire(bench, "n0"))[0] == "True"

    play(story)


def test_a_restart_in_peace_changes_no_verdict_and_one_in_a_drain_waits_for_pods_that_come_back() -> None:
    def case(restarted: bool) -> None:
        async def story(bench: NotebookWorld) -> None:
            await with_pod(bench, "a")
            await do(bench, "until running a")
            await bench.you.patch(CLAIMS, "a", {"metadata": {"annotations": ALLOWING}}, content_type=MERGE_PATCH, namespace="default")
            await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
            await wait(bench, 80)
            assert (await retire(bench, "n0"))[0] == "True"
            if restarted:
                await do(bench, "kill n0")
                await wait(bench, 20)
                assert (await retire(bench, "n0"))[0] == "True"
            await cordon(bench, "n0")
            await wait(bench, 10)
            assert (await retire(bench, "n0"))[0] == ("False" if restarted else "True")
            await wait(bench, 60)
            assert (await retire(bench, "n0"))[0] == "True"
            assert await node_of(bench)

        play(story)

    for restarted in [False, True]:
        case(restarted)
