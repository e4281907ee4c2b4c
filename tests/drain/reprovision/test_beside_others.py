"""Making a replica anew beside others who send pods away, or keep them: sidecars that empty nodes, webhooks, people and their tools."""

import asyncio
from typing import Final

from sidecar.kube.api import CLAIMS, MERGE_PATCH
from sidecar.model import names
from sidecar.simulation.cluster import Call
from sidecar.simulation.notebook.notebook_world import NotebookWorld
from tests.drain.reprovision.test_controller import Seen, Workload, evacuate, places, play
from tests.harness.drain.simulated import EVACUATE, change, wait

ON_ITS_WAY: Final = 9.0
"""Seconds: a little less than a sidecar waits for an answer."""


async def may_be_lost(bench: NotebookWorld, claim: str) -> None:
    """Emptying evicts its pod, and nobody deletes the claim."""
    notes = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: "Ignore"}}}
    await bench.you.patch(CLAIMS, claim, notes, namespace="default", content_type=MERGE_PATCH)


async def fewest_ready(bench: NotebookWorld, seconds: int) -> int:
    fewest = len(await places(bench))
    for _ in range(seconds):
        await wait(bench, 1)
        fewest = min(fewest, len(await places(bench)))
    return fewest


async def slowly(bench: NotebookWorld) -> None:
    """The replacement of db-0 finds a place elsewhere so late that it is away for long."""
    await change(bench, "n3", labels={"for-db-0": None})
    await wait(bench, 60)
    await change(bench, "n3", labels={"for-db-0": "yes"})


def test_an_eviction_of_a_node_that_is_emptied_and_the_eviction_for_a_replica_do_not_cross() -> None:
    """No budget keeps them apart, and the request of the one is on its way while the other looks."""
    seen = Seen()
    started = asyncio.Event()

    async def delay(call: Call) -> None:
        if call.subresource == "eviction" and call.name == "db-1" and not started.is_set():
            started.set()
            await asyncio.sleep(ON_ITS_WAY)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await may_be_lost(bench, "data-db-1")
        await wait(bench, 20)
        await change(bench, "n1", {"taints": [EVACUATE]}, labels={"for-db-1": None})
        seen.at("evict db-0", lambda: bench.spawn(slowly(bench)), after=True)
        await started.wait()
        await evacuate(bench)
        assert await fewest_ready(bench, 300) == 2
        assert "evict db-1" in seen.did

    play(story, seen, delay=delay)


def test_a_node_that_is_emptied_waits_for_a_replica_that_is_being_made_anew() -> None:
    seen = Seen()
    started = asyncio.Event()

    async def delay(call: Call) -> None:
        if call.subresource == "eviction" and call.name == "db-0" and not started.is_set():
            started.set()
            await asyncio.sleep(ON_ITS_WAY)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await may_be_lost(bench, "data-db-1")
        await wait(bench, 20)
        await evacuate(bench)
        seen.at("evict db-0", lambda: bench.spawn(slowly(bench)), after=True)
        await started.wait()
        await change(bench, "n1", {"taints": [EVACUATE]}, labels={"for-db-1": None})
        assert await fewest_ready(bench, 300) == 2
        assert {"delete data-db-0", "evict db-1"} <= set(seen.did)

    play(story, seen, delay=delay)
