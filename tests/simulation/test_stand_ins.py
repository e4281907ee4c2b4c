"""What the stand-ins must bear that no real control plane can be made to do on request: late watches, lost answers, outages.

What they do when all is well is held against the real components in tests/contract_control_plane.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, Call, InProcessApi
from hack.sim.stand_ins import Binder, Disruptions, Kubelet, Scheduler, StandInBase, StatefulSets
from sidecar.kube.api import CLAIMS, PODS, VOLUMES
from sidecar.kube.errors import Unavailable
from tests.contract_control_plane.land import Land
from tests.harness.seeds import ALL_SEEDS

PATIENCE = 600.0
"""Of virtual time: a cache whose every second request is lost backs off to 15 s, and nine of them must be filled first."""
SEEDS = range(30 if ALL_SEEDS else 10)

Story = Callable[[Land, InProcessApi], Awaitable[None]]


async def nothing(_: Call) -> None:
    pass


def tell(story: Story, *, before: Callable[[Call], Awaitable[None]] = nothing, after: Callable[[Call], Awaitable[None]] = nothing) -> None:
    """A land whose stand-ins reach the server through these hooks; the story's own requests do not pass them."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        cluster = ApiServer(clock=loop.time, rng=random.Random(1).random)
        theirs = InProcessApi(cluster, before=before, after=after)
        base = StandInBase(theirs, clock=loop.time, rng=random.Random(2))
        for stand_in in (Binder, Scheduler, StatefulSets, Disruptions, Kubelet):
            stand_in(base)
        at_work = asyncio.create_task(base.run())
        await story(Land(InProcessApi(cluster), number=1, limit=PATIENCE), theirs)
        at_work.cancel()
        await asyncio.gather(at_work, return_exceptions=True)

    run_virtual(whole(), limit=3600.0)


async def from_claim_to_deletion(land: Land, _: InProcessApi) -> None:
    """Late binding from its beginning to its end, with the scenario as the provisioner."""
    await land.begin("n1", "n2")
    await land.storage_class("late", "WaitForFirstConsumer")
    await land.capacity("n1", "late", "10Gi")
    claim = await land.claim("data", "late")
    await land.pod("app", "data")
    await land.until(lambda: land.selected("data"), "a node is selected")
    volume = await land.volume(claim, node="n1")
    await land.until(lambda: has_phase(land, PODS, "app", "Running"), "the pod runs")
    assert await land.phase(CLAIMS, "data") == "Bound"
    await land.api.delete(CLAIMS, "data", namespace=land.namespace)
    await land.api.delete(PODS, "app", namespace=land.namespace)
    await land.until(lambda: has_phase(land, VOLUMES, volume, "Released"), "the volume is released")
    await land.api.delete(VOLUMES, volume)
    assert not await land.exists(VOLUMES, volume) or await gone_soon(land, volume)


async def a_set_and_its_budget(land: Land, _: InProcessApi) -> None:
    """Two pods are made one after the other, one of them is evicted and made again, and the budget lets the next one go only then."""
    await land.begin("n1")
    await land.stateful_set("db", replicas=2)
    await land.budget("db", "db", maxUnavailable=1)

    async def allowed() -> bool:
        return await land.allows("db") == (2, 2, 1, 1)

    await land.until(allowed, "both are ready")
    first = await land.uid(PODS, "db-0")
    assert await land.evict("db-0") == ""
    assert "disruption budget" in await land.evict("db-1")

    async def again() -> bool:
        return await land.uid(PODS, "db-0") not in ("", first) and await allowed()

    await land.until(again, "it is made again, and counted")


STORIES = [from_claim_to_deletion, a_set_and_its_budget]


async def has_phase(land: Land, resource: Any, name: str, phase: str) -> bool:
    return await land.exists(resource, name) and await land.phase(resource, name) == phase


async def gone_soon(land: Land, volume: str) -> bool:
    await land.until(lambda: absent(land, volume), "the volume goes")
    return True


async def absent(land: Land, volume: str) -> bool:
    return not await land.exists(VOLUMES, volume)


