"""A namespace takes back that its data may be made anew, and the replica's pod leaves by itself a moment later."""

import pytest

from hack.sim.world.story import Story
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, PODS
from sidecar.model import names
from tests.harness.drain.simulated import all_of, wait
from tests.harness.replicas_anew import Seen, Workload, evacuate, play, uids


@pytest.mark.parametrize("step", ["create lease", "note data-db-0", "update lease"])
def test_no_claim_is_deleted_on_what_its_namespace_said_before(step: str) -> None:
    seen = Seen()

    async def story(bench: Story, workload: Workload) -> None:
        async def say(policy: str) -> None:
            patch = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: policy}}}
            await bench.you.patch(NAMESPACES, "default", patch, content_type=MERGE_PATCH)

        async def block() -> None:
            await say("Block")
            workload.stop()
            await bench.you.delete(PODS, "db-0", namespace="default", grace_period_seconds=0)

        await say("Reprovision")
        for claim in await all_of(bench, CLAIMS):
            nothing = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: None}}}
            await bench.you.patch(CLAIMS, claim["metadata"]["name"], nothing, namespace="default", content_type=MERGE_PATCH)
        before = await uids(bench)
        seen.at(step, lambda: bench.spawn(block()), after=True)
        await evacuate(bench)
        await wait(bench, 300)
        assert step in seen.did
        assert "delete data-db-0" not in seen.did
        assert await uids(bench) == before

    play(story, seen)
