"""A mark on a claim of a node that is there again may not be taken off. Nodes that are gone are looked for all the same."""

from hack.sim.cluster import Call
from hack.sim.world.story import Story
from sidecar.kube.api import CLAIMS, MERGE_PATCH
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.model import names
from tests.harness.drain.simulated import wait
from tests.harness.gone_nodes import Watchman, app, gone, holder, play, vanish


def test_the_loss_of_a_node_is_told_though_each_other_node_has_a_claim_that_may_not_be_written() -> None:
    def refuse(call: Call) -> ApiError | None:
        is_mark = (call.verb, call.resource) == ("patch", CLAIMS) and call.name.startswith("kept-")
        return Forbidden("an admission webhook denied the request", status=403) if is_mark else None

    async def story(bench: Story) -> None:
        for node in ("n1", "n2"):
            await app(bench, f"kept-{node}", node=node)
            mark = {"metadata": {"annotations": {names.LOST_WITH: f"{node}/an-earlier-machine"}}}
            await bench.you.patch(CLAIMS, f"kept-{node}", mark, namespace="default", content_type=MERGE_PATCH)
        await app(bench)
        await wait(bench, 100)
        await vanish(bench)
        await wait(bench, 1200)
        assert await holder(bench) in ("n1", "n2")
        assert await gone(bench)

    play(story, Watchman(refuse))
