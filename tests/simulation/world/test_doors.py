"""What a simulated node's doors let through, and what they do not."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.driver.calls import Fault, Reception
from hack.sim.driver.local_driver import LocalDriver, Spec
from hack.sim.world.doors import Link, NodeDriver, NodeKube
from hack.sim.world.network import Killed, Latency, Life, Network, Weather
from sidecar.csi.api import Capability, CapacityQuery, CreateRequest
from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.api import CLASSES
from sidecar.kube.errors import NotFound, TooManyRequests, Unavailable

REQUEST = CreateRequest("pvc-1", 1, (Capability("SINGLE_NODE_WRITER"),))
CLASS = {"metadata": {"name": "gold"}, "provisioner": "d", "volumeBindingMode": "Immediate"}


class Scene:
    """One node, one life, and what its doors lead to."""

    def __init__(self, *, forsakes: bool = True, faults: tuple[Fault, ...] = (), **weather: Any) -> None:
        self.told: list[str] = []
        self.api = InProcessApi(ApiServer(clock=asyncio.get_running_loop().time, rng=random.Random(1).random))
        self.network = Network(random.Random(1), Weather(**weather))
        self.life = Life(1)
        self.kube = NodeKube(self.api, self.network, self.life, node="n0", tell=self.told.append)
        self.local = LocalDriver(Spec(node_id="n0", name="d", pools={"main": 2**30}, topology={"k": "n0"}))
        self.link = Link(forsakes=lambda: forsakes)
        reception = Reception()
        reception.faults.set(faults)
        self.driver = NodeDriver(
            self.local, reception, self.life, network=self.network, timeout=10.0, tell=self.told.append, link=self.link
        )

    async def has_class(self) -> bool:
        try:
            await self.api.get(CLASSES, "gold")
        except NotFound:
            return False
        return True


def played(story: Callable[[Scene], Awaitable[Any]], **setting: Any) -> Any:
    async def main() -> Any:
        return await story(Scene(**setting))

    return run_virtual(main())


def test_a_dead_life_passes_no_door():
    async def story(scene: Scene) -> None:
        scene.life.kill("kill -9")
        for effect in (
            scene.kube.create(CLASSES, CLASS),
            scene.kube.list_page(CLASSES),
            scene.driver.create_volume(REQUEST),
            scene.driver.delete_volume("n0-vol-1"),
            scene.driver.get_capacity(CapacityQuery()),
            scene.driver.list_volumes(),
        ):
            with pytest.raises(Killed):
                await effect
        await asyncio.sleep(100.0)
        assert not await scene.has_class()
        assert not scene.local.volumes()

    played(story)


@pytest.mark.parametrize(("crossing", "done"), [(1, False), (2, True)])
def test_a_death_falls_before_a_write_and_a_driver_call_or_behind_it(crossing: int, done: bool):
    async def story(scene: Scene, effect: Callable[[], Awaitable[Any]]) -> None:
        scene.life.doom(crossing)
        with pytest.raises(Killed):
            await effect()
        assert (await scene.has_class() or bool(scene.local.volumes())) is done

    played(lambda scene: story(scene, lambda: scene.kube.create(CLASSES, CLASS)))
    played(lambda scene: story(scene, lambda: scene.driver.create_volume(REQUEST)))


def test_what_was_sent_lands_although_its_sender_is_dead():
    async def story(scene: Scene) -> None:
        writing = asyncio.create_task(scene.kube.create(CLASSES, CLASS))
        await asyncio.sleep(0.5)
        scene.life.kill("kill -9")
        writing.cancel()
        await asyncio.sleep(0.1)
        assert not await scene.has_class()
        await asyncio.sleep(5.0)
        assert await scene.has_class()
        assert scene.told == ["create storageclasses.storage.k8s.io gold (who sent it is dead)"]

    played(story, write=Latency(2.0, 2.0))


def test_a_stray_write_times_out_and_lands_later_or_comes_back_in_time():
    async def story(scene: Scene) -> None:
        try:
            await scene.kube.create(CLASSES, CLASS)
        except Unavailable:
            assert asyncio.get_running_loop().time() == 30.0
        await asyncio.sleep(60.0)
        assert await scene.has_class()

    played(story, straying=1.0)


def test_lost_on_the_way_there_and_on_the_way_back():
    async def story(scene: Scene) -> bool:
        with pytest.raises(Unavailable):
            await scene.kube.create(CLASSES, CLASS)
        return await scene.has_class()

    assert played(story, lost_requests=1.0) is False
    assert played(story, lost_answers=1.0) is True


def test_an_overloaded_server_refuses_with_a_time_to_wait():
    async def story(scene: Scene) -> None:
        with pytest.raises(TooManyRequests) as refusal:
            await scene.kube.list_page(CLASSES)
        assert refusal.value.retry_after == 1.0

    played(story, refused=1.0)


def test_without_a_server_everything_fails_at_once():
    async def story(scene: Scene) -> None:
        scene.network.take_down("n0")
        for ask in (scene.kube.list_page(CLASSES), scene.kube.create(CLASSES, CLASS)):
            with pytest.raises(Unavailable):
                await ask
        with pytest.raises(Unavailable):
            await anext(aiter(scene.kube.watch(CLASSES, resource_version="1")))
        assert asyncio.get_running_loop().time() < 0.1

    played(story)


def test_a_watch_tells_in_order_until_it_is_cut():
    async def story(scene: Scene) -> list[str]:
        version = (await scene.api.list_page(CLASSES)).resource_version
        heard: list[str] = []

        async def listen() -> None:
            stream: AsyncIterator[Any] = scene.kube.watch(CLASSES, resource_version=version)
            async with aclosing(stream):  # type: ignore[type-var]
                async for event in stream:
                    heard.append(event.object["metadata"]["name"])

        listening = asyncio.create_task(listen())
        for number in range(5):
            await scene.api.create(CLASSES, CLASS | {"metadata": {"name": f"gold-{number}"}})
        await asyncio.sleep(5.0)
        scene.network.break_connections("n0")
        with pytest.raises(Unavailable):
            await listening
        return heard

    assert played(story) == [f"gold-{number}" for number in range(5)]


def test_a_driver_that_is_away_answers_at_once():
    async def story(scene: Scene) -> None:
        scene.link.go_down()
        with pytest.raises(DriverError) as error:
            await scene.driver.create_volume(REQUEST)
        assert error.value.code is Code.UNAVAILABLE
        assert asyncio.get_running_loop().time() == 0.0
        scene.link.come_back()
        await scene.driver.create_volume(REQUEST)

    played(story)


def test_calls_in_flight_are_lost_with_the_driver_but_what_is_delayed_still_lands():
    async def story(scene: Scene) -> None:
        asyncio.get_running_loop().call_later(2.0, scene.link.go_down)
        with pytest.raises(DriverError) as error:
            await scene.driver.create_volume(REQUEST)
        assert error.value.code is Code.UNAVAILABLE
        assert not scene.local.volumes()
        await asyncio.sleep(10.0)
        assert len(scene.local.volumes()) == 1

    played(story, faults=(Fault(method="CreateVolume", times=1, delay=5.0),))


@pytest.mark.parametrize(("forsakes", "volumes"), [(True, 0), (False, 1)])
def test_a_driver_goes_on_after_the_deadline_or_drops_it(forsakes: bool, volumes: int):
    async def story(scene: Scene) -> None:
        with pytest.raises(DriverError) as error:
            await scene.driver.create_volume(REQUEST)
        assert error.value.code is Code.DEADLINE_EXCEEDED
        await asyncio.sleep(60.0)
        assert len(scene.local.volumes()) == volumes

    played(story, forsakes=forsakes, faults=(Fault(method="CreateVolume", times=1, hang=20.0),))


def test_each_watch_of_a_lagging_node_lags_by_a_part_of_its_own():
    network = Network(random.Random(1), Weather(watch=Latency(0.0, 0.0)))
    network.local_delay("n0", 10.0)
    claims, volumes = network.watch_delay("n0", "claims"), network.watch_delay("n0", "volumes")
    assert 0.0 < claims < 10.0 and 0.0 < volumes < 10.0 and claims != volumes
    assert network.watch_delay("n0", "claims") == claims
    assert network.watch_delay("n1", "claims") == 0.0
