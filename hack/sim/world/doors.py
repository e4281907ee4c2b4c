"""The two doors of a simulated node: the real protocols, with the network, the life of the process and the request log in between.

A request that has left the process is on its way even if the process dies: a write may land when its sender is gone, and a driver may
go on with a call that nobody waits for. A request that has not left by then never does.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hack.sim.cluster import Call, InProcessApi
from hack.sim.driver.calls import Reception
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.world.network import Broken, Latency, Life, Network, Stream
from hack.sim.world.records import RequestLog
from sidecar.csi.api import NOTHING, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest, DriverInfo
from sidecar.csi.outcome import Code, DriverError, Lost, NotSent
from sidecar.kube.api import Page, Resource, Take, WatchEvent, take_none
from sidecar.kube.errors import ApiError, TooManyRequests, Unavailable
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal import NoJournal

T = TypeVar("T")
Tell = Callable[[str], None]

_STALE = 15.0
"""Seconds that a list out of the API server's cache may be old, at worst."""
REQUEST_TIMEOUT = 30.0
"""As the real client has it."""


class NodeKube(InProcessApi):
    """`KubeApi` for one life of one node's sidecar."""

    def __init__(
        self,
        api: InProcessApi,
        network: Network,
        life: Life,
        *,
        node: str,
        tell: Tell,
        request_log: RequestLog | None = None,
        on_send: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(api.cluster)
        self.api, self.network, self.life, self.node, self.tell = api, network, life, node, tell
        self.request_log = request_log or RequestLog(lambda: 0.0)
        self._on_send = on_send
        self._kept: dict[str, tuple[float, list[Any]]] = {}

    async def ask(self, call: Call, act: Callable[[], T]) -> T:
        what = str(replace(call, namespace=""))
        if call.verb not in ("get", "list", "discover") and not call.dry_run:
            return await self._write(what, lambda: self.api.ask(call, act))
        await self._travel(what, self.network.weather.read)
        answer = await self.api.ask(call, act)
        self.life.check()
        return answer

    async def list_page(self, resource: Resource, *, begin: Callable[[], Take] = take_none, **query: Any) -> Page:
        """What may be a little old is, while the node's part of the network is stale."""
        key, now = f"{resource} {query}", asyncio.get_running_loop().time()
        at, items = self._kept.get(key, (-_STALE, []))
        if self.node not in self.network.stale or query.get("resource_version") != "0":
            return await super().list_page(resource, begin=begin, **query)
        if now - at >= _STALE:
            items = (await super().list_page(resource, **query)).items
            self._kept[key] = now, items
        take = begin()
        return Page([item for item in copy.deepcopy(items) if not take(item)], "0", "")

    async def watch(self, resource: Resource, **query: Any) -> AsyncGenerator[WatchEvent, None]:
        """Events arrive in order, each a little late; a cut ends the stream in the middle."""
        what = f"watch {resource}"
        await self._travel(what, self.network.weather.read)
        with self.network.stream(self.node) as stream:
            pump = asyncio.create_task(self._pump(resource, query, stream))
            try:
                while (event := await self._hear(what, stream)) is not None:
                    yield event
            finally:
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self, resource: Resource, query: Mapping[str, Any], stream: Stream[object]) -> None:
        now = asyncio.get_running_loop().time
        try:
            async with aclosing(self.api.watch(resource, **query)) as events:
                async for event in events:
                    stream.put(event, now() + self.network.watch_delay(self.node, str(resource)))
            stream.put(None, now())
        except ApiError as error:  # it travels to whoever reads the stream
            stream.put(error, now())

    async def _hear(self, what: str, stream: Stream[object]) -> WatchEvent | None:
        try:
            item = await stream.next()
        except Broken:
            self.life.check()
            raise Unavailable(f"{what}: the connection broke") from None
        self.life.check()
        if isinstance(item, ApiError):
            raise item
        assert item is None or isinstance(item, WatchEvent)
        return item

    async def _travel(self, what: str, latency: Latency) -> None:
        await self._set_out(what)
        await asyncio.sleep(latency.draw(self.network.rng))
        self.life.check()
        self._arrive(what)

    async def _set_out(self, what: str) -> None:
        self.life.check()
        up = self.network.up(self.node)
        self.request_log.asked(self.node, what)
        if not up:
            await asyncio.sleep(0.001)
            self.life.check()
            raise Unavailable(f"{what}: connection refused")

    def _arrive(self, what: str) -> None:
        if not self.network.up(self.node):
            raise Unavailable(f"{what}: the connection broke")
        if self.network.falls_on(self.network.weather.refused):
            raise TooManyRequests(f"{what}: too many requests", retry_after=1.0)

    async def _write(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Sent, done, answered: the process may die, or the network lose the request, between any two of these moments."""
        self.life.cross(f"before {what}")
        await self._set_out(what)
        self.request_log.wrote(self.node, self.life.number)
        self._on_send()
        on_the_wire = asyncio.create_task(self._land(what, ask))
        on_the_wire.add_done_callback(_look_at)
        # A request under way is not called back, neither when its sender dies nor when it stops waiting.
        await asyncio.wait({on_the_wire}, timeout=REQUEST_TIMEOUT)
        self.life.cross(f"after {what}")
        if not on_the_wire.done():
            raise Unavailable(f"{what}: no answer in time")
        return on_the_wire.result()

    async def _land(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self.network.write_delay())
        self._arrive(what)
        if self.network.falls_on(self.network.weather.lost_requests):
            self.tell(f"{what}: the request is lost")
            raise Unavailable(f"{what}: no answer in time")
        late = "" if self.life.alive else " (who sent it is dead)"
        try:
            answer = await ask()
        except ApiError as error:
            self.tell(f"{what}: {type(error).__name__}{late}")
            raise
        self.tell(f"{what}{late}")
        if self.network.falls_on(self.network.weather.lost_answers):
            self.tell(f"{what}: the answer is lost")
            raise Unavailable(f"{what}: no answer in time")
        return answer


class Folder:
    """The folder beside the driver's socket on a node. It outlives the processes that write there."""

    def __init__(self) -> None:
        self.begun: dict[str, CreationRecord] = {}
        self.full = False


class NodeJournal(NoJournal):
    """The journal of one process in that folder. A write takes no time, but the process may die before or after it. What finds no room on
    the disk is written with the next line, or within a minute."""

    def __init__(self, folder: Folder, life: Life) -> None:
        self._folder = folder
        self._life = life
        self._own: set[str] = set()
        self._waits: list[tuple[str, CreationRecord | None]] = []
        """What is to be written by key; None: that it has ended."""

    async def begin(self, begun: CreationRecord) -> str:
        what = f"writing down the creation of {begun.request.name}"
        self._life.cross(f"before {what}")
        self._own.add(begun.key)
        self._write(begun.key, begun)
        self._life.cross(f"after {what}")
        return "the disk is full" if self._folder.full else ""

    def end(self, key: str) -> None:
        self._life.check()
        self._write(key, None)

    def _write(self, key: str, record: CreationRecord | None) -> None:
        self._waits.append((key, record))
        self._catch_up()

    def _catch_up(self) -> None:
        begun = self._folder.begun
        while self._waits and not self._folder.full:
            key, record = self._waits.pop(0)
            if record is None:
                begun.pop(key, None)
                continue
            if (before := begun.get(record.other_key)) and before.request.name == record.request.name:
                del begun[record.other_key]
            begun[key] = record

    async def take_over(self) -> list[CreationRecord]:
        self._life.check()
        self._catch_up()
        left = [begun for key, begun in self._folder.begun.items() if key not in self._own]
        self._own |= {begun.key for begun in left}
        return left


class Link:
    """The connection to one node's driver. While the driver is away every call fails at once; calls in flight when it goes are lost."""

    def __init__(self, *, forsakes: Callable[[], bool] = lambda: True) -> None:
        """`forsakes` says for each call whether the driver drops it when its caller is gone."""
        self.up = True
        self._forsakes = forsakes
        self._calls: dict[asyncio.Task[Any], None] = {}
        self._back = asyncio.Event()
        self._back.set()

    async def ready(self) -> None:
        await self._back.wait()

    def go_down(self) -> None:
        self.up = False
        self._back.clear()
        for call in list(self._calls):
            call.cancel()

    def come_back(self) -> None:
        self.up = True
        self._back.set()

    async def carry(self, what: str, call: "asyncio.Task[T]", *, timeout: float) -> T:
        self._calls[call] = None
        call.add_done_callback(_look_at)
        try:
            await asyncio.wait({call}, timeout=timeout)
            if not call.done():
                raise DriverError(Code.DEADLINE_EXCEEDED, "context deadline exceeded")
            if call.cancelled():
                raise Lost(Code.UNAVAILABLE, f"{what}: the connection broke")
            return call.result()
        finally:
            del self._calls[call]
            if not call.done() and self._forsakes():
                call.cancel()


@dataclass(slots=True)
class NodeDriver:
    """`csi.api.Driver` for one life of one node's sidecar: the local driver, called without a socket."""

    driver: LocalDriver
    reception: Reception
    life: Life
    network: Network
    timeout: float
    tell: Tell
    link: Link = field(default_factory=Link)
    on_call: Callable[[str, str], None] = lambda method, name: None
    on_done: Callable[[str, str], None] = lambda method, name: None

    @property
    def info(self) -> DriverInfo:
        return self.driver.info

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        return await self._change("CreateVolume", request.name, lambda: self.driver.create(request))

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        await self._change("DeleteVolume", volume_id, lambda: self.driver.delete(volume_id))

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        return await self._call("GetCapacity", "", lambda: self.driver.get_capacity(query))

    async def list_volumes(self) -> Mapping[str, bool]:
        page, _ = await self._call("ListVolumes", "", self.driver.list_volumes)
        return {volume.volume_id: {*volume.topologies} == {self.driver.info.segment} for volume in page}

    async def _change(self, method: str, name: str, act: Callable[[], T]) -> T:
        self.life.cross(f"before {method} {name}")
        try:
            answer = await self._call(method, name, lambda: self._act(method, name, act))
        except DriverError as error:
            self.tell(f"{method} {name}: {error.code.value}")
            self.life.cross(f"after {method} {name}")
            raise
        self.tell(f"{method} {name}: OK")
        self.life.cross(f"after {method} {name}")
        return answer

    def _act(self, method: str, name: str, act: Callable[[], T]) -> T:
        """The moment at which the driver acts, whether or not its caller still waits."""
        answer = act()
        self.on_done(method, name)
        if not self.life.alive:
            self.tell(f"{method} {name}: done (who asked for it is dead)")
        return answer

    async def _call(self, method: str, name: str, act: Callable[[], T]) -> T:
        self.life.check()
        if not self.link.up:
            raise NotSent(Code.UNAVAILABLE, f"{method} was not sent, the driver is away")
        self.on_call(method, name)
        answer = await self.link.carry(method, asyncio.create_task(self._attend(method, name, act)), timeout=self.timeout)
        self.life.check()
        return answer

    async def _attend(self, method: str, name: str, act: Callable[[], T]) -> T:
        await asyncio.sleep(self.network.weather.driver.draw(self.network.rng))
        answer = await self.reception.attend(method, name, request={}, act=act)
        await asyncio.sleep(self.network.weather.driver.draw(self.network.rng))
        return answer


def _look_at(task: "asyncio.Task[Any]") -> None:
    """The caller is gone, so somebody else must fetch the result, or asyncio would warn of an exception nobody retrieved."""
    if not task.cancelled():
        task.exception()
