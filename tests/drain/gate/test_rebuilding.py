"""A gate that somebody takes away is built again at once, and one that somebody takes away for ever costs no node a write a second."""

import asyncio
from collections import Counter

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.drain.gate.rebuilding import Rebuilding
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, MERGE_PATCH, Resource
from sidecar.kube.errors import NotFound
from sidecar.model import names
from tests.harness.drain.gate_life import GATED, SHUT, cordon, gate
from tests.harness.drain.simulated import all_of, node_of, play, report_of, wait, with_pod

A_WHILE = 1200.0
# Seven in the first two minutes, then one a minute; and a gate is two objects.
MOST_WRITES = 2 * 27


async def taken_away(bench: NotebookWorld, kinds: tuple[Resource, ...]) -> None:
    """A controller that knows nothing of gates, and deletes what it does not know as soon as it sees it."""
    name = names.guard((await node_of(bench))["metadata"]["uid"], DRIVER)
    while True:
        for kind in kinds:
            for obj in await all_of(bench, kind):
                if obj["metadata"]["name"] == name:
                    await bench.you.delete(kind, name, namespace=obj["metadata"]["namespace"])
        await asyncio.sleep(0.1)


async def changed(bench: NotebookWorld) -> None:
    """A webhook that takes all tolerations away."""
    name = names.guard((await node_of(bench))["metadata"]["uid"], DRIVER)
    bare = {"spec": {"template": {"spec": {"tolerations": None}}}}
    while True:
        for obj in await all_of(bench, DEPLOYMENTS):
            if obj["metadata"]["name"] == name and obj["spec"]["template"]["spec"].get("tolerations"):
                try:
                    await bench.you.patch(DEPLOYMENTS, name, bare, content_type=MERGE_PATCH, namespace=obj["metadata"]["namespace"])
                except NotFound:
                    pass
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("drained", [False, True], ids=["in-peace", "drained"])
@pytest.mark.parametrize("kinds", [(DEPLOYMENTS,), (BUDGETS,), (BUDGETS, DEPLOYMENTS), ()], ids=["guard", "budget", "both", "webhook"])
def test_who_takes_it_away_for_ever_has_no_node_write_for_ever(kinds: tuple[Resource, ...], drained: bool) -> None:
    writes, written = Counter[str](), list[int]()
    told: list[str] = []

    def count(call: Call) -> None:
        if call.resource in (DEPLOYMENTS, BUDGETS):
            writes[call.verb] += 1

    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await wait(bench, 20)
        await cordon(bench, drained)
        assert await gate(bench) == SHUT
        taking = asyncio.create_task(taken_away(bench, kinds) if kinds else changed(bench))
        writes.clear()
        await wait(bench, A_WHILE)
        written.append(writes["create"] + writes["delete"])
        gates = (await report_of(bench))["gate"]
        told.append(gates["why"])
        taking.cancel()
        await wait(bench, 150)
        assert await gate(bench) == SHUT

    play(story, args=GATED, refuse=count)
    assert written[0] <= MOST_WRITES
    assert "again and again" in told[0] or BUDGETS not in kinds


def test_one_that_is_taken_away_once_is_built_again_at_once_however_often_in_a_day() -> None:
    building = Rebuilding()
    for now in range(0, 86_400, 300):
        assert building.due <= now
        building = building.built(float(now))


def test_the_more_often_it_is_taken_away_the_longer_it_takes() -> None:
    building, waits = Rebuilding(), list[float]()
    for _ in range(8):
        now = max(building.built_at, building.due, 0.0)
        building = building.built(now)
        waits.append(max(0.0, building.due - now))
    assert waits == [0, 2, 4, 8, 16, 32, 60, 60]
