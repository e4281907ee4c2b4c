"""Ready is not caught up: between two replicas of one workload there is time for the new one to copy its data."""

import itertools
from typing import Any

import pytest

from sidecar.kube.api import MERGE_PATCH, PODS, STATEFUL_SETS
from sidecar.model import names
from tests.harness.drain.simulated import EVACUATE, Story, change, report_of, wait
from tests.harness.replicas_anew import PAUSING, Seen, Workload, places, play

HALF_AN_HOUR = 1800.0
CONDITION = "example.com/InSync"


async def retire_all(bench: Story) -> None:
    """All three nodes at once, while each replica may run on two others."""
    for node in ("n4", "n5"):
        await change(bench, node, labels={f"for-db-{number}": "yes" for number in range(3)})
    for number, node in enumerate(("n0", "n1", "n2")):
        labels = {f"for-db-{other}": None for other in range(3)}
        await change(bench, node, {"taints": [EVACUATE]}, labels=labels | {f"was-of-{number}": "yes"})


def deletions(seen: Seen) -> list[str]:
    return [what for what in seen.did if what.startswith("delete data-")]


@pytest.mark.parametrize("args", [PAUSING, (*PAUSING, "--max-concurrent-evacuations=1")], ids=["no limit", "one node at a time"])
def test_of_three_nodes_that_are_retired_at_once_each_replica_has_half_an_hour(args: tuple[str, ...]) -> None:
    seen = Seen()
    at: list[float] = []

    async def story(bench: Story, _: Workload) -> None:
        await wait(bench, HALF_AN_HOUR)
        begun = bench.clock()
        await retire_all(bench)
        for _ in range(6000):
            await wait(bench, 1)
            if len(deletions(seen)) > len(at):
                at.append(bench.clock() - begun)
        assert len(at) == 3
        assert all(later - earlier >= HALF_AN_HOUR for earlier, later in itertools.pairwise(at)), at
        assert set(await places(bench)) == {"db-0", "db-1", "db-2"}

    play(story, seen, args=args, nodes=("n0", "n1", "n2", "n3", "n4", "n5"))


def test_the_first_one_waits_too_while_another_is_ready_since_a_moment_and_the_report_says_so() -> None:
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        await change(bench, "n0", {"taints": [EVACUATE]}, labels={"for-db-0": None})
        await wait(bench, 300)
        assert deletions(seen) == []
        assert "ReplicaNotInSync" in str(await report_of(bench))
        await wait(bench, HALF_AN_HOUR)
        assert deletions(seen) == ["delete data-db-0"]

    play(story, seen, args=PAUSING)


async def in_sync(bench: Story, pod: str, status: str) -> None:
    found: dict[str, Any] = await bench.you.get(PODS, pod, namespace="default")
    others = [each for each in found["status"]["conditions"] if each["type"] != CONDITION]
    patch = {"status": {"conditions": [*others, {"type": CONDITION, "status": status}]}}
    await bench.you.patch(PODS, pod, patch, namespace="default", subresource="status", content_type=MERGE_PATCH)


def test_where_the_owner_names_a_condition_that_decides_and_no_time() -> None:
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        named = {"metadata": {"annotations": {names.IN_SYNC_CONDITION: CONDITION}}}
        await bench.you.patch(STATEFUL_SETS, "db", named, namespace="default", content_type=MERGE_PATCH)
        await in_sync(bench, "db-1", "True")
        await in_sync(bench, "db-2", "False")
        await change(bench, "n0", {"taints": [EVACUATE]}, labels={"for-db-0": None})
        await wait(bench, 2 * HALF_AN_HOUR)
        assert deletions(seen) == []
        await in_sync(bench, "db-2", "True")
        await wait(bench, 120)
        assert deletions(seen) == ["delete data-db-0"]

    play(story, seen, args=PAUSING)