@pytest.mark.parametrize("story", STORIES)
def test_all_goes_well_without_trouble(story: Story) -> None:
    tell(story)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_writes_that_are_done_and_whose_answers_are_lost(seed: int, story: Story) -> None:
    dice = random.Random(seed)

    async def lose(call: Call) -> None:
        if call.verb not in ("get", "list", "watch") and dice.random() < 0.5:
            raise Unavailable("the answer is lost")

    tell(story, after=lose)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_requests_that_never_arrive(seed: int, story: Story) -> None:
    dice = random.Random(seed)

    async def lose(_: Call) -> None:
        if dice.random() < 0.5:
            raise Unavailable("nobody answers")

    tell(story, before=lose)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_writes_that_take_their_time_while_the_world_goes_on(seed: int, story: Story) -> None:
    dice = random.Random(seed)

    async def linger(call: Call) -> None:
        if call.verb not in ("watch", "list"):
            await asyncio.sleep(dice.uniform(0.0, 2.0))

    tell(story, before=linger)


def test_watches_that_are_cut_again_and_again() -> None:
    async def story(land: Land, theirs: InProcessApi) -> None:
        async def cut() -> None:
            while True:
                await asyncio.sleep(0.2)
                theirs.cut_watches(Unavailable("cut"))

        cutting = asyncio.create_task(cut())
        try:
            await from_claim_to_deletion(land, theirs)
        finally:
            cutting.cancel()

    tell(story)


async def run_by_hand(land: Land) -> None:
    """A pod that somebody put on a node past the scheduler."""
    await land.pod("app", "data", nodeName=land.own("n1"))


async def runs_not(land: Land, why: str) -> None:
    async def waits() -> bool:
        return await land.phase(PODS, "app") == "Pending"

    await land.always(waits, why, seconds=20.0)


async def is_bound(land: Land) -> bool:
    return await has_phase(land, CLAIMS, "data", "Bound")


async def runs(land: Land) -> bool:
    return await has_phase(land, PODS, "app", "Running")


def test_no_kubelet_runs_a_pod_before_its_claim_is_there_and_bound() -> None:
    async def story(land: Land, _: InProcessApi) -> None:
        await land.begin("n1")
        await land.storage_class("now", "Immediate")
        await run_by_hand(land)
        await runs_not(land, "its claim is not there")
        claim = await land.claim("data", "now")
        await runs_not(land, "its claim is pending")
        await land.volume(claim, node="n1")
        await land.until(lambda: runs(land), "the pod runs")
        assert await is_bound(land)

    tell(story)


def test_no_kubelet_runs_a_pod_whose_claim_the_binder_has_not_called_bound_yet() -> None:
    """Scheduled it is: for the scheduler the claim is bound when its volume is written down, a moment before its phase says so."""

    async def slow_phase(call: Call) -> None:
        if call.resource == CLAIMS and call.subresource == "status":
            await asyncio.sleep(20.0)

    async def story(land: Land, _: InProcessApi) -> None:
        await land.begin("n1")
        await land.storage_class("now", "Immediate")
        await land.volume(await land.claim("data", "now"), node="n1")
        await land.pod("app", "data")
        await land.until(lambda: scheduled(land), "the pod is scheduled")
        assert not await is_bound(land)
        await land.until(lambda: runs(land), "the pod runs")
        assert await is_bound(land)

    async def scheduled(land: Land) -> bool:
        return bool((await land.get_pod("app"))["spec"].get("nodeName"))

    tell(story, before=slow_phase)


def test_no_kubelet_runs_a_pod_whose_claim_is_being_deleted_but_one_that_runs_goes_on() -> None:
    async def story(land: Land, _: InProcessApi) -> None:
        await land.begin("n1")
        await land.storage_class("now", "Immediate")
        await land.volume(await land.claim("data", "now"), node="n1")
        await land.pod("holder", "data")
        await land.until(lambda: has_phase(land, PODS, "holder", "Running"), "the first pod runs")
        await land.api.delete(CLAIMS, "data", namespace=land.namespace)
        await run_by_hand(land)
        await runs_not(land, "its claim is being deleted")
        assert await has_phase(land, PODS, "holder", "Running")

    tell(story)


def test_a_claim_that_is_given_back_again_and_again_is_placed_at_growing_intervals() -> None:
    """1, 2, 4, 8, 10, 10 … seconds after each error, as the scheduler backs off."""

    async def story(land: Land, _: InProcessApi) -> None:
        await land.begin("n1", capacity=False)
        await land.storage_class("late", "WaitForFirstConsumer")
        await land.claim("data", "late")
        await land.pod("app", "data")
        now, waits = asyncio.get_running_loop().time, []
        for _round in range(7):
            begun = now()
            await land.until(lambda: land.selected("data"), "a node is selected")
            waits.append(round(now() - begun))
            await asyncio.sleep(0.05)
            await land.select("data", None)
        assert waits == [0, 1, 2, 4, 8, 10, 10]

    tell(story)
