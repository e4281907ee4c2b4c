"""A replica that waits for a node with two volumes here: one that is to be made anew, and one that goes with its pod."""

from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import CLAIMS, PODS
from sidecar.model import names
from tests.harness.drain.reprovision import Seen, Workload, at_rest, evacuate, places, play
from tests.harness.drain.simulated import change, wait

WISH = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def waits_with_its_own(bench: NotebookWorld) -> None:
    """db-0 as a pod without a node, whose ephemeral volume has been made on n0."""
    await change(bench, "n0", labels={"for-db-0": None})
    old = await bench.you.get(PODS, "db-0", namespace="default")
    await bench.you.delete(PODS, "db-0", namespace="default")
    await wait(bench, 40)
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": WISH}}}
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [*old["spec"]["volumes"], scratch],
        "nodeSelector": {"for-db-0": "yes"},
    }
    meta = {key: old["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    pod = await bench.you.create(PODS, {"metadata": meta, "spec": spec}, namespace="default")
    of = {"apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": pod["metadata"]["uid"], "controller": True}
    claim = {"name": "db-0-scratch", "ownerReferences": [of], "annotations": {names.SELECTED_NODE: "n0"}}
    await bench.you.create(CLAIMS, {"metadata": claim, "spec": WISH}, namespace="default")
    await wait(bench, 20)
    assert (await bench.you.get(CLAIMS, "db-0-scratch", namespace="default"))["spec"]["volumeName"]


def test_the_pod_is_evicted_first_and_no_data_is_deleted_while_another_volume_keeps_it_here() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        workload.stop()
        await waits_with_its_own(bench)
        await evacuate(bench)
        while not seen.did:
            await wait(bench, 1)
        assert seen.did == ["evict db-0"]
        await bench.you.delete(CLAIMS, "db-0-scratch", namespace="default")  # as the garbage collector does
        workload.go_on()
        await wait(bench, 120)
        assert (await places(bench))["db-0"] == "n3"
        assert seen.did.count("delete data-db-0") == 1
        assert await at_rest(bench)

    play(story, seen)
