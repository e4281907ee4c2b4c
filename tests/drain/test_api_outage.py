"""An outage of the API server of half a minute ends, and no node's verdict has changed."""

from typing import Any

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, NODES, PODS
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, all_of, node_of, play, wait, with_pod


def test_an_old_true_is_taken_back_at_a_start_whose_first_requests_are_refused() -> None:
    began = False
    failed: list[str] = []

    def refuse(call: Call) -> ApiError | None:
        first = (call.verb, call.resource) == ("get", NODES) and not failed
        if began and first:
            failed.append(call.name)
        return Unavailable("overload") if began and (first or (call.verb, call.resource) == ("list", CLAIMS)) else None

    async def retire_ready(bench: Story) -> str:
        told = (await node_of(bench))["status"]["conditions"]
        return next(str(each["status"]) for each in told if each["type"] == names.condition(DRIVER, names.RETIRE_READY))

    async def story(bench: Story) -> None:
        nonlocal began
        await wait(bench, 100)
        assert await retire_ready(bench) == "True"
        began = True
        bench.nodes["n0"].kill()
        await wait(bench, 60)
        assert failed and await retire_ready(bench) == "Unknown"

    play(story, args=JUDGING, refuse=refuse, nodes=("n0",))


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
