"""A retirement is announced, the node cordoned, and the announcement taken back; people leave the cordon to the end."""

from typing import Final

import pytest

from hack.sim.world.story import Story
from sidecar.kube.api import MERGE_PATCH, NODES
from sidecar.model import names
from tests.harness.drain.simulated import change, wait
from tests.harness.replicas_anew import ANEW, Seen, Workload, at_rest, places, play, uids

EVACUATES: Final = tuple(arg.replace("NoSchedule", "Evacuate") for arg in ANEW)
BEFORE: Final = {"note data-db-0": "create lease", "evict db-0": "note data-db-0", "delete data-db-0": "evict db-0"}


async def announce(bench: Story) -> None:
    await change(bench, "n0", {"unschedulable": True}, annotations={names.DRAIN_INTENT: "retire"}, labels={"for-db-0": None})


@pytest.mark.parametrize("args", [ANEW, EVACUATES], ids=["NoSchedule", "Evacuate"])
@pytest.mark.parametrize("step", BEFORE)
def test_what_was_announced_is_taken_back_before_a_step_and_the_step_is_not_taken(step: str, args: tuple[str, ...]) -> None:
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        before = await uids(bench)

        def release() -> None:
            undo = {"metadata": {"annotations": {names.DRAIN_INTENT: None}, "labels": {"for-db-0": "yes"}}}
            bench.cluster.patch(NODES, "n0", undo, content_type=MERGE_PATCH)

        seen.at(BEFORE[step], release, after=True)
        await announce(bench)
        await wait(bench, 40)
        assert ("evict db-0" in seen.did) is (step == "delete data-db-0")
        assert await uids(bench) == before
        await change(bench, "n0", {"unschedulable": None})
        await wait(bench, 160)
        assert "delete data-db-0" not in seen.did
        assert await uids(bench) == before
        assert (await places(bench))["db-0"] == "n0"
        assert await at_rest(bench)

    play(story, seen, args=args)


def test_a_cordon_that_nobody_explains_is_still_believed_by_what_was_seen_before() -> None:
    """It has lasted its minute: the Node that is read right before a step cannot tell that."""
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        await change(bench, "n0", {"unschedulable": True}, labels={"for-db-0": None})
        await wait(bench, 240)
        assert "delete data-db-0" in seen.did
        assert (await places(bench))["db-0"] == "n3"

    play(story, seen, args=EVACUATES)
