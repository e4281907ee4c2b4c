"""What happens to those who come from before a loss of history. The server is of these tests alone, because it is restarted."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from sidecar.kube.api import CONFIG_MAPS
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import Gone
from sidecar.kube.reflector import Reflector
from sidecar.kube.reflector_state import Synced
from sidecar.kube.store import Store
from sidecar.model.objects import Json
from tests.contract.conftest import SERVERS, Server
from tests.contract.objects import config_map
from tests.contract.test_changing_selectors import A, B, C, Scene, running
from tests.harness.coroutines import until


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with request.param(tmp_path_factory.mktemp("forgetful")) as server:
        yield server


async def forget(server: Server) -> None:
    server.forget()
    await asyncio.sleep(0.1)  # that blocked the loop; only now its clients can notice that their connections are gone


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


async def test_those_who_come_from_before_are_told_so(server: Server, api: KubeClient, namespace: str) -> None:
    for name in "abc":
        await api.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    page = await api.list_page(CONFIG_MAPS, namespace=namespace, limit=1)
    version = page.resource_version
    await api.create(CONFIG_MAPS, config_map("d"), namespace=namespace)

    await forget(server)

    with pytest.raises(Gone):
        await api.list_page(CONFIG_MAPS, namespace=namespace, limit=1, continue_token=page.continue_token)
    for labels in ("", "node in (n1,several)"):
        with pytest.raises(Gone):
            async with aclosing(api.watch(CONFIG_MAPS, namespace=namespace, resource_version=version, label_selector=labels)) as stream:
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
    await until(lambda: len(store) == 2, "the reflector has followed")

    await forget(server)

    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("c"), namespace=namespace)
    await until(lambda: sorted(store.values()) == ["b", "c"], "the reflector has followed")
    assert isinstance(reflector.state, Synced), "short trouble is no reason to stop work"
    assert sorted(changes, key=str) == sorted([(None, "a"), (None, "b"), ("a", None), (None, "c")], key=str)
    assert reflector.attempts <= 8
    running.cancel()


@pytest.mark.parametrize("held", ["lists", "watches"])
async def test_history_that_is_lost_while_selectors_change(server: Server, api: KubeClient, namespace: str, held: str) -> None:
    """Before the new selectors are listed, or between their list and their watch."""
    scene = Scene(api, namespace, A)
    for name, label in (("in-a", "a"), ("a-goes", "a"), ("in-b", "b"), ("b-goes", "b"), ("b-to-a", "b"), ("in-c", "c")):
        await scene.make(name, label)
    async with running(scene):
        gates = {selector: asyncio.Event() for selector in (B, C)}
        getattr(scene.gate, held).update(gates)
        scene.reflector.select((A, B, C))
        await until(lambda: scene.gate.waiting == {*gates}, "the gate is reached")
        assert (scene.reflector.selectors == (A,)) is (held == "lists")
        for name in ("a-goes", "b-goes"):
            await scene.delete(name)
        await scene.write("in-b", "meanwhile")
        await scene.label("b-to-a", "a")
        await scene.make("new-in-b", "b")
        await forget(server)
        for gate in gates.values():
            gate.set()
        wanted = await scene.there(A, B, C)
        assert {*wanted} == {"in-a", "in-b", "b-to-a", "in-c", "new-in-b"}
        await until(lambda: scene.held == wanted and scene.reflector.selectors == (A, B, C), "the reflector has followed")
        changed = await scene.write("in-c", "afterwards")
        await until(lambda: scene.held["in-c"] == changed, "the reflector has followed")
        assert not [change for change in scene.told("in-a") if change.new is None]
