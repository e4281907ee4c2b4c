"""An outage of the API server of half a minute ends, and no node's verdict has changed."""

from typing import Any

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.kube.api import DRAIN_REPORTS, NODES, PODS
from sidecar.kube.errors import ApiError, Unavailable
from tests.harness.drain.simulated import JUDGING, all_of, node_of, play, wait, with_pod


def test_verdicts_outlast_an_outage_and_nothing_is_written_after_it() -> None:
    away = False
    writes: list[str] = []

    def refuse(call: Call) -> ApiError | None:
        if away:
            return Unavailable("connection refused")
        if call.verb not in ("get", "list", "watch") and call.resource in (NODES, DRAIN_REPORTS):
            writes.append(f"{call.verb} {call.resource}")
        return None

    async def verdicts(bench: Story) -> dict[str, Any]:
        ours = [each for each in (await node_of(bench))["status"]["conditions"] if each["type"].startswith(DRIVER)]
        return {each["type"]: (each["status"], each["reason"]) for each in ours}

    async def story(bench: Story) -> None:
        nonlocal away
        await with_pod(bench, "db-0")
        await wait(bench, 100)  # until the drivers have been asked what they have
        before = await verdicts(bench)
        assert before[f"{DRIVER}/RetireReady"][0] == "False"
        writes.clear()
        for start in range(4):  # wherever in the minute between two questions it begins
            away = True
            await wait(bench, 30)
            away = False
            for _ in range(70 + start * 7):
                await wait(bench, 1)
                assert await verdicts(bench) == before
        assert len(writes) <= 8, writes  # two heartbeats of both nodes, and no flip
        assert [pod["metadata"]["name"] for pod in await all_of(bench, PODS)] == ["db-0"]

    play(story, args=JUDGING, refuse=refuse)
