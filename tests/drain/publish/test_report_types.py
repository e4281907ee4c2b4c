"""The report as API servers keep it that have the type of an earlier release, or none: they drop what they do not know, without a word."""

from collections.abc import Mapping
from typing import Any

from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import DRAIN_REPORTS, MERGE_PATCH, PODS, VOLUMES, Resource
from sidecar.model import names
from tests.harness.drain.simulated import Json, all_of, node_of, play, report_of, wait, with_pod

OF_THIS_RELEASE = ("validUntil", "acknowledgements")
CONDITION = "world.csi-node-sidecar.io/RetireReady"


def serve_former_type(bench: NotebookWorld) -> None:
    as_served = bench.api.patch

    async def patch(resource: Resource, name: str, patch: Mapping[str, Any] | list[Any], **given: Any) -> Json:
        if resource == DRAIN_REPORTS and given.get("subresource") == "status":
            *guard, written = patch
            assert isinstance(written, dict)
            patch = [*guard, written | {"value": {key: value for key, value in written["value"].items() if key not in OF_THIS_RELEASE}}]
        return await as_served(resource, name, patch, **given)

    bench.api.patch = patch  # type: ignore[method-assign]


async def acknowledged(bench: NotebookWorld) -> None:
    """A volume that nobody uses, and that may vanish."""
    await with_pod(bench, "a")
    await do(bench, "until running a")
    await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
    (volume,) = await all_of(bench, VOLUMES)
    patch = {"metadata": {"annotations": {names.ACKNOWLEDGED: "somebody, today"}}}
    await bench.you.patch(VOLUMES, volume["metadata"]["name"], patch, content_type=MERGE_PATCH)
    await wait(bench, 100)


async def used_again(bench: NotebookWorld) -> None:
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}],
    }
    await bench.you.create(PODS, {"metadata": {"name": "b"}, "spec": spec}, namespace="default")
    await do(bench, "until running b")
    await wait(bench, 30)
    await bench.you.delete(PODS, "b", namespace="default", grace_period_seconds=0)


async def retire(bench: NotebookWorld) -> str:
    return next(item["status"] for item in (await node_of(bench))["status"]["conditions"] if item["type"] == CONDITION)


def test_a_type_that_forgets_acknowledgements_has_none_believed_and_says_what_to_apply() -> None:
    async def story(bench: NotebookWorld) -> None:
        serve_former_type(bench)
        await acknowledged(bench)
        assert await retire(bench) == "Unknown"
        verdicts = (await report_of(bench))["verdicts"]
        verdict = verdicts["retire"]
        assert verdicts["drain"]["status"] == "True", "a reboot needs no acknowledgement"
        assert "apply crd.yaml and rbac.yaml of" in verdict["message"]
        await used_again(bench)
        for _ in range(10):
            await wait(bench, 100)
            assert await retire(bench) != "True"

    play(story)
