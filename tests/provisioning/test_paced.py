"""Whatever people, controllers and webhooks do to a claim or a volume: it is worked on no more often than one that they leave alone."""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.driver.calls import Fault
from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.csi.outcome import Code
from sidecar.kube.api import CAPACITIES, CLAIMS, EVENTS, MERGE_PATCH, VOLUMES, Resource
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE
from tests.harness.drain.simulated import play, wait

Json = dict[str, Any]
MINUTES = 2
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
CREATIONS = DELETIONS = 10
MEASURES = WRITES = 20
"""In a minute, at the most, by one process for one claim or volume."""


class Watcher:
    """Notes when sidecars write claims and volumes."""

    def __init__(self) -> None:
        self.writes: list[float] = []

    async def __call__(self, call: Call) -> None:
        if call.resource in (CLAIMS, VOLUMES) and call.verb in ("create", "update", "patch", "delete"):
            self.writes.append(asyncio.get_running_loop().time())


def busiest_minute(times: list[float]) -> int:
    return max((last + 1 - bisect_left(times, at - 60.0, hi=last) for last, at in enumerate(times)), default=0)


def calls(bench: Story, node: str, *methods: str) -> list[float]:
    return [call.at for call in bench.nodes[node].reception.record.calls if call.method in methods]


def fail(bench: Story, method: str, code: Code | None) -> None:
    for node in bench.nodes.values():
        node.reception.faults.set([Fault(method=method, fail=code, times=10**6)] if code else [])


