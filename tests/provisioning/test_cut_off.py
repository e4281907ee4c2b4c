"""A look or a process that ends while the driver or the API server is being asked: what was asked for may still happen."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.driver.calls import Fault
from hack.sim.world.node import DRIVER, NAMESPACE
from hack.sim.world.story import Story
from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.api import CLAIMS, CLASSES, MERGE_PATCH, PODS, SECRETS, VOLUMES
from sidecar.model.names import SELECTED_NODE
from sidecar.model.objects import LATE
from tests.harness.drain import simulated
from tests.harness.drain.simulated import all_of

SECRET = "csi.storage.k8s.io/provisioner-secret"
DEADLINE = 140.0
"""Of a look: twice a call's limit and two minutes."""


def play(story: Callable[[Story], Awaitable[None]], delay: Callable[[Call], Awaitable[None]] = simulated.no_time) -> None:
    """With a class whose volumes need a Secret."""

    async def whole(bench: Story) -> None:
        await bench.you.create(SECRETS, {"metadata": {"name": "key"}, "data": {"of": "eA=="}}, namespace="default")
        await make_class(bench)
        await asyncio.sleep(3)
        await story(bench)

    simulated.play(whole, args=(), delay=delay)


async def make_class(bench: Story, **more: str) -> None:
    parameters = {f"{SECRET}-name": "key", f"{SECRET}-namespace": "default", **more}
    body = {"metadata": {"name": "keyed"}, "provisioner": DRIVER, "volumeBindingMode": LATE, "parameters": parameters}
    await bench.you.create(CLASSES, body)


async def claimed(bench: Story, name: str) -> None:
    await bench.claim(name, "keyed")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    body = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes}
    await bench.you.create(PODS, {"metadata": {"name": name}, "spec": body}, namespace="default")


def unlock(bench: Story, node: str) -> None:
    """Its driver goes on with a call whose caller has given up, for twenty seconds, and has no room for the same volume meanwhile."""
    loop, reception = asyncio.get_running_loop(), bench.nodes[node].reception
    attend = reception.attend
    at_work: asyncio.TimerHandle | None = None

    async def unlocked(method: str, name: str, *, request: Mapping[str, Any], act: Callable[[], Any]) -> Any:
        nonlocal at_work
        if method == "CreateVolume" and at_work is None:
            at_work = loop.call_later(20, act)
            await asyncio.sleep(1000)
        if method == "CreateVolume" and at_work is not None and loop.time() < at_work.when():
            raise DriverError(Code.RESOURCE_EXHAUSTED, "no room")
        return await attend(method, name, request=request, act=act)

    reception.attend = unlocked  # type: ignore[method-assign]


def test_a_creation_that_was_cut_off_is_not_believed_to_have_come_to_nothing() -> None:
    slow = True

    async def delay(call: Call) -> None:
        nonlocal slow
        if slow and (call.verb, call.resource) == ("get", SECRETS):
            slow = False
            await asyncio.sleep(DEADLINE - 3)

    async def story(bench: Story) -> None:
        unlock(bench, "n1")
        await claimed(bench, "data")
        await asyncio.sleep(900)
        stored = {volume["spec"]["csi"]["volumeHandle"] for volume in await all_of(bench, VOLUMES)}
        made = {volume.id for node in bench.nodes.values() for volume in node.driver.volumes()}
        assert made == stored
        assert len(stored) == 1

    play(story, delay)


def test_who_keeps_a_volume_while_its_secret_is_read_keeps_it() -> None:
    benches: list[Story] = []

    async def delay(call: Call) -> None:
        if benches and (call.verb, call.resource) == ("get", SECRETS):
            bench = benches.pop()
            await asyncio.sleep(5)
            (volume,) = await all_of(bench, VOLUMES)
            keep = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
            bench.cluster.patch(VOLUMES, volume["metadata"]["name"], keep, content_type=MERGE_PATCH)

    async def story(bench: Story) -> None:
        await claimed(bench, "data")
        await bench.until_phase(PODS, "data", "Running")
        benches.append(bench)
        await bench.you.delete(PODS, "data", namespace="default")
        await bench.you.delete(CLAIMS, "data", namespace="default")
        await asyncio.sleep(60)
        assert not benches, "no secret was read"
        (volume,) = await all_of(bench, VOLUMES)
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        made = {each.id for node in bench.nodes.values() for each in node.driver.volumes()}
        assert made == {volume["spec"]["csi"]["volumeHandle"]}

    play(story, delay)


async def select(bench: Story, node: str) -> None:
    patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
    await bench.you.patch(CLAIMS, "data", patch, content_type=MERGE_PATCH, namespace=NAMESPACE)


def test_what_a_dead_process_has_stored_is_bound_to_a_volume_though_its_claim_went_to_another_node_meanwhile() -> None:
    """No cache of the next process shows that claim, and what arrives is bound to it all the same."""
    sent = asyncio.Event()

    async def delay(call: Call) -> None:
        if (call.verb, call.resource) == ("create", VOLUMES):
            sent.set()
            await asyncio.sleep(40)

    async def story(bench: Story) -> None:
        bench.nodes["n1"].lay_down()
        await bench.claim("data", "keyed")
        await select(bench, "n0")
        await sent.wait()
        bench.nodes["n0"].kill()
        await select(bench, "n1")
        await bench.until_phase(CLAIMS, "data", "Bound")
        await asyncio.sleep(200)
        (volume,) = await all_of(bench, VOLUMES)
        assert volume["spec"]["csi"]["volumeHandle"] in {made.id for made in bench.nodes["n0"].driver.volumes()}

    play(story, delay)


@pytest.mark.parametrize("made", ["before", "after"])
def test_what_was_asked_for_before_or_after_the_class_was_made_anew_is_found_by_the_next_process(made: str) -> None:
    async def story(bench: Story) -> None:
        node, call = bench.nodes["n0"], partial(Fault, method="CreateVolume", times=1)
        node.link._forsakes = lambda: False  # the driver goes on with a call whose caller has gone
        node.reception.faults.set([call(delay=60)] if made == "before" else [call(hang=9, fail=Code.DEADLINE_EXCEEDED), call(delay=60)])
        await bench.claim("data", "keyed")
        await select(bench, "n0")
        await asyncio.sleep(5)
        await bench.you.delete(CLASSES, "keyed")
        await make_class(bench, tier="gold")
        await asyncio.sleep(10)
        node.lay_down()
        await bench.you.delete(CLAIMS, "data", namespace=NAMESPACE)
        node.get_up()
        await asyncio.sleep(60)
        assert node.driver.volumes(), "the call has made it by now"
        await asyncio.sleep(600)
        assert not node.driver.volumes()

    play(story)
