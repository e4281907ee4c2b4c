"""One open watch: when its events and bookmarks are sent, and when it ends. It uses the clock of the event loop, virtual or real."""

import asyncio
import math
from typing import Final

from hack.sim.cluster.cluster import Cluster
from hack.sim.cluster.storage.reading import Query, Told, Watch
from sidecar.kube.api import Resource
from sidecar.kube.errors import ApiError

BOOKMARK_SECONDS: Final = 60.0
_BEFORE_THE_END: Final = 2.0


class Stream:
    """One open watch: its place in the history, and when the next bookmark and its end are due."""

    def __init__(self, cluster: Cluster, resource: Resource, query: Query, *, seconds: float, bookmarks: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._watch: Watch = cluster.watch(resource, query, wake=self._news.set)
        self._news.set()
        self._end = self._loop.time() + seconds
        self._bookmark = self._next_bookmark() if bookmarks else math.inf
        self._ended = self._held = False
        self._error: ApiError | None = None

    async def next(self) -> list[Told]:
        """Events or a bookmark; nothing when the watch is over."""
        while True:
            if self._error is not None:
                raise self._error
            now = self._loop.time()
            if self._ended or now >= self._end:
                return []
            if not self._held and self._watch.waiting:
                if told := self._watch.take():
                    return told
                continue
            if not self._held and now >= self._bookmark:
                self._bookmark = self._next_bookmark()
                return [self._watch.bookmark()]
            await self._wait(self._end if self._held else min(self._bookmark, self._end))

    def end(self, error: ApiError | None) -> None:
        self._ended, self._error = True, error
        self._news.set()

    def hold(self, *, held: bool) -> None:
        self._held = held
        self._news.set()

    def close(self) -> None:
        self._watch.close()

    def _next_bookmark(self) -> float:
        """Once a period, and once more shortly before the end, so that the next watch can go on from there."""
        now, last = self._loop.time(), self._end - _BEFORE_THE_END
        return min(now + BOOKMARK_SECONDS, last) if now < last else math.inf

    async def _wait(self, until: float) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            pass
