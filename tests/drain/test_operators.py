"""What operators do while a node is missed: another policy, an uninstallation, a node that comes back."""

from hack.sim.world.node import DRIVER
from sidecar.commands.uninstall import Step, steps
from sidecar.kube.api import CLAIMS, CSI_NODES, MERGE_PATCH, NODES, VOLUMES
from sidecar.kube.errors import NotFound
from sidecar.model import names
from tests.harness.drain.simulated import EVACUATE, Story, change, node_of, wait
from tests.harness.gone_nodes import (
    CLEANING,
    TELLING,
    Watchman,
    announce,
    gone,
    note,
    one_replica,
    play,
    say,
    there,
    uid_of,
    vanish,
)

ORPHAN, CLEANUP = TELLING[-1], CLEANING[-1]


async def announced(bench: Story) -> None:
    await one_replica(bench)
    await announce(bench)


async def marked(bench: Story) -> None:
    """Until the claim is marked, and is not deleted yet."""
    for _ in range(300):
        await wait(bench, 1)
        claim = await bench.you.get(CLAIMS, "data-db-0", namespace="default")
        if names.LOST_WITH in claim["metadata"]["annotations"]:
            return
    raise AssertionError("nobody marks it")


async def roll(bench: Story, policy: str) -> None:
    """As a DaemonSet does: one process after the other."""
    for name in ("n1", "n2"):
        bench.nodes[name].flags = (policy,)
        bench.nodes[name].kill()
        await wait(bench, 5)


def test_a_change_to_orphan_midway_keeps_what_is_there_and_one_back_goes_on() -> None:
    async def story(bench: Story) -> None:
        await announced(bench)
        await vanish(bench)
        await marked(bench)
        await roll(bench, ORPHAN)
        await wait(bench, 3000)
        assert await there(bench, CLAIMS) == ["data-db-0"]
        assert (await gone(bench))["evidence"] == "Announced"
        await roll(bench, CLEANUP)
        await wait(bench, 1500)
        assert await there(bench, CLAIMS) == await there(bench, VOLUMES) == []

    play(story, args=CLEANING)


async def uninstall(bench: Story) -> None:
    async for step in steps(bench.you, DRIVER):
        assert isinstance(step, Step)
        try:
            if step.verb == "delete":
                await bench.you.delete(step.resource, step.name, namespace=step.namespace)
            elif step.patch is not None:
                await bench.you.patch(step.resource, step.name, step.patch, content_type=MERGE_PATCH, namespace=step.namespace)
        except NotFound:
            pass  # as another step has it


def test_an_uninstallation_midway_leaves_the_data_and_no_mark() -> None:
    def case(running: bool) -> None:
        seen = Watchman()

        async def story(bench: Story) -> None:
            await announced(bench)
            await vanish(bench)
            await marked(bench)
            if not running:
                for name in ("n1", "n2"):
                    bench.nodes[name].lay_down()
            await uninstall(bench)
            await wait(bench, 3000)
            claim = await bench.you.get(CLAIMS, "data-db-0", namespace="default")
            assert names.LOST_WITH not in claim["metadata"]["annotations"]
            assert len(await there(bench, VOLUMES)) == 1

        play(story, seen, args=CLEANING)
        assert seen.of("delete", CLAIMS) == seen.of("delete", VOLUMES) == []

    for running in (True, False):
        case(running)


def test_a_node_that_is_deleted_for_a_while_keeps_its_data_and_is_retired_later() -> None:
    """By mistake, or by a cloud controller while the machine is stopped. An earlier announcement was undone."""

    def case(away: float) -> None:
        async def story(bench: Story) -> None:
            await one_replica(bench)
            await change(bench, "n0", {"taints": [EVACUATE]})
            await wait(bench, 60)
            await change(bench, "n0", {"taints": None})
            await wait(bench, 60)
            found = {NODES: await node_of(bench), CSI_NODES: await bench.you.get(CSI_NODES, "n0")}
            await vanish(bench)
            await wait(bench, away)
            for resource, obj in found.items():
                meta = {"name": "n0", "labels": obj["metadata"].get("labels") or {}}
                await bench.you.create(resource, {"metadata": meta, "spec": obj.get("spec") or {}})
            await wait(bench, 700)
            assert (len(await there(bench, CLAIMS)), len(await there(bench, VOLUMES))) == (1, 1)
            assert await gone(bench) == {}
            uid = await uid_of(bench)
            await note(bench, "data-db-0", {names.LIES_ON: f"n0/{uid}"})
            for resource in found:
                await bench.you.delete(resource, "n0")
            await wait(bench, 700)
            await say(bench, uid)
            await wait(bench, 1500)
            assert await there(bench, CLAIMS) == await there(bench, VOLUMES) == []

        play(story, args=CLEANING)

    for away in [20.0, 5000.0]:
        case(away)
