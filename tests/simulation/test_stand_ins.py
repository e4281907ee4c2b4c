"""What of the kubelet and the scheduler no real control plane without kubelets can be made to show.

What the stand-ins do otherwise is held against the real components in tests/contract_control_plane.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, Call, InProcessApi
from hack.sim.stand_ins import Binder, Kubelet, Scheduler, StandInBase
from sidecar.kube.api import CLAIMS, PODS
from tests.contract_control_plane.land import Land


async def at_once(_: Call) -> None:
    pass


def tell(story: Callable[[Land], Awaitable[None]], *, before: Callable[[Call], Awaitable[None]] = at_once) -> None:
    """`before`: what delays the stand-ins' requests; the story's own are not delayed."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        cluster = ApiServer(clock=loop.time, rng=random.Random(1).random)
        base = StandInBase(InProcessApi(cluster, before=before), clock=loop.time, rng=random.Random(2))
        for stand_in in (Binder, Scheduler, Kubelet):
            stand_in(base)
        at_work = asyncio.create_task(base.run())
        await story(Land(InProcessApi(cluster), number=1, limit=600.0))
        at_work.cancel()
        await asyncio.gather(at_work, return_exceptions=True)

    run_virtual(whole(), limit=3600.0)


async def has_phase(land: Land, resource: Any, name: str, phase: str) -> bool:
    return await land.exists(resource, name) and await land.phase(resource, name) == phase


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


def test_no_kubelet_runs_a_pod_whose_claim_the_binder_has_not_called_bound_yet() -> None:
    """Scheduled it is: for the scheduler the claim is bound when its volume is written down, a moment before its phase says so."""

    async def slow_phase(call: Call) -> None:
        if call.resource == CLAIMS and call.subresource == "status":
            await asyncio.sleep(20.0)

    async def story(land: Land) -> None:
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
    async def story(land: Land) -> None:
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

    async def story(land: Land) -> None:
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
