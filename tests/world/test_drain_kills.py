"""The sidecar dies at every effect boundary of an evacuation and of its undoing: nothing of ours is left when the reason is gone."""

import pytest

from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.kube.api import BUDGETS, CLAIMS, DEPLOYMENTS, LEASES, PODS
from sidecar.model import names
from tests.harness.drain.simulated import ARGS, EVACUATE, STATE, all_of, change, node_of, play, wait, with_pod
from tests.harness.seeds import ALL_SEEDS

BOUNDARIES = range(1, 22, 1 if ALL_SEEDS else 7)
"""By day each seventh. Beginning, ending and undoing it have 15 to 20 each; a later death falls into the quiet time after it."""
SURE = 10


async def left_over(bench: Story) -> list[str]:
    """Whatever sidecars put on nodes or made for them, besides the report and the Lease of the looker."""
    node = await node_of(bench)
    keys = {*(node["metadata"].get("annotations") or {}), *node["metadata"]["labels"]}
    ours = [key for key in keys if names.GROUP in key.partition("/")[0]] + [key for key in keys if key == names.DO_NOT_DISRUPT]
    objects = [item["metadata"]["name"] for resource in (LEASES, BUDGETS, DEPLOYMENTS) for item in await all_of(bench, resource)]
    return [key for key in ours if not key.startswith("topology.")] + [name for name in objects if name != names.watch(DRIVER)]


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("step", ["beginning", "ending"])
def test_an_evacuation_that_was_killed_anywhere_still_ends_and_leaves_nothing(boundary: int, step: str) -> None:
    async def story(bench: Story) -> None:
        await with_pod(bench, "a")
        await bench.until_phase(PODS, "a", "Running")
        await wait(bench, 5)
        if step == "beginning":
            bench.nodes["n0"].doom(boundary)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "InProgress"
        assert len(await all_of(bench, BUDGETS)) == 1
        if step == "ending":
            bench.nodes["n0"].doom(boundary)
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await bench.you.delete(CLAIMS, "a", namespace="default")
        await wait(bench, 120)  # one that has just started asks its driver twice, a minute apart
        assert (await node_of(bench))["metadata"]["labels"][STATE] == "Success"
        assert await all_of(bench, BUDGETS) == []
        await change(bench, "n0", {"taints": None})
        await wait(bench, 120)
        assert await left_over(bench) == []
        assert boundary > SURE or len(bench.nodes["n0"].ends) == 1

    play(story, args=ARGS, nodes=("n0",))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_an_undoing_that_was_killed_anywhere_leaves_nothing_but_the_gate(boundary: int) -> None:
    """The volume stays, so does what guards it; what belonged to the evacuation goes."""

    async def story(bench: Story) -> None:
        await with_pod(bench, "a")
        await bench.until_phase(PODS, "a", "Running")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        bench.nodes["n0"].doom(boundary)
        await change(bench, "n0", {"taints": None})
        await wait(bench, 120)
        node = await node_of(bench)
        guard = names.guard("n0", node["metadata"]["uid"], DRIVER)
        guarding = {guard, names.DO_NOT_DISRUPT, names.of_driver(DRIVER, names.AUTOSCALER_MARKER)}
        assert set(await left_over(bench)) == guarding
        assert boundary > SURE or len(bench.nodes["n0"].ends) == 1
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await bench.you.delete(CLAIMS, "a", namespace="default")
        await wait(bench, 120)
        assert await left_over(bench) == []

    play(story, args=ARGS, nodes=("n0",))
