"""What a tenant may do with pods that wait for a node, and that it keeps nobody else on a node that is emptied."""

import asyncio
import contextlib

from hack.sim.cluster import Call
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import MERGE_PATCH, PODS
from sidecar.kube.errors import Conflict, NotFound
from tests.harness.drain import simulated
from tests.harness.drain.emptying import EVICTING, Evictions, pods, run, waiting
from tests.harness.drain.simulated import EVACUATE, change, wait


async def alone_here(bench: NotebookWorld) -> str:
    """A pod that waits for a node with a volume on the one that is returned, where another tenant's pod runs too."""
    node = await waiting(bench)
    await run(bench, "other", namespace="other", nodeName=node)
    await wait(bench, 20)
    return node


def test_a_pod_that_somebody_changes_all_the_time_keeps_no_other_one_here() -> None:
    """Each change is another version, in which it may have got a node."""
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        node = await alone_here(bench)

        async def hot() -> None:
            for number in range(100_000):
                with contextlib.suppress(NotFound, Conflict):
                    note = {"metadata": {"annotations": {"example.com/count": str(number)}}}
                    await bench.you.patch(PODS, "db-0", note, namespace="default", content_type=MERGE_PATCH)
                await asyncio.sleep(0.02)

        bench.spawn(hot())
        await change(bench, node, {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert "other" not in await pods(bench)

    async def on_its_way(call: Call) -> None:
        await asyncio.sleep(0.05 if call.subresource == "eviction" else 0.0)

    simulated.play(story, args=EVICTING, refuse=seen, delay=on_its_way)
