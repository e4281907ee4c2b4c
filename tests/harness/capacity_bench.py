"""A whole program that publishes capacity, on the simulated API server and a local driver, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from hack.sim.clock import run_virtual
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.driver.local_driver import POOL_PARAMETER, LocalDriver, Spec
from hack.sim.stand_ins import Binder, StandInBase
from sidecar.config.parse import Parsed, parse
from sidecar.csi.api import NOTHING, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest
from sidecar.csi.outcome import DriverError
from sidecar.doors import Doors, Instruments
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, VOLUMES, Page, Resource, WatchEvent
from sidecar.kube.events.recorder import EventRecorder
from sidecar.model import names
from sidecar.model.objects import LATE, Json
from sidecar.model.quantity import parse_bytes
from sidecar.observe.metrics import Metrics
from sidecar.wiring import Sidecar
from tests.harness.virtual import AsyncTest, staged

NAME, NODE, NAMESPACE = "cases.csi-node-sidecar.io", "foo", "default"
KEY, ZONE = f"topology.{NAME}/node", f"topology.{NAME}/zone"
EPOCH = 1_767_225_600.0
GIB = 2**30
LABELS = {names.CAPACITY_DRIVER_LABEL: NAME, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(NODE)}
POLL = 60.0


@dataclass(frozen=True)
class Write:
    """A request of the program that changes a capacity object."""

    at: float
    verb: str
    class_name: str


class Kube(InProcessApi):
    """The program's own way to the server: a few milliseconds long, and what it asks of capacity objects is written down."""

    def __init__(self, cluster: ApiServer, clock: Callable[[], float]) -> None:
        super().__init__(cluster, before=self._travel)
        self._clock = clock
        self.writes: list[Write] = []
        self.queries: set[tuple[str, str, str]] = set()
        self.slow: dict[str, float] = {}
        """Seconds that a request takes, by verb and kind."""

    async def _travel(self, call: Any) -> None:
        await asyncio.sleep(self.slow.get(f"{call.verb} {call.resource}", 0.002))

    async def list_page(self, resource: Resource, **query: Any) -> Page:
        self._asks("list", resource, query)
        return await super().list_page(resource, **query)

    async def watch(self, resource: Resource, **query: Any) -> AsyncIterator[WatchEvent]:  # type: ignore[override]
        self._asks("watch", resource, query)
        async for event in super().watch(resource, **query):
            yield event

    def _asks(self, verb: str, resource: Resource, query: Mapping[str, Any]) -> None:
        if resource == CAPACITIES:
            self.queries.add((verb, query.get("namespace", ""), query.get("label_selector", "")))

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        self._writes("create", resource, body.get("storageClassName", ""))
        return await super().create(resource, body, namespace=namespace)

    async def replace(self, resource: Resource, body: Any, **options: Any) -> Json:
        self._writes("update", resource, body.get("storageClassName", "") if resource == CAPACITIES else "")
        return await super().replace(resource, body, **options)

    async def delete(self, resource: Resource, name: str, **options: Any) -> None:
        self._writes("delete", resource, "")
        await super().delete(resource, name, **options)

    def _writes(self, verb: str, resource: Resource, class_name: str) -> None:
        if resource == CAPACITIES:
            self.writes.append(Write(self._clock(), verb, class_name))


class Driver:
    """The local driver, which may be slow, fail, or say what the test wants."""

    def __init__(self, spec: Spec, clock: Callable[[], float]) -> None:
        self.local = LocalDriver(spec)
        self._clock = clock
        self.answer: Callable[[CapacityQuery], CapacityAnswer] | None = None
        self.failing: dict[str, DriverError] = {}
        self.takes: dict[str, float] = {}
        self.lacks: frozenset[str] = frozenset()
        """Capabilities that it does not claim, though it does what they are about."""
        self.asked: list[tuple[float, CapacityQuery]] = []
        self.done: list[str] = []

    @property
    def info(self) -> Any:
        return replace(self.local.info, plugin=self.local.info.plugin - self.lacks)

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        await self._meet("create")
        return self.local.create(request)

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        await self._meet("delete")
        self.local.delete(volume_id)

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        self.asked.append((self._clock(), query))
        await self._meet("capacity")
        return self.answer(query) if self.answer is not None else self.local.get_capacity(query)

    async def _meet(self, method: str) -> None:
        await asyncio.sleep(self.takes.get(method, 0.01))
        if method in self.failing:
            raise self.failing[method]
        self.done.append(method)