async def claim(bench: Story, node: str, *, class_: str = "late", size: str = "1Gi", name: str = "a") -> None:
    spec = {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    notes = {names.STORAGE_PROVISIONER: DRIVER, **({names.SELECTED_NODE: node} if node else {})}
    meta = {"name": name, "namespace": "default", "annotations": notes}
    await bench.you.create(CLAIMS, {"metadata": meta, "spec": spec}, namespace="default")


async def edit(bench: Story, name: str = "a", **meta: Any) -> None:
    await bench.you.patch(CLAIMS, name, {"metadata": meta}, content_type=MERGE_PATCH, namespace="default")


async def move(bench: Story, node: str | None, name: str = "a") -> None:
    await edit(bench, name, annotations={names.SELECTED_NODE: node})


async def volume(bench: Story) -> Json:
    (found,) = (await bench.you.list_page(VOLUMES)).items
    return found


def webhook(bench: Story, resource: Resource, change: Callable[[Json], None]) -> None:
    """What admission makes of each write."""
    real = bench.cluster._update

    def update(kind: Any, old: Any, new: Json, **rest: Any) -> Any:
        if kind.resource == resource:
            change(new["metadata"])
        return real(kind, old, new, **rest)

    bench.cluster._update = update  # type: ignore[method-assign]


# --- claims -----------------------------------------------------------------------------------------------------------


def test_an_edit_each_second_is_no_call_each_second() -> None:
    edits: list[Callable[[int], Json]] = [
        lambda number: {"annotations": {"note": str(number)}},
        lambda number: {"annotations": {names.TRIED_BY: f"{number} n0"}},
        lambda number: {"finalizers": [names.CLONE_FINALIZER] if number % 2 else []},
        lambda number: {"ownerReferences": [OWNER] if number % 2 else []},
        lambda number: {"annotations": {names.STORAGE_CLASS_BETA: "late" if number % 2 else None}},
    ]

    async def story(bench: Story) -> None:
        fail(bench, "CreateVolume", Code.INTERNAL)
        await claim(bench, "n0")
        for number in range(MINUTES * 60):
            await edit(bench, **edits[number % len(edits)](number // len(edits)))
            await asyncio.sleep(1)
        assert busiest_minute(calls(bench, "n0", "CreateVolume")) <= CREATIONS

    play(story, args=())


def test_who_mends_a_claim_need_not_wait_for_the_end_of_a_long_back_off() -> None:
    async def story(bench: Story) -> None:
        fail(bench, "CreateVolume", Code.INTERNAL)
        await claim(bench, "n0")
        await wait(bench, 275)
        fail(bench, "CreateVolume", None)
        await edit(bench, annotations={"note": "mended"})
        await wait(bench, 1)
        assert (await volume(bench))["status"]["phase"] == "Bound"

    play(story, args=())


def test_a_claim_that_is_moved_to_and_fro_is_tried_no_more_often_than_one_that_stays() -> None:
    async def story(bench: Story) -> None:
        for code in (Code.INTERNAL, Code.RESOURCE_EXHAUSTED):
            fail(bench, "CreateVolume", code)
            await claim(bench, "n0", name=code.value.lower())
            for number in range(86):
                await move(bench, f"n{number % 2}", code.value.lower())
                await asyncio.sleep(0.7)
            await bench.you.delete(CLAIMS, code.value.lower(), namespace="default")
            await wait(bench, 60)
        for node in bench.nodes:
            assert 0 < busiest_minute(calls(bench, node, "CreateVolume", "DeleteVolume")) <= CREATIONS

    play(story, args=())


def test_an_open_claim_that_comes_and_goes_is_measured_and_written_at_a_pace() -> None:
    """Each node begins its race anew, and one whose driver does not say how much is free leaves the claim to the others each time."""
    for says in (None, Code.UNAVAILABLE, Code.INTERNAL):
        written = Watcher()

        async def story(bench: Story, says: Code | None = says) -> None:
            await bench.storage_class("immediate", IMMEDIATE)
            fail(bench, "GetCapacity" if says else "CreateVolume", says or Code.FAILED_PRECONDITION)
            await claim(bench, "", class_="immediate")
            for number in range(90):
                await move(bench, "n1" if number % 2 else None)
                await asyncio.sleep(0.5 + number % 7 / 10)
            for node in bench.nodes:
                assert busiest_minute(calls(bench, node, "GetCapacity")) <= MEASURES

        play(story, args=("--node-deployment-placement=ranked", "--enable-capacity=false"), delay=written)
        assert busiest_minute(written.writes) <= 2 * WRITES


def test_claims_that_come_and_go_and_can_never_be_made_hold_no_space_back() -> None:
    published: list[str] = []

    async def come_and_go(bench: Story) -> None:
        while True:
            for node, seconds in (("n1", 0.2), ("n0", 1.0)):
                for number in range(3):
                    await move(bench, node, f"a{number}")
                await asyncio.sleep(seconds)

    async def story(bench: Story) -> None:
        fail(bench, "CreateVolume", Code.FAILED_PRECONDITION)
        for number in range(3):
            await claim(bench, "n0", size="30Gi", name=f"a{number}")
        bench.spawn(come_and_go(bench))
        await wait(bench, 40)
        for _ in range(30):
            await wait(bench, 1)
            figures = (await bench.you.list_page(CAPACITIES)).items
            published.extend(each["capacity"] for each in figures if "n0" in each["nodeTopology"]["matchLabels"].values())

    play(story, args=())
    assert len(published) == 30 and published.count("100Gi") > 27


def test_a_bid_that_a_webhook_undoes_is_repeated_at_a_pace_and_told_and_holds_once_it_stays() -> None:
    written = Watcher()

    async def story(bench: Story) -> None:
        is_on = True
        await bench.storage_class("immediate", IMMEDIATE)
        webhook(bench, CLAIMS, lambda meta: (meta.get("annotations") or {}).pop(names.SELECTED_NODE, None) if is_on else None)
        await claim(bench, "", class_="immediate")
        await wait(bench, 65)
        told = [event["message"] for event in (await bench.you.list_page(EVENTS)).items if event.get("type") == "Warning"]
        assert any(names.SELECTED_NODE in text and "something takes it off again" in text for text in told)
        is_on = False
        await wait(bench, 400)
        assert (await volume(bench))["status"]["phase"] == "Bound"

    play(story, args=("--node-deployment-placement=ranked",), delay=written)
    assert busiest_minute(written.writes) <= 2 * WRITES


# --- volumes ----------------------------------------------------------------------------------------------------------


async def bound(bench: Story) -> Callable[[Json], Awaitable[Any]]:
    """A volume, and how it is changed."""
    await claim(bench, "n0")
    await wait(bench, 3)
    name = (await volume(bench))["metadata"]["name"]
    return lambda body: bench.you.patch(VOLUMES, name, body, content_type=MERGE_PATCH)


def policy(number: int) -> Json:
    return {"spec": {"persistentVolumeReclaimPolicy": "Delete" if number % 2 else "Retain"}}


def test_a_volume_that_others_change_all_the_time_is_written_at_a_pace_and_in_the_end_as_it_should_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its reclaim policy goes to and fro, its finalizer is taken off, and a webhook takes it off."""
    written = Watcher()

    async def story(bench: Story) -> None:
        patch, is_on = await bound(bench), False
        webhook(bench, VOLUMES, lambda meta: meta.pop("finalizers", None) if is_on else None)
        for number in range(120):
            await patch(policy(number))
            await asyncio.sleep(0.5)
        for _ in range(120):
            await patch({"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}})
            await asyncio.sleep(0.5)
        await wait(bench, 700)
        assert names.VOLUME_FINALIZER in (await volume(bench))["metadata"]["finalizers"], "in the end it is on"
        is_on = True
        caplog.clear()
        await patch({"metadata": {"labels": {"a": "b"}}})
        await wait(bench, 120)
        assert names.VOLUME_FINALIZER not in (await volume(bench))["metadata"].get("finalizers", [])
        assert any("Something undoes" in line.message for line in caplog.records)
        is_on = False
        await wait(bench, 300)
        assert names.VOLUME_FINALIZER in (await volume(bench))["metadata"]["finalizers"], "though nothing tells that the webhook is gone"

    play(story, args=(), nodes=("n0",), delay=written)
    assert 4 < busiest_minute(written.writes) <= WRITES


def test_a_volume_that_the_driver_does_not_delete_is_tried_at_a_pace_and_soon_after_somebody_mends_it() -> None:
    async def story(bench: Story) -> None:
        patch = await bound(bench)
        fail(bench, "DeleteVolume", Code.INTERNAL)
        await bench.you.delete(CLAIMS, "a", namespace="default")
        for number in range(180):
            await patch({"metadata": {"annotations": {"note": str(number)}}} if number < 90 else policy(number))
            if number % 10 == 0:
                bench.nodes["n0"].link.go_down()
                await asyncio.sleep(0.1)
                bench.nodes["n0"].driver_back()
            await asyncio.sleep(0.5)
        assert 4 < busiest_minute(calls(bench, "n0", "DeleteVolume")) <= DELETIONS
        await wait(bench, 600)
        fail(bench, "DeleteVolume", None)
        await patch({"metadata": {"annotations": {"note": "mended"}}})
        await wait(bench, 1)
        assert (await bench.you.list_page(VOLUMES)).items == []

    play(story, args=(), nodes=("n0",))
