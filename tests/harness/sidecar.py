"""The wired sidecar in this process: every room on scripted or listed doors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from sidecar.csi.api import NOTHING, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code
from sidecar.doors import Doors, Instruments
from sidecar.kube.api import Page, Resource, WatchEvent
from sidecar.kube.events.recorder import EventRecorder
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.config import parsed
from tests.harness.doors import ScriptedDriver, ScriptedKube
from tests.harness.provisioning.bench import rpc

Json = dict[str, Any]


class ListedKube(ScriptedKube):
    """Lists what it was given, and then watches in silence, or tells what is put into `news`."""

    def __init__(self, **listed: list[Json]) -> None:
        super().__init__()
        self.listed = listed
        self.lists: list[tuple[str, str, str]] = []
        self.news: dict[str, asyncio.Queue[WatchEvent]] = {}

    async def list_page(self, resource: Resource, *, namespace: str = "", label_selector: str = "", **_: Any) -> Page:
        self.lists.append((resource.plural, namespace, label_selector))
        return Page(self.listed.get(resource.plural, []), "1", "")

    async def watch(self, resource: Resource, **_: Any) -> AsyncIterator[WatchEvent]:
        news = self.news.setdefault(resource.plural, asyncio.Queue())
        while True:
            yield await news.get()

    def tell(self, plural: str, type_: str, obj: Json) -> None:
        self.news.setdefault(plural, asyncio.Queue()).put_nowait(WatchEvent(type_, obj))


def sidecar_on(
    kube: ListedKube,
    *args: str,
    driver: ScriptedDriver | None = None,
    environ: dict[str, str] | None = None,
    instruments: Instruments | None = None,
) -> Sidecar:
    config = parsed(*args, environ={"NODE_NAME": samples.NODE, **(environ or {})}).config
    doors = Doors(kube, kube, driver or ScriptedDriver())  # type: ignore[arg-type]
    recorder = EventRecorder(kube, component="test")  # type: ignore[arg-type]
    return Sidecar(config, doors, instruments or Instruments(), recorder=recorder)


def running(
    sidecar: Callable[[], Sidecar],
    then: Callable[[Sidecar], Any],
    *,
    play: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run,
    limit: float = 100.0,
) -> Any:
    """Runs it until `then` is done."""

    async def life() -> Any:
        program = sidecar()
        task = asyncio.create_task(program.run())
        try:
            async with asyncio.timeout(limit):
                return await then(program)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return play(life())


SELECTED: dict[str, str | None] = {"volume.kubernetes.io/selected-node": samples.NODE}


class SlowDriver(ScriptedDriver):
    """Creating lasts until it is let go on; how many it does at once is written down."""

    def __init__(self) -> None:
        super().__init__(creates=[rpc(Code.INTERNAL)])
        self.go_on = asyncio.Semaphore(0)
        self.at_work = self.most_at_work = 0

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await self.go_on.acquire()
            return await super().create_volume(request, secrets=secrets)
        finally:
            self.at_work -= 1


def world_of(*claims: Json) -> ListedKube:
    return ListedKube(persistentvolumeclaims=list(claims), storageclasses=[samples.class_json()])