class Bench:
    """A cluster with one node. The program on it may end and be started again; the driver and the cluster go on."""

    def __init__(self, *args: str, segment: Mapping[str, str] | None = None, pools: Mapping[str, int] | None = None) -> None:
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.args = ["--capacity-ownerref-level=-1", *args]
        self.cluster = ApiServer(clock=lambda: EPOCH + self.clock(), rng=random.Random("server").random)
        self.api = InProcessApi(self.cluster)
        self.kube = Kube(self.cluster, self.clock)
        self.segment = dict(segment or {KEY: NODE})
        self.driver = Driver(Spec(node_id=NODE, name=NAME, pools=pools or {"main": 10 * GIB}, topology=self.segment), self.clock)
        self.metrics = Metrics("test")
        self._claims = 0

    @asynccontextmanager
    async def running(self, *, settle: float = 5.0) -> AsyncIterator[Sidecar]:
        """One life of the program, from its first quiet moment on."""
        base = StandInBase(self.api, clock=self.clock, rng=random.Random("eyes"))
        Binder(base)
        program = self._assemble()
        tasks = [asyncio.create_task(base.run()), asyncio.create_task(program.run())]
        try:
            await self.pause(settle, watching=tasks[1])
            yield program
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _assemble(self) -> Sidecar:
        self.metrics = Metrics("test")
        dice = random.Random("program").random
        tools = Instruments(metrics=self.metrics, clock=self.clock, wall=lambda: EPOCH + self.clock(), rng=dice)
        flags = ["--node-deployment", "--enable-capacity", "--kube-api-qps=-1", "--kube-api-capacity-qps=-1", *self.args]
        parsed = parse(flags, {"NODE_NAME": NODE, "NAMESPACE": NAMESPACE, "POD_NAME": "pod"})
        assert isinstance(parsed, Parsed), parsed
        recorder = EventRecorder(self.kube, component="test", clock=tools.clock, wall=tools.wall, rng=dice)
        return Sidecar(parsed.config, Doors(self.kube, self.kube, self.driver), tools, recorder=recorder)

    async def pause(self, seconds: float, *, watching: "asyncio.Task[None] | None" = None) -> None:
        """What ends the program before the time is over is raised here."""
        await asyncio.sleep(seconds)
        if watching is not None and watching.done():
            await watching

    async def class_(self, name: str = "late", *, mode: str = LATE, **parameters: str) -> None:
        await self.api.create(
            CLASSES, {"metadata": {"name": name}, "provisioner": NAME, "volumeBindingMode": mode, "parameters": parameters}
        )

    async def object(self, class_name: str = "late", *, capacity: str = "10Gi", maximum: str = "10Gi", **meta: Any) -> Json:
        """A capacity object as this program publishes it, unless told otherwise."""
        topology = meta.pop("topology", self.segment)
        body = {
            "metadata": {"generateName": "csisc-", "labels": LABELS} | meta,
            "storageClassName": class_name,
            "nodeTopology": {"matchLabels": topology},
            "capacity": capacity,
            "maximumVolumeSize": maximum,
        }
        return await self.api.create(CAPACITIES, body, namespace=NAMESPACE)

    async def objects(self) -> list[Json]:
        return (await self.api.list_page(CAPACITIES, namespace=NAMESPACE)).items

    async def published(self) -> dict[str, int]:
        """Free bytes by class; it is a failure to have two objects for one."""
        ours = [item for item in await self.objects() if item["metadata"].get("labels") == LABELS]
        assert len({item["storageClassName"] for item in ours}) == len(ours), ours
        return {item["storageClassName"]: parse_bytes(item["capacity"]) for item in ours}

    async def only(self) -> Json:
        (item,) = await self.objects()
        return item

    async def alter(self, item: Json, **changes: Any) -> Json:
        """What somebody else does to an object."""
        return await self.api.replace(CAPACITIES, {**item, **changes}, name=item["metadata"]["name"], namespace=NAMESPACE)

    async def claim(self, class_name: str = "late", *, gib: int = 1, selected: str = NODE) -> str:
        self._claims += 1
        name = f"data-{self._claims}"
        annotations = {names.SELECTED_NODE: selected} if selected else {}
        spec = {
            "storageClassName": class_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{gib}Gi"}},
        }
        await self.api.create(CLAIMS, {"metadata": {"name": name, "annotations": annotations}, "spec": spec}, namespace=NAMESPACE)
        return name

    async def volumes(self) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.api.list_page(VOLUMES)).items]

    def gauges(self) -> list[float]:
        """What is to be published, what is, and what is there too much."""
        figures = dict(line.split() for line in self.metrics.render()[0].decode().splitlines() if line.startswith("csistoragecapacities_"))
        return [float(figures[f"csistoragecapacities_{name}"]) for name in ("desired_goal", "desired_current", "obsolete")]

    def asked_since(self, at: float) -> list[str]:
        """The classes, by their parameter, whose capacity was asked for."""
        return sorted(query.parameters.get(POOL_PARAMETER, "") for when, query in self.driver.asked if when >= at)

    def wrote(self) -> list[str]:
        return [write.verb for write in self.kube.writes]


def play(told: AsyncTest, *args: str, **options: Any) -> None:
    async def main() -> None:
        await told(Bench(*args, **options))

    run_virtual(main(), limit=50_000.0)


def story(*args: str, **options: Any) -> Callable[[AsyncTest], Callable[[], None]]:
    """A test on such a bench, in virtual time."""
    return lambda told: staged(lambda each: play(each, *args, **options), told)
