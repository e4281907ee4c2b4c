"""What the model of upstream is made of: a cache that follows one kind of object, and a queue that works on one key at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from sidecar.kube.api import KubeApi, Resource
from sidecar.kube.errors import ApiError, Gone, TooManyRequests, Unavailable
from sidecar.model.objects import Json

Seen = Callable[[Json | None, Json | None], None]
"""An object before and after a change, as far as it exists."""

_FIRST_PAUSE: Final = 0.8
_LONGEST_PAUSE: Final = 30.0


class Cache:
    """The objects of one kind, as the last list and the watch after it have them. It keeps what it has while the server is away."""

    def __init__(self, kube: KubeApi, resource: Resource, seen: Seen, **scope: str) -> None:
        self.items: dict[str, Json] = {}
        self.synced = asyncio.Event()
        self._kube = kube
        self._resource = resource
        self._seen = seen
        self._scope: dict[str, Any] = dict(scope)
        self._version = ""

    async def run(self, chance: Callable[[], float]) -> None:
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                failures = 0
                await self._watch()
            except Gone:
                self._version = ""
            except (TooManyRequests, Unavailable):
                pass  # the watch goes on where it was
            except ApiError:
                self._version = ""
            await asyncio.sleep(min(_FIRST_PAUSE * 2.0**failures, _LONGEST_PAUSE) * (1.0 + chance()))
            failures += 1

    async def _list(self) -> None:
        page = await self._kube.list_page(self._resource, limit=0, **self._scope)
        fresh = {key_of(obj): obj for obj in page.items}
        for key in [key for key in self.items if key not in fresh]:
            self._put(key, None)
        for key, obj in fresh.items():
            self._put(key, obj)
        self._version = page.resource_version
        self.synced.set()

    async def _watch(self) -> None:
        async with aclosing(self._kube.watch(self._resource, resource_version=self._version, **self._scope)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    self._put(key_of(event.object), event.object)
                elif event.type == "DELETED":
                    self._put(key_of(event.object), None)
                self._version = event.resource_version

    def _put(self, key: str, new: Json | None) -> None:
        old = self.items.pop(key, None)
        if new is not None:
            self.items[key] = new
        self._seen(old, new)


class Queue:
    """Calls `act` for each key that was added, for one key once at a time. If `act` returns True the key is added again after a pause that
    doubles; whoever adds it sooner need not wait for that."""

    def __init__(self, act: Callable[[str], Awaitable[bool]], group: asyncio.TaskGroup, *, start: float, cap: float) -> None:
        self._act = act
        self._group = group
        self._start, self._cap = start, cap
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}

    def add(self, key: str) -> None:
        if key in self._running:
            self._again.add(key)
        else:
            self._running.add(key)
            self._group.create_task(self._work(key))

    async def _work(self, key: str) -> None:
        failed = await self._act(key)
        self._running.discard(key)
        if failed:
            before = self._failures.get(key, 0)
            self._failures[key] = before + 1
            self._group.create_task(self._later(key, min(self._start * 2.0 ** min(before, 60), self._cap)))
        else:
            self._failures.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def _later(self, key: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.add(key)


def key_of(obj: Json) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}".removeprefix("/")
