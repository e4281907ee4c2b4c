"""Plays a world: nodes with the real rooms, their drivers and one API server in virtual time, with trouble drawn from a seed.

    report = play(plan_of(seed=7))

The plan says what happens when. After its last event the network is reliable again, the world comes to rest, and the invariants are
checked on what is left: the API server's objects and the drivers' own state. Known gaps have names and are reported apart from
violations, so that a new leak cannot hide among them.
"""

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from hack.sim.clock import run_virtual
from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.stand_ins import Binder, Scheduler, StandInBase
from hack.sim.world import foreign_objects, hourly_look, invariants, plan
from hack.sim.world.label_events import BY_LABEL
from hack.sim.world.life import Killed
from hack.sim.world.network import Network, Weather
from hack.sim.world.node import DRIVER, EPOCH, NAMESPACE, TOPOLOGY_KEY, Node, csi_node
from hack.sim.world.plan import Plan, PlannedEvent, plan_of
from hack.sim.world.plan_actions import carry_out, class_, secret
from hack.sim.world.plan_rolls import PLACEMENTS, Program
from hack.sim.world.referee import Referee
from hack.sim.world.request_log import RequestLog
from hack.sim.world.transcript import Transcript
from hack.sim.world.wanderings import Wanderings
from sidecar.frozen import frozen
from sidecar.kube.api import CLASSES as CLASS_RESOURCE
from sidecar.kube.api import CSI_DRIVERS, CSI_NODES, NAMESPACES, NODES, SECRETS, KubeApi
from sidecar.kube.errors import AlreadyExists, NotFound

_LATER: Final = 60.0

__all__ = ["Finding", "Plan", "PlannedEvent", "Report", "World", "plan_of", "play"]


@frozen
class Finding:
    """A violation of an invariant."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(slots=True)
class Report:
    """The result of a world."""

    plan: Plan
    violations: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Events by what they were."""
    transcript: str = ""
    worlds: str = ""
    """The kind of worlds, as `hack/fire` calls it; empty: the usual one."""

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.violations}

    @property
    def replay(self) -> str:
        kind = f"--worlds {self.worlds} " if self.worlds else ""
        return f"hack/fire {kind}--seed {self.plan.seed}"

    def __str__(self) -> str:
        """The text of a failed assertion: how to play this world again, and what is wrong in it."""
        return "\n".join((self.replay, *map(str, self.violations)))


def play(plan: Plan, *, before: Callable[["World"], None] = lambda _: None) -> Report:
    """Plays one world from its start to its judgement. `before` may break something on purpose."""

    async def story() -> Report:
        world = World(plan)
        before(world)
        with errors_to(world.found):
            return await world.play()

    with no_collector():
        return run_virtual(story(), limit=100_000.0, seed=plan.seed)


