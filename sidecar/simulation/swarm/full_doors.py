"""The doors of the real rooms in a race: requests and calls take the stated time, and are counted."""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sidecar.csi.outcome import Code, DriverError
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.api import CLAIMS, VOLUMES, KubeApi, Resource, WatchEvent, always
from sidecar.kube.errors import Conflict, Gone, Withdrawn
from sidecar.kube.event_prefix import Skip, reads_all
from sidecar.kube.transport import Limiter
from sidecar.model.objects import Json
from sidecar.simulation.cluster import Cluster, InProcessApi
from sidecar.simulation.cluster.inprocess import Call
from sidecar.simulation.cluster.refusals import Refused
from sidecar.simulation.cluster.storage.reading import Query
from sidecar.simulation.cluster.streaming import Stream
from sidecar.simulation.driver.calls import Reception
from sidecar.simulation.swarm.busy_server import BusyServer
from sidecar.simulation.swarm.counts import Counts
from sidecar.simulation.swarm.lines import Lines
from sidecar.simulation.swarm.scenario import Scenario
from sidecar.simulation.world.network import Latency, Network, Weather
from sidecar.simulation.world.plan import Plan
from sidecar.simulation.world.request_log import RequestLog
from sidecar.simulation.world.transcript import Transcript

T = TypeVar("T")

_NOTHING = Latency(0.0, 0.0)
_TIMED = frozenset({"get", "create", "update", "patch", "delete"})
_HEARD = frozenset({str(CLAIMS), str(VOLUMES)})


@dataclass(slots=True)
class Count:
    """Counts everything from the start of the race."""

    counts: Counts = field(default_factory=Counts)
    begun: float | None = None

    def request(self, what: str) -> None:
        if self.begun is not None:
            self.counts.requests[what] += 1

    def event(self, resource: str) -> None:
        if self.begun is not None and resource in _HEARD:
            self.counts.events += 1


class Server(InProcessApi):
    """The API server as one sidecar reaches it. A request for one object takes its time after its sender has sent it."""

    def __init__(self, cluster: Cluster, scenario: Scenario, count: Count, *, dice: random.Random, busy: BusyServer) -> None:
        super().__init__(cluster, before=self._travel)
        self._count = count
        self._busy = busy
        self._write = scenario.write
        self._dice = dice
        self._limiter = Limiter(
            TokenBucket(scenario.qps or -1.0, math.ceil(2.0 * (scenario.qps or 1.0))),
            clock=asyncio.get_running_loop().time,
            sleep=asyncio.sleep,
            rng=dice.random,
            on_throttled=lambda seconds: None,
        )

    async def replace(
        self,
        resource: Resource,
        body: Mapping[str, Any] | bytes,
        *,
        name: str,
        namespace: str = "",
        subresource: str = "",
        is_current: Callable[[], bool] = always,
    ) -> Json:
        if not await self._limiter.admit(is_current=is_current):
            raise Withdrawn(f"update {resource} {name}: no longer wanted")
        try:
            return await super().replace(resource, body, name=name, namespace=namespace, subresource=subresource)
        except Conflict:
            self._count.counts.conflicts += resource == CLAIMS
            raise

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        skip: Skip = reads_all,
    ) -> AsyncGenerator[WatchEvent, None]:
        """All nodes get the same object instead of a copy each: they only read it, and copying would take most of the time."""
        query = Query(namespace=namespace, labels=label_selector, fields=field_selector, version=resource_version)
        seconds = self._dice.uniform(300.0, 600.0)
        stream = await self._ask(Call("watch", resource, namespace), lambda: Stream(self.cluster, resource, query, seconds=seconds))
        try:
            while told := await stream.next():
                for each in told:
                    yield WatchEvent(each.type, each.stored.obj)
        except Refused as refusal:
            raise Gone(str(refusal)) from None
        finally:
            stream.close()

    async def _travel(self, call: Call) -> None:
        if call.verb != "update":
            await self._limiter.admit()
        self._count.request(f"{call.verb} {call.resource}")
        await self._busy.sidecars_request(call)
        if call.verb in _TIMED:
            await asyncio.sleep(self._write.draw(self._dice))


class Wires(Network):
    """Watch events are as late as in the thin model, by the same `Lines`. Writes take their time at the server."""

    def __init__(self, dice: random.Random, lines: Lines, *, numbers: Mapping[str, int], count: Count, busy: BusyServer) -> None:
        super().__init__(dice, Weather(write=_NOTHING, driver=_NOTHING))
        self._busy = busy
        self._race_lines = lines
        self._numbers = numbers
        self._count = count

    def watch_delay(self, node: str, what: str) -> float:
        self._count.event(what)
        at = asyncio.get_running_loop().time() - (self._count.begun or 0.0)
        return self._busy.send_event() + self._race_lines.heard(self._numbers[node], at) - at


class Slow(Reception):
    """A driver whose calls take the stated time and act at its end."""

    def __init__(self, scenario: Scenario, count: Count, *, node: str) -> None:
        super().__init__()
        self._latencies = {"GetCapacity": scenario.capacity, "CreateVolume": scenario.creation}
        self._dice = scenario.dice(f"driver {node}")
        self._count = count

    async def attend(self, method: str, name: str, *, request: Mapping[str, Any], act: Callable[[], T]) -> T:
        await asyncio.sleep(self._latencies.get(method, _NOTHING).draw(self._dice))
        self._count.counts.measured += self._count.begun is not None and method == "GetCapacity"
        try:
            return await super().attend(method, name, request=request, act=act)
        except DriverError as error:
            self._count.counts.failed += error.code is Code.RESOURCE_EXHAUSTED
            raise


class Unwritten(Transcript):
    """A transcript that nobody reads, so nothing is kept."""

    def tell(self, where: str, what: str) -> None:
        pass


class Surroundings:
    """The world around one node."""

    def __init__(self, plan: Plan, *, clock: Callable[[], float], api: KubeApi, network: Network, strays: list[str]) -> None:
        self.plan = plan
        self.clock: Callable[[], float] = clock
        self.api = api
        self.network = network
        self.request_log = RequestLog(clock)
        self.transcript: Transcript = Unwritten(clock)
        self._strays = strays
        """Violations that were found."""

    def found(self, kind: str, what: str) -> None:
        self._strays.append(f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        pass
