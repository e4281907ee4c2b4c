"""A claim that somebody moves to and fro between nodes is tried no more often than one that stays."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from hack.sim.driver.faults import Fault
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.claim_rates import MEASURES, MOST
from hack.sim.world.node import DRIVER
from sidecar.csi.outcome import Code
from sidecar.kube.api import CAPACITIES, CLAIMS, MERGE_PATCH
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE
from tests.harness.drain.simulated import play, wait

MINUTES = 2


async def claim(bench: NotebookWorld, node: str, *, class_: str = "late", size: str = "1Gi", name: str = "a", **more: Any) -> None:
    spec = {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **more}
    notes = {names.STORAGE_PROVISIONER: DRIVER, **({names.SELECTED_NODE: node} if node else {})}
    meta = {"name": name, "namespace": "default", "annotations": notes}
    await bench.you.create(CLAIMS, {"metadata": meta, "spec": spec}, namespace="default")


async def move(bench: NotebookWorld, node: str | None, *, name: str = "a") -> None:
    meta = {"metadata": {"annotations": {names.SELECTED_NODE: node}}}
    await bench.you.patch(CLAIMS, name, meta, content_type=MERGE_PATCH, namespace="default")


def calls(bench: NotebookWorld, node: str) -> list[float]:
    return [call.at for call in bench.nodes[node].reception.record.calls if call.method in ("CreateVolume", "DeleteVolume")]


def fail(bench: NotebookWorld, code: Code) -> None:
    for node in bench.nodes.values():
        node.strike(Fault(method="CreateVolume", fail=code, times=10**6))


@pytest.mark.parametrize(
    ("code", "pause"),
    [
        (Code.INTERNAL, 0.7),
        (Code.INTERNAL, 4.0),
        (Code.FAILED_PRECONDITION, 0.7),
        (Code.FAILED_PRECONDITION, 4.0),
        (Code.INVALID_ARGUMENT, 0.7),
        (Code.RESOURCE_EXHAUSTED, 0.7),
    ],
)
def test_flips_are_no_calls(code: Code, pause: float) -> None:
    counts: list[int] = []

    async def story(bench: NotebookWorld) -> None:
        fail(bench, code)
        await claim(bench, "n0")
        for number in range(int(MINUTES * 60 / pause)):
            await move(bench, f"n{number % 2}")
            await asyncio.sleep(pause)
        counts.extend(len(calls(bench, node)) for node in bench.nodes)

    play(story, args=())
    assert all(0 < count <= MINUTES * 4 + 8 for count in counts), counts


@pytest.mark.parametrize("size", ["1Gi", "5000000Gi"])
@pytest.mark.parametrize("elsewhere", ["nowhere", "n1"])
@pytest.mark.parametrize("says", [None, Code.UNAVAILABLE, Code.INTERNAL], ids=str)
def test_an_open_claim_that_comes_and_goes_is_measured_and_written_at_a_pace(size: str, elsewhere: str, says: Code | None) -> None:
    """Each node begins its race anew; and a driver that says to GetCapacity that it is unavailable may have gone each time, and where it
    does not say how much is free the other nodes come first each time."""
    counts: dict[str, int] = {}

    async def story(bench: NotebookWorld) -> None:
        await bench.storage_class("immediate", IMMEDIATE)
        fail(bench, Code.FAILED_PRECONDITION)
        for node in bench.nodes.values() if says else ():
            node.strike(Fault(method="GetCapacity", fail=says, times=10**6))
        await claim(bench, "", class_="immediate", size=size)
        for number in range(90):
            await move(bench, elsewhere if number % 2 else None)
            await asyncio.sleep(0.5 + number % 7 / 10)
        for asker, count in bench.request_log.rates.busiest():
            counts[asker.what] = max(counts.get(asker.what, 0), count)

    play(story, args=("--node-deployment-placement=ranked",))
    assert counts[MEASURES] > 0 and all(count <= MOST[what] for what, count in counts.items()), counts


def test_the_first_move_back_counts_at_once() -> None:
    async def story(bench: NotebookWorld) -> None:
        fail(bench, Code.INTERNAL)
        await claim(bench, "n0")
        await wait(bench, 200)
        await move(bench, "n1")
        await wait(bench, 5)
        for node in bench.nodes.values():
            node.strike(None)
        await move(bench, "n0")
        await wait(bench, 1)
        assert (await bench.you.get(CLAIMS, "a", namespace="default"))["spec"].get("volumeName")

    play(story, args=())


@pytest.mark.parametrize(
    ("code", "spec"),
    [(Code.INTERNAL, {"selector": {"matchLabels": {"a": "b"}}}), (Code.FAILED_PRECONDITION, {}), (Code.INTERNAL, {})],
    ids=["refused at once", "refused", "fails"],
)
@pytest.mark.parametrize("pause", [1.0, 7.0])
def test_claims_that_come_and_go_and_can_never_be_made_hold_no_space_back(code: Code, spec: dict[str, Any], pause: float) -> None:
    published: list[str] = []

    async def story(bench: NotebookWorld) -> None:
        fail(bench, code)
        many = [f"a{number}" for number in range(3)]
        for name in many:
            await claim(bench, "n0", size="30Gi", name=name, **spec)
        bench.spawn(come_and_go(bench, many, pause))
        await wait(bench, 40)
        for _ in range(60):
            await wait(bench, 1)
            figures = (await bench.you.list_page(CAPACITIES)).items
            published.extend(each["capacity"] for each in figures if "n0" in each["nodeTopology"]["matchLabels"].values())

    play(story, args=())
    assert len(published) == 60 and published.count("100Gi") > 55, Counter(published)


async def come_and_go(bench: NotebookWorld, claims: list[str], pause: float) -> None:
    while True:
        for node, seconds in (("n1", 0.2), ("n0", pause)):
            for name in claims:
                await move(bench, node, name=name)
            await asyncio.sleep(seconds)
