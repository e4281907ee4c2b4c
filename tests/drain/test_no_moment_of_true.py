"""A creation that ends while a look waits for answers: the volume is not held yet when the look begins, nor in flight when it ends."""

import asyncio

import pytest

from hack.sim.cluster import Call
from hack.sim.driver.calls import Fault
from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.kube.api import CLAIMS, PODS
from tests.harness.drain.simulated import all_of, node_of, play, wait, with_pod


async def may_be_retired(bench: Story) -> str:
    conditions = (await node_of(bench))["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == f"{DRIVER}/RetireReady")


async def is_bound(bench: Story, name: str) -> bool:
    return any(claim["metadata"]["name"] == name and claim["status"].get("phase") == "Bound" for claim in await all_of(bench, CLAIMS))


@pytest.mark.parametrize("begun", [36, 40, 57])
def test_retire_ready_is_never_true_while_a_creation_ends_during_a_look(begun: float) -> None:
    """`begun`: when the creation begins, some seconds before the look that waits."""
    benches: list[Story] = []
    held = 0

    async def delay(call: Call) -> None:
        """The list of pods without a node, which a look asks for now and then, is answered after the creation has ended."""
        nonlocal held
        if benches and (call.verb, call.resource) == ("list", PODS):
            held += 1
            while not await is_bound(benches[0], "new-0"):
                await asyncio.sleep(0.5)
            await asyncio.sleep(0.5)

    async def story(bench: Story) -> None:
        await with_pod(bench, "old-0")
        await wait(bench, begun)
        benches.append(bench)
        await bench.you.delete(PODS, "old-0", namespace="default")
        bench.nodes["n0"].reception.faults.set([Fault(method="CreateVolume", hang=9)])
        bench.spawn(with_pod(bench, "new-0"))
        await bench.you.delete(CLAIMS, "old-0", namespace="default")
        await wait(bench, 1)
        assert await may_be_retired(bench) == "False"
        seen = []
        for _ in range(120):
            await wait(bench, 0.25)
            seen.append(await may_be_retired(bench))
        assert held, "no look waited"
        assert await is_bound(bench, "new-0")
        assert "True" not in seen
        assert seen[-1] == "False"

    play(story, delay=delay)
