"""The full model: the real rooms on every node in virtual time, with the same load, trouble and delays as the thin model.

Counting happens at the API server and at the drivers, so that nothing depends on what a sidecar says about itself.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sidecar.csi.api import Capability, CreateRequest
from sidecar.csi.outcome import Code
from sidecar.kube.api import CLAIMS, CLASSES, CSI_NODES, NAMESPACES, NODES, KubeApi, WatchEvent
from sidecar.kube.errors import AlreadyExists
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.simulation.clock import run_virtual
from sidecar.simulation.cluster import Cluster, InProcessApi
from sidecar.simulation.cluster.kinds.table import CSI_DRIVERS, TABLE
from sidecar.simulation.driver.faults import Fault
from sidecar.simulation.stand_ins import Binder, StandInBase
from sidecar.simulation.swarm import sources
from sidecar.simulation.swarm.busy_server import BusyServer
from sidecar.simulation.swarm.counts import Counts
from sidecar.simulation.swarm.full_doors import Count, Server, Slow, Surroundings, Wires
from sidecar.simulation.swarm.lines import Lines
from sidecar.simulation.swarm.scenario import RANDOM, RANKED, Part, Scenario, Trouble
from sidecar.simulation.world.node import DRIVER, EPOCH, NAMESPACE, POOL, TOPOLOGY_KEY, Node
from sidecar.simulation.world.plan import IMMEDIATE_CLASS, Plan
from sidecar.simulation.world.plan_actions import class_

# By then every process has listed what it lists at its start, and has published its first figure.
_READY: Final = 30.0
# Of who makes the claims, if the server takes its time.
_WRITES_AT_ONCE: Final = 32
_BALLAST: Final = "ballast"
_OTHERS: Final = "others"


def play(scenario: Scenario, *, watched: Callable[[Callable[[], float]], None] = lambda _: None) -> Counts:
    """Plays one race. `watched` is handed what tells, from any thread, which share of it is over."""

    async def story() -> Counts:
        arena = Arena(scenario)
        watched(arena.share)
        return await arena.play()

    limit = _READY + scenario.standing + scenario.arrivals()[-1] + scenario.patience + 1000.0
    with _quietly():
        return run_virtual(story(), limit=limit, seed=scenario.seed)


class Arena:
    """To be made inside the virtual event loop."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._cast = scenario.cast()
        self._clock = asyncio.get_running_loop().time
        self._count = Count()
        kinds = (*TABLE, *sources.KINDS) if scenario.snapshots else TABLE
        self._cluster = Cluster(clock=lambda: EPOCH + self._clock(), rng=scenario.dice("server").random, kinds=kinds)
        self._api: KubeApi = InProcessApi(self._cluster)
        """The API for requests that take no time and are not counted."""
        self._busy = BusyServer(scenario, self._clock)
        self._queued_api: KubeApi = InProcessApi(self._cluster, before=self._busy.request)
        """The same where a server that is busy takes its time."""
        self._writes = scenario.dice("writes")
        lines = Lines(scenario.watch, scenario.dice("watch"))
        numbers = {part.name: number for number, part in enumerate(self._cast)}
        self._wires = Wires(scenario.dice("network"), lines, numbers=numbers, count=self._count, busy=self._busy)
        self._strays: list[str] = []
        self._liars = {part.name for part in self._cast if part.lies}
        self._nodes = {part.name: self._node(part) for part in self._cast if not part.dead}
        self._begun = 0.0
        self._came: dict[str, float] = {}
        self._owned: set[str] = set()
        self._bound: set[str] = set()

    async def play(self) -> Counts:
        async with asyncio.TaskGroup() as group:
            await self._furnish()
            tasks = [group.create_task(each) for each in (self._bind(), *(node.run() for node in self._nodes.values()))]
            await asyncio.sleep(_READY)
            self._fill()
            await self._stand_in_the_way()
            self._begun = self._count.begun = self._clock()
            self._busy.begin()
            tasks += [group.create_task(each) for each in (self._watch_claims(), self._befall())]
            await self._let_come()
            await self._come_to_rest()
            counts = self._conclude()
            for task in tasks:
                task.cancel()
        return counts

    def share(self) -> float:
        """Of what there is to do, about: to start a node takes as long as to let all of them see one more claim."""
        starting = len(self._cast) / (len(self._cast) + self._scenario.claims)
        at_rest = min(1.0, self._clock() / (_READY + self._scenario.standing))
        return starting * at_rest + (1.0 - starting) * len(self._bound) / self._scenario.claims

    def _node(self, part: Part) -> Node:
        plan = Plan(self._scenario.seed, (part.name,), pool=str(part.space), args=_args(self._scenario, part))
        server = Server(self._cluster, self._scenario, self._count, dice=self._writes, busy=self._busy)
        around = Surroundings(plan, clock=self._clock, api=server, network=self._wires, strays=self._strays)
        node = Node(around, part.name, driver=sources.RestoringDriver(part.name) if self._scenario.snapshots else None)
        node.reception = Slow(self._scenario, self._count, node=part.name)
        if part.lies:
            node.strike(Fault(method="CreateVolume", fail=Code.RESOURCE_EXHAUSTED))
        return node

    # --- from start to end --------------------------------------------------------------------------------

    async def _furnish(self) -> None:
        for namespace in (NAMESPACE, _OTHERS):
            try:
                await self._api.create(NAMESPACES, {"metadata": {"name": namespace}})
            except AlreadyExists:
                pass  # the server has made it itself
        await self._api.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True, "attachRequired": False}})
        await self._api.create(CLASSES, class_(IMMEDIATE_CLASS))
        for part in self._cast:
            await self._api.create(NODES, {"metadata": {"name": part.name, "labels": {TOPOLOGY_KEY: part.name}}})
            driver = {"name": DRIVER, "nodeID": part.name, "topologyKeys": [TOPOLOGY_KEY]}
            await self._api.create(CSI_NODES, {"metadata": {"name": part.name}, "spec": {"drivers": [driver]}})
        if self._scenario.snapshots:
            able = [part.name for part in self._cast if part.usable]
            claims = [_name(number) for number in range(self._scenario.claims)]
            await sources.furnish(self._api, claims, able, bytes_=self._scenario.size)

    async def _bind(self) -> None:
        """The volume controller."""
        base = StandInBase(self._queued_api, clock=self._clock, rng=self._scenario.dice("eyes"))
        Binder(base)  # the base keeps it
        await base.run()

    def _fill(self) -> None:
        """Fills the nodes that shall be full, after all nodes have listed them as empty."""
        for part in self._cast:
            if part.full:
                request = CreateRequest(_BALLAST, part.space, (Capability("SINGLE_NODE_WRITER"),))
                self._nodes[part.name].driver.create(request)

    async def _stand_in_the_way(self) -> None:
        """Another tenant's claims, which can never be made."""
        for number in range(self._scenario.impossible):
            body = _claim(f"impossible-{number}", 2 * max(self._scenario.space), None, namespace=_OTHERS)
            await self._api.create(CLAIMS, body, namespace=_OTHERS)
        if self._scenario.impossible:
            await asyncio.sleep(self._scenario.standing)

    async def _let_come(self) -> None:
        arrivals = enumerate(self._scenario.arrivals())

        async def create() -> None:
            for number, at in arrivals:
                await self._until(at)
                source = sources.source_of(_name(number)) if self._scenario.snapshots else None
                await self._queued_api.create(CLAIMS, _claim(_name(number), self._scenario.size, source), namespace=NAMESPACE)

        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITES_AT_ONCE if self._scenario.is_server_busy else 1):
                group.create_task(create())

    async def _befall(self) -> None:
        async with asyncio.TaskGroup() as group:
            for trouble in self._scenario.troubles():
                await self._until(trouble.at)
                group.create_task(self._strike(trouble))

    async def _strike(self, trouble: Trouble) -> None:
        """Kills the process or cuts its connection. A killed process comes back when its node would start it again."""
        if trouble.restart:
            self._nodes[trouble.node].kill()
            return
        self._wires.take_down(trouble.node)
        await asyncio.sleep(self._scenario.away)
        self._wires.bring_up(trouble.node)

    async def _come_to_rest(self) -> None:
        """Waits until all claims have a volume, or no open claim can get one."""
        end = self._clock() + self._scenario.patience
        while self._clock() < end and len(self._bound) < self._scenario.claims:
            await asyncio.sleep(1.0)
            if self._owned == self._bound and not self._has_room():
                return

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(self._begun + at - self._clock(), 0.0))

    # --- what is observed -------------------------------------------------------------------------------------------

    async def _watch_claims(self) -> None:
        """Watches claims without delay. A claim counts from the moment the volume controller asks for its volume."""
        version = (await self._api.list_page(CLAIMS)).resource_version
        while True:
            async for event in self._api.watch(CLAIMS, resource_version=version):
                version = event.resource_version
                if event.type != "BOOKMARK":
                    self._look_at(event)

    def _look_at(self, event: WatchEvent) -> None:
        meta = event.object["metadata"]
        if meta["namespace"] == _OTHERS:
            return
        uid, notes = meta["uid"], meta.get("annotations") or {}
        if names.STORAGE_PROVISIONER in notes:
            self._came.setdefault(uid, self._clock())
        if notes.get(names.SELECTED_NODE) and uid not in self._owned:
            self._owned.add(uid)
            self._count.counts.latencies.append(self._clock() - self._came[uid])
        if event.object["spec"].get("volumeName") and uid not in self._bound:
            self._bound.add(uid)
            self._count.counts.bound.append(self._clock() - self._came[uid])

    def _has_room(self) -> bool:
        return any(node.driver.free(POOL) >= self._scenario.size for name, node in self._nodes.items() if name not in self._liars)

    def _conclude(self) -> Counts:
        if self._strays:
            raise AssertionError(f"in a world in which only a race was to be seen: {self._strays[0]}")
        counts = self._count.counts
        counts.ended = self._clock() - self._begun
        counts.fits = self._scenario.claims - len(self._bound) if self._has_room() else 0
        for name, node in self._nodes.items():
            counts.volumes[name] = sum(volume.name != _BALLAST for volume in node.driver.volumes())
        return counts


def _args(scenario: Scenario, part: Part) -> tuple[str, ...]:
    """The flags of that node's sidecar."""
    placement = RANDOM if part.upstream else scenario.placement
    figures = ("--capacity-for-immediate-binding",) if scenario.placement == RANKED and scenario.figures else ()
    return (
        f"--node-deployment-base-delay={scenario.base_delay}s",
        f"--node-deployment-max-delay={scenario.max_delay}s",
        f"--node-deployment-placement={placement}",
        *figures,
    )


def _name(number: int) -> str:
    return f"data-{number}"


def _claim(name: str, size: int, source: Json | None, *, namespace: str = NAMESPACE) -> Json:
    filled = {"dataSource": source} if source else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "storageClassName": IMMEDIATE_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": str(size)}},
            **filled,
        },
    }


@contextmanager
def _quietly() -> Iterator[None]:
    """Switches logging off: the lines of hundreds of processes would only cost time."""
    log = logging.getLogger("sidecar")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