class World:
    """To be made inside the virtual event loop."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.transcript = Transcript(self.clock)
        self.report = Report(plan)
        self.cluster = Cluster(clock=lambda: EPOCH + self.clock(), rng=random.Random(f"server {plan.seed}").random)
        self.api: KubeApi = InProcessApi(self.cluster)
        self.network = Network(random.Random(f"network {plan.seed}"), plan.weather)
        self.request_log = RequestLog(self.clock)
        self.foreign = foreign_objects.Foreign(self.api, self.clock)
        self.nodes = {name: Node(self, name) for name in plan.nodes}
        for name, placement in plan.placements:
            self.nodes[name].placement = PLACEMENTS[placement]
        for name in plan.by_label:
            self.nodes[name].scope = BY_LABEL
        for name in plan.upstream:
            self.nodes[name].program = Program.UPSTREAM
        for name, at in plan.joins:
            self.nodes[name].joins_at = at
        self.departed: dict[str, Node] = {}
        """Nodes that are not there any more."""
        self._lives: dict[str, asyncio.Task[None]] = {}
        self.referee = Referee(self.api, {name: node.driver for name, node in self.nodes.items()}, self.found)
        self.wanderings = Wanderings(self.clock)
        self.referee.on_taken = self.wanderings.taken
        self.retained: set[str] = set()
        """Handles of volumes whose data somebody has kept."""
        self.left_at_rest: Mapping[str, str] = {}
        """Capacity objects of nodes that have no sidecar then, with the names of these nodes."""
        self._spawned: dict[str, asyncio.Task[None]] = {}

    async def play(self) -> Report:
        async with asyncio.TaskGroup() as group:
            await self._furnish()
            tasks = [group.create_task(each) for each in self._bystanders()]
            self._lives |= {name: group.create_task(node.run()) for name, node in self.nodes.items()}
            await self._play_events()
            await self._come_to_rest()
            await invariants.judge(self)
            for task in (*tasks, *self._lives.values(), *self._spawned.values()):
                task.cancel()
        self.report.transcript = str(self.transcript)
        return self.report

    # --- for nodes, actions and the referee -------------------------------------------------------------------------------------

    def found(self, kind: str, what: str) -> None:
        """Records a violation."""
        self.report.violations.append(Finding(kind, what))
        self.transcript.tell("VIOLATION", f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        if method == "CreateVolume":
            self.referee.created(name)
            self.referee.acts(self.nodes[node].all_names if node in self.nodes else self.departed[node].all_names, name)
        if method == "DeleteVolume":
            self.referee.deleted(name)

    def spawn(self, name: str, doing: Coroutine[Any, Any, None]) -> None:
        """Starts a task that runs beside the plan. A name has at most one task."""
        self.give_up(name)
        self._spawned[name] = asyncio.create_task(doing)

    def give_up(self, name: str) -> None:
        if task := self._spawned.pop(name, None):
            task.cancel()

    def take_down(self, node: str) -> None:
        """Cuts the node off from the API server."""
        self.network.take_down(node)
        self.request_log.went_down(node)

    def bring_up(self, node: str) -> None:
        self.network.bring_up(node)
        self.request_log.came_up(node)

    async def admit(self, node: Node) -> None:
        """A machine that was not there before, or not under this name."""
        await self._register(node.name)
        self.nodes[node.name] = node
        self.referee.drivers[node.name] = node.driver
        self._lives[node.name] = asyncio.create_task(node.run())

    async def dismiss(self, name: str, *, stays_listed: bool = False) -> Node:
        """A machine that ends at once and for good, under this name. Its Node and its CSINode go too, unless nobody sees to that."""
        life = self._lives.pop(name)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        self.departed[name] = node = self.nodes.pop(name)
        self.bring_up(name)  # whatever cut it off
        del self.referee.drivers[name]
        for resource in () if stays_listed else (NODES, CSI_NODES):
            with suppress(NotFound):
                await self.api.delete(resource, name)
        return node

    # --- from start to judgement --------------------------------------------------------------------------------

    async def _furnish(self) -> None:
        try:
            await self.api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        except AlreadyExists:
            pass  # the server has made it itself
        await self.api.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True, "attachRequired": False}})
        for name in plan.CLASSES:
            await self.api.create(CLASS_RESOURCE, class_(name))
        for name in self.nodes:
            await self._register(name)
        await self.api.create(SECRETS, secret(), namespace=NAMESPACE)
        await foreign_objects.settle(self.api)

    async def _register(self, name: str) -> None:
        labels = {TOPOLOGY_KEY: name, "kubernetes.io/hostname": name}
        await self.api.create(NODES, {"metadata": {"name": name, "labels": labels}})
        await self.api.create(CSI_NODES, csi_node(name))

    def _bystanders(self) -> list[Coroutine[Any, Any, None]]:
        """The rest of the control plane, and the referee."""
        base = StandInBase(self.api, clock=self.clock, rng=random.Random(f"eyes {self.plan.seed}"))
        Binder(base), Scheduler(base)  # the base keeps them
        return [base.run(), self.referee.watch_claims(), self.referee.watch_volumes()]

    async def _play_events(self) -> None:
        for item in self.plan.events:
            await asyncio.sleep(max(item.at - self.clock(), 0.0))
            self.report.counts[item.what] += 1
            self.transcript.tell("world", str(item))
            await carry_out(self, item)

    async def _come_to_rest(self) -> None:
        """Ends all trouble (network, drivers, kills, missing classes) and lets time pass."""
        self.transcript.tell("world", "comes to rest")
        self.network.weather = Weather()
        for name, node in self.nodes.items():
            self.bring_up(name)
            self.network.local_delay(name, 0.0)
            node.spare()
        for name in plan.CLASSES:
            await carry_out(self, PlannedEvent(self.clock(), "class back", name))
        await asyncio.sleep(self.plan.settle)
        self.transcript.tell("world", "should be at rest")
        self.left_at_rest = await hourly_look.left_behind(self.api, self.nodes)
        self.request_log.begin_rest()
        await invariants.nothing_held_back(self)
        await asyncio.sleep(min(self.plan.rest, _LATER))
        await invariants.nothing_held_back(self)
        await asyncio.sleep(max(self.plan.rest - _LATER, 0.0))


class _ErrorsTo(logging.Handler):
    def __init__(self, found: Callable[[str, str], None]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, Killed):
            self._found("error logged", f"{record.getMessage()}{'' if error is None else f': {error!r}'}")


@contextmanager
def errors_to(found: Callable[[str, str], None]) -> Iterator[None]:
    """Records what the program logs at level ERROR as a violation. Lower levels are off, to save time."""
    log, handler = logging.getLogger("sidecar"), _ErrorsTo(found)
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


@contextmanager
def no_collector() -> Iterator[None]:
    """Switches the garbage collector of Python off: it would run clean-up code at different moments in different processes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
