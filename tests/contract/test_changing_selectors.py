"""A reflector whose label selectors change under way, on a server: what is written meanwhile. More of it is in tests/kube."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from sidecar.kube.api import CONFIG_MAPS, MERGE_PATCH, Change, KubeApi, Page, Resource, WatchEvent
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.kube.client import KubeClient
from sidecar.kube.reflector import Reflector
from sidecar.kube.selected import Selected
from sidecar.kube.store import Store, by_uid
from sidecar.model.objects import Json
from tests.contract.objects import config_map
from tests.harness.coroutines import until

LABEL = "example.com/of"
A, B, AB, C, NONE, ALL = f"{LABEL}=a", f"{LABEL}=b", f"{LABEL} in (a,b)", f"{LABEL}=c", f"!{LABEL}", ""


@dataclass(frozen=True, slots=True)
class Record:
    namespace: str
    name: str
    version: str
    text: str


def record_of(obj: Json) -> Record:
    meta = obj["metadata"]
    return Record(meta["namespace"], meta["name"], meta["resourceVersion"], (obj.get("data") or {}).get("text", ""))


class Gate:
    """A client whose lists or watches by some selectors wait until they are let through."""

    def __init__(self, api: KubeClient) -> None:
        self._api = api
        self.lists: dict[str, asyncio.Event] = {}
        self.watches: dict[str, asyncio.Event] = {}
        self.waiting: set[str] = set()

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        return await self._api.get(resource, name, namespace=namespace)

    async def list_page(self, resource: Resource, *, label_selector: str = "", **more: Any) -> Page:
        await self._let_through(self.lists, label_selector)
        return await self._api.list_page(resource, label_selector=label_selector, **more)

    async def watch(self, resource: Resource, *, label_selector: str = "", **more: Any) -> AsyncIterator[WatchEvent]:
        await self._let_through(self.watches, label_selector)
        async for event in self._api.watch(resource, label_selector=label_selector, **more):
            yield event

    async def _let_through(self, gates: dict[str, asyncio.Event], selector: str) -> None:
        if selector in gates:
            self.waiting.add(selector)
            await gates[selector].wait()


class Scene:
    """People who write, and a reflector that hears of it."""

    def __init__(self, api: KubeClient, namespace: str, *selectors: str, people: KubeClient | None = None) -> None:
        self.namespace = namespace
        self.people = people or api
        self.gate = Gate(api)
        self.busy: set[str] = set()
        self.changes: list[Change[Record]] = []
        self.lists = 0
        self.store: Store[Record] = Store()
        kube, dice = cast(KubeApi, self.gate), random.Random(1).random

        def make(selector: str, store: Store[Record], on_state: Callable[[Any], None]) -> Reflector[Record]:
            return Reflector(
                kube,
                CONFIG_MAPS,
                project=record_of,
                store=store,
                key_of=by_uid,
                namespace=namespace,
                label_selector=selector,
                on_change=self.changes.append,
                on_state=on_state,
                on_list=self._listed,
                rng=lambda: 0.1,
            )

        self.reflector = ChangingReflector(
            kube,
            CONFIG_MAPS,
            selected=Selected(
                selectors=selectors,
                place_of=lambda record: (record.namespace, record.name),
                version_of=lambda record: record.version,
                is_under_way=lambda key: (record := self.store.get(key)) is not None and record.name in self.busy,
            ),
            make=make,
            project=record_of,
            store=self.store,
            key_of=by_uid,
            on_change=self.changes.append,
            on_state=lambda _: None,
            rng=dice,
        )

    def _listed(self) -> None:
        self.lists += 1

    @property
    def held(self) -> dict[str, str]:
        """Version by name."""
        return {record.name: record.version for record in self.store.values()}

    def told(self, name: str) -> list[Change[Record]]:
        return [change for change in self.changes if name in {one.name for one in (change.old, change.new) if one is not None}]

    async def there(self, *selectors: str) -> dict[str, str]:
        """What the server has, by these selectors."""
        pages = [await self.people.list_page(CONFIG_MAPS, namespace=self.namespace, label_selector=one) for one in selectors]
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for page in pages for item in page.items}

    async def make(self, name: str, label: str | None) -> None:
        labels = {} if label is None else {LABEL: label}
        await self.people.create(CONFIG_MAPS, config_map(name, labels=labels), namespace=self.namespace)

    async def write(self, name: str, text: str) -> str:
        return await self._patch(name, {"data": {"text": text}})

    async def label(self, name: str, value: str | None) -> str:
        return await self._patch(name, {"metadata": {"labels": {LABEL: value}}})

    async def delete(self, name: str) -> None:
        await self.people.delete(CONFIG_MAPS, name, namespace=self.namespace)

    async def _patch(self, name: str, patch: Json) -> str:
        written = await self.people.patch(CONFIG_MAPS, name, patch, content_type=MERGE_PATCH, namespace=self.namespace)
        return str(written["metadata"]["resourceVersion"])


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[None]:
    task = asyncio.create_task(scene.reflector.run())
    try:
        await scene.reflector.wait_synced()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("wide", [False, True])
async def test_a_change_of_selectors_under_writes_loses_nothing_and_tells_nothing_twice(
    api: KubeClient, namespace: str, wide: bool
) -> None:
    """`wide`: now and then a second watch shows what the one that stays shows too. It may be ahead, and what is older is not told then."""
    scene = Scene(api, namespace, A, NONE)
    for name, label in (("in-a", "a"), ("in-b", "b"), ("plain", None)):
        await scene.make(name, label)
    written: dict[str, list[str]] = {"plain": [], "in-a": []}

    async def write() -> None:
        """One is selected by the same watch all the time, one by others in turn, and some come, move and go."""
        for number in range(60):
            for name, versions in written.items():
                versions.append(await scene.write(name, str(number)))
            await scene.make(f"passing-{number}", ("a", "b", None)[number % 3])
            await scene.label(f"passing-{number}", ("b", None, "a")[number % 3])
            if number % 2:
                await scene.delete(f"passing-{number}")

    async with running(scene):
        writing = asyncio.create_task(write())
        for selectors in [(AB, NONE), (B, A, NONE), (ALL, NONE) if wide else (AB, C, NONE), (A, NONE)] * 5:
            scene.reflector.select(selectors)
            await asyncio.sleep(0.06)
        await writing
        scene.reflector.select((AB, NONE))
        await until(lambda: scene.reflector.selectors == (AB, NONE), "the reflector has followed")
        wanted = await scene.there(AB, NONE)
        await until(lambda: scene.held == wanted, "the reflector has followed")

    heard = [change.new.version for change in scene.told("plain") if change.new is not None]
    if not wide:
        assert heard[1:] == written["plain"], "the one watch that stays tells each change once"
    assert heard == sorted(set(heard), key=int) and heard[-1] == written["plain"][-1]
    of_others = [change.new.version for change in scene.told("in-a") if change.new is not None]
    assert of_others == sorted(set(of_others), key=int) and of_others[-1] == written["in-a"][-1]
    for name in written:
        assert [change for change in scene.told(name) if change.old is None or change.new is None] == scene.told(name)[:1], "never gone"
    for change in scene.changes:
        if change.old is not None and change.new is not None:
            assert int(change.old.version) < int(change.new.version), "of what is held no version is told twice, and none after a newer one"
