"""What happens to those who come from before a loss of history. The server is restarted once for all tests of this file."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from sidecar.kube.api import CONFIG_MAPS
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import Gone
from sidecar.kube.reflector import Reflector
from sidecar.kube.reflector_state import Synced
from sidecar.kube.store import Store
from sidecar.model.objects import Json
from tests.contract.conftest import Server
from tests.contract.objects import config_map


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


async def test_those_who_come_from_before_are_told_so(server: Server, api: KubeClient, namespace: str) -> None:
    for name in "abc":
        await api.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    page = await api.list_page(CONFIG_MAPS, namespace=namespace, limit=1)
    version = page.resource_version
    await api.create(CONFIG_MAPS, config_map("d"), namespace=namespace)

    server.forget()
    await asyncio.sleep(0.1)  # forget() blocks; only now the client can notice that its connections are gone

    with pytest.raises(Gone):
        await api.list_page(CONFIG_MAPS, namespace=namespace, limit=1, continue_token=page.continue_token)
    with pytest.raises(Gone):
        async with aclosing(api.watch(CONFIG_MAPS, namespace=namespace, resource_version=version)) as stream:
            async for _ in stream:
                pass
    found = await api.list_page(CONFIG_MAPS, namespace=namespace)
    assert [_name(item) for item in found.items] == list("abcd")
    async with aclosing(api.watch(CONFIG_MAPS, namespace=namespace, resource_version=found.resource_version)) as stream:
        await api.delete(CONFIG_MAPS, "a", namespace=namespace)
        assert (await anext(stream)).type == "DELETED"


async def test_a_reflector_outlives_the_loss_and_stays_true(server: Server, api: KubeClient, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    store: Store[str] = Store()
    changes: list[tuple[str | None, str | None]] = []
    reflector = Reflector(
        api,
        CONFIG_MAPS,
        project=_name,
        store=store,
        namespace=namespace,
        on_change=lambda change: changes.append((change.old, change.new)),
        rng=lambda: 0.1,
    )
    running = asyncio.create_task(reflector.run())
    assert await reflector.wait_synced()
    await api.create(CONFIG_MAPS, config_map("b"), namespace=namespace)
    await _until(lambda: len(store) == 2)

    server.forget()  # blocks the reflector, too: it comes back to a server that has forgotten everything
    await asyncio.sleep(0.1)

    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    await _until(lambda: sorted(store.values()) == ["b", "c"])
    assert isinstance(reflector.state, Synced), "short trouble is no reason to stop work"
    assert sorted(changes, key=str) == sorted([(None, "a"), (None, "b"), ("a", None), (None, "c")], key=str)
    assert reflector.attempts <= 8
    running.cancel()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.05)
