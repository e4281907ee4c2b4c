"""An API server in the process, and a client whose watches are held, ended and refused one by one, by their label selector."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.cluster.inprocess import Call
from sidecar.kube.api import Page, Resource, WatchEvent
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model.objects import Json


def now() -> float:
    return asyncio.get_running_loop().time()


def a_cluster() -> ApiServer:
    return ApiServer(clock=now, rng=random.Random(7).random)


class Api(InProcessApi):
    """The client of the reflector. Its watches can be held, ended and refused one by one, and its questions fail on demand."""

    def __init__(self, cluster: ApiServer) -> None:
        super().__init__(cluster, before=self._note)
        self.asked: list[tuple[float, str]] = []
        self.watches: list[tuple[float, str, str]] = []
        """When, with which selector, from which version."""
        self.held: dict[str, asyncio.Event] = {}
        self.refused: dict[str, ApiError] = {}
        self.failing: ApiError | None = None
        self.list_failing: ApiError | None = None
        self.unlisted: set[str] = set()
        """Selectors by which no list comes."""
        self.refusals: list[str] = []
        """Lists that did not come, by selector."""
        self.list_slow = self.list_late = 0.0
        self.slow = 0.0
        self.late = 0.0
        """How long the answer to a question takes back."""
        self.open: dict[str, int] = Counter()
        self._cut: dict[str, asyncio.Future[ApiError | None]] = {}

    async def _note(self, call: Call) -> None:
        self.asked.append((now(), call.verb))
        if call.verb == "get":
            await asyncio.sleep(self.slow)
            if self.failing is not None:
                raise self.failing
        if call.verb == "list":
            await asyncio.sleep(self.list_slow)
            if self.list_failing is not None:
                raise self.list_failing

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        try:
            return await super().get(resource, name, namespace=namespace)
        finally:
            await asyncio.sleep(self.late)

    async def list_page(self, resource: Resource, *, label_selector: str = "", **more: Any) -> Page:
        if label_selector in self.unlisted:
            self.refusals.append(label_selector)
            raise Unavailable("away")
        page = await super().list_page(resource, label_selector=label_selector, **more)
        await asyncio.sleep(self.list_late)
        return page

    def count(self, verb: str) -> int:
        return sum(one == verb for _, one in self.asked)

    def hold(self, selector: str) -> None:
        self.held[selector] = asyncio.Event()

    def let_go(self, selector: str) -> None:
        self.held.pop(selector).set()

    def cut(self, selector: str, error: ApiError | None = None) -> None:
        if not self._cut[selector].done():
            self._cut[selector].set_result(error)

    async def watch(  # type: ignore[override]
        self, resource: Resource, *, resource_version: str, label_selector: str = "", **more: Any
    ) -> AsyncGenerator[WatchEvent, None]:
        self.watches.append((now(), label_selector, resource_version))
        if label_selector in self.refused:
            raise self.refused[label_selector]
        self.open[label_selector] += 1
        cut = self._cut[label_selector] = asyncio.get_running_loop().create_future()
        stream = super().watch(resource, resource_version=resource_version, label_selector=label_selector, **more)
        try:
            while True:
                reading = asyncio.ensure_future(anext(stream, None))
                try:
                    await asyncio.wait({reading, cut}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not reading.done():
                        reading.cancel()
                        await asyncio.gather(reading, return_exceptions=True)
                if cut.done():
                    if (error := cut.result()) is not None:
                        raise error
                    return
                if (event := reading.result()) is None:
                    return
                if label_selector in self.held:
                    await self.held[label_selector].wait()
                yield event
        finally:
            self.open[label_selector] -= 1
            await stream.aclose()
