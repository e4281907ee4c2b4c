"""An answer to one of our own writes arrives after the watch has shown more than it says."""

import asyncio

import pytest

from hack.sim.cluster import Call
from hack.sim.world.story import Story
from sidecar.kube.api import MERGE_PATCH, NODES
from tests.harness.drain.simulated import EVACUATE, EVACUATING, STATE, change, node_of, play, wait, with_pod


@pytest.mark.parametrize("late", [1, 2])
def test_an_undo_is_believed_though_the_answer_to_our_own_mark_comes_after_it(late: int) -> None:
    """`late`: which of the writes that begin the evacuation; of the last one nothing else would tell."""
    benches: list[Story] = []
    marks = 0

    async def answering(call: Call) -> None:
        nonlocal marks
        if not benches or (call.verb, call.resource, call.name) != ("patch", NODES, "n0"):
            return
        marks += 1
        if marks == late:
            await asyncio.sleep(1)
            benches[0].cluster.patch(NODES, "n0", {"spec": {"taints": None}}, content_type=MERGE_PATCH)
            await asyncio.sleep(1)

    async def story(bench: Story) -> None:
        await with_pod(bench, "db-0")
        await wait(bench, 20)
        benches.append(bench)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 20)
        assert marks >= late
        assert STATE not in ((await node_of(bench))["metadata"].get("labels") or {})

    play(story, args=EVACUATING, answering=answering)
