"""`InProcessApi` under a clock that jumps: bookmarks, ends, hooks, and streams that are cut or held."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from sidecar.kube.api import CLAIMS, CONFIG_MAPS, PODS, KubeApi, WatchEvent
from sidecar.kube.errors import Conflict, Gone, NotFound, Unavailable
from tests.contract.objects import claim, config_map
from tests.harness.cluster_tools import new_cluster


def _api(**how: object) -> InProcessApi:
    return InProcessApi(new_cluster(), **how)  # type: ignore[arg-type]


def test_it_is_what_rooms_hold() -> None:
    api: KubeApi = _api()

    async def main() -> None:
        made = await api.create(CLAIMS, claim("a"), namespace="default")
        assert (await api.list_page(CLAIMS, namespace="default")).items[0]["metadata"] == made["metadata"]
        with pytest.raises(NotFound, match=r'get pods default/none: pods "none" not found'):
            await api.get(PODS, "none", namespace="default")
        made["metadata"]["annotations"] = {"x": "y"}
        await api.replace(CLAIMS, made, name="a", namespace="default")
        with pytest.raises(Conflict, match="has been modified"):
            await api.replace(CLAIMS, made, name="a", namespace="default")
        assert await api.resource_for("v1", "Pod") == PODS
        assert await api.server_version()

    run_virtual(main())


def test_what_it_gives_away_is_nobody_else_s() -> None:
    async def main() -> None:
        api = _api()
        made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace="default")
        made["data"]["x"] = "2"
        assert (await api.get(CONFIG_MAPS, "a", namespace="default"))["data"] == {"x": "1"}

    run_virtual(main())


def test_bookmarks_come_by_the_clock_and_once_before_the_end() -> None:
    async def main() -> None:
        api = _api(watch_for=lambda: 150.0)
        heard = []
        async for event in api.watch(CONFIG_MAPS, resource_version=str(api.cluster.revision)):
            heard.append((event.type, asyncio.get_running_loop().time()))
        assert heard == [("BOOKMARK", 60.0), ("BOOKMARK", 120.0), ("BOOKMARK", 148.0)]
        assert asyncio.get_running_loop().time() == 150.0

    run_virtual(main())


def test_hooks_delay_requests_and_lose_answers() -> None:
    calls: list[str] = []

    async def slow(call: Call) -> None:
        calls.append(str(call))
        await asyncio.sleep(3.0)

    async def lose(call: Call) -> None:
        if call.verb == "create":
            raise Unavailable("the answer was lost")

    async def main() -> None:
        api = _api(before=slow, after=lose)
        with pytest.raises(Unavailable):
            await api.create(CONFIG_MAPS, config_map("a"), namespace="default")
        assert await api.get(CONFIG_MAPS, "a", namespace="default"), "it was done nevertheless"
        assert asyncio.get_running_loop().time() == 6.0

    run_virtual(main())
    assert calls == ["create configmaps default/a", "get configmaps default/a"]


def test_a_watch_hears_at_once_and_can_be_cut() -> None:
    async def main() -> None:
        api = _api()
        stream = api.watch(CONFIG_MAPS, resource_version=str(api.cluster.revision))
        async with aclosing(stream):
            hearing = asyncio.create_task(anext(stream))
            await asyncio.sleep(1.0)
            await api.create(CONFIG_MAPS, config_map("a"), namespace="default")
            assert (await hearing).object["metadata"]["name"] == "a"
            assert asyncio.get_running_loop().time() == 1.0
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(1.0)
            api.cut_watches(Unavailable("cut"))
            with pytest.raises(Unavailable):
                await waiting

    run_virtual(main())


def test_an_orderly_cut_is_an_end() -> None:
    async def main() -> None:
        api = _api()

        async def all_of(stream: AsyncIterator[WatchEvent]) -> list[WatchEvent]:
            return [event async for event in stream]

        hearing = asyncio.create_task(all_of(api.watch(CONFIG_MAPS, resource_version=str(api.cluster.revision))))
        await asyncio.sleep(1.0)
        api.cut_watches()
        assert await hearing == []

    run_virtual(main())


def test_a_watch_that_is_held_hears_nothing_until_it_is_let_go() -> None:
    async def main() -> None:
        api = _api(watch_for=lambda: 1000.0)
        stream = api.watch(CONFIG_MAPS, resource_version=str(api.cluster.revision))
        async with aclosing(stream):
            hearing = asyncio.create_task(anext(stream))
            await asyncio.sleep(1.0)
            api.hold_watches()
            await api.create(CONFIG_MAPS, config_map("a"), namespace="default")
            await asyncio.sleep(500.0)
            assert not hearing.done()
            api.hold_watches(held=False)
            assert (await hearing).type == "ADDED"

    run_virtual(main())


def test_too_late() -> None:
    async def main() -> None:
        api = _api()
        await api.create(CONFIG_MAPS, config_map("a"), namespace="default")
        api.cluster.compact()
        with pytest.raises(Gone):
            await anext(api.watch(CONFIG_MAPS, resource_version="1"))

    run_virtual(main())
