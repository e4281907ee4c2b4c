"""Plays a world: nodes with the real rooms, their drivers, one API server and the rest of a cluster in virtual time, with trouble by seed.

    report = play(plan_of(7, "drains"))

The plan says what happens when. The referee watches all the while. After the last event all is well again, the world comes to rest,
and what is left is judged. Everybody lives in every world; its theme says who has something to do.
"""

import asyncio
import contextvars
import gc
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hack.sim.clock import EPOCH, run_virtual
from hack.sim.cluster import ApiServer, Call, InProcessApi
from hack.sim.stand_ins import Binder, Disruptions, EphemeralClaims, Kubelet, PodGarbageCollector, Scheduler, StandInBase, StatefulSets
from hack.sim.world import rest, strangers
from hack.sim.world.actions import carry_out, operate
from hack.sim.world.effects import SENDER, Effects
from hack.sim.world.failed_over import FailedOver
from hack.sim.world.guards import Guards
from hack.sim.world.machines import Machines
from hack.sim.world.maintained import Maintained
from hack.sim.world.moments import Claims, Replicas
from hack.sim.world.network import Killed, Network
from hack.sim.world.node import DRIVER, Node, create_node, csi_node, node_body
from hack.sim.world.people import Drain
from hack.sim.world.plan import FIRM, IMMEDIATE_CLASS, KEPT, LATE, LATE_TOO, LAX, Plan
from hack.sim.world.records import RequestLog, Transcript
from hack.sim.world.verdicts import Eyes, Truth, Verdicts
from sidecar.kube.api import (
    CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    DRAIN_REPORTS,
    DRAIN_RULES,
    MAINTENANCES,
    MERGE_PATCH,
    NODES,
    PODS,
    STATEFUL_SETS,
)
from sidecar.kube.errors import ApiError, Conflict, Gone, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE
from sidecar.model.objects import LATE as LATE_BINDING

_CLASSES: Final = {
    LATE: ("Delete", LATE_BINDING, {}),
    LATE_TOO: ("Delete", LATE_BINDING, {}),
    IMMEDIATE_CLASS: ("Delete", IMMEDIATE, {}),
    LAX: ("Delete", LATE_BINDING, {names.DRAIN_POLICY: "AllowIdle"}),
    FIRM: ("Delete", LATE_BINDING, {names.DRAIN_POLICY: "Block"}),
    KEPT: ("Retain", LATE_BINDING, {}),
}
"""Reclaim policy, binding mode and annotations."""
_OF_CLAIMS: Final = (LATE, LATE_TOO, IMMEDIATE_CLASS)
_SAMPLE: Final = 2.0
_COLLECTION: Final = 5.0
_TO_NOTE: Final = 60.0
"""Seconds, beside late watches, in which a sidecar that sees the API server takes off what it has noted."""


class Finding(NamedTuple):
    """A sentence of the referee that does not hold."""

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

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.violations}

    def __str__(self) -> str:
        """The text of a failed assertion: how to play this world again, and what is wrong in it."""
        theme = "" if self.plan.theme == "claims" else f"--worlds {self.plan.theme} "
        return "\n".join((f"hack/fire {theme}--seed {self.plan.seed}", *map(str, self.violations)))


@dataclass(slots=True)
class Lost:
    """A machine that is gone, with its disks."""

    node: Node
    uid: str
    """Of its last Node."""
    given_up: bool
    """Somebody has said that its disks do not come back: before it went, or since."""
    known_to_go: bool
    """And a sidecar has had the time to hear it."""


def play(plan: Plan, *, before: Callable[["World"], None] = lambda _: None) -> Report:
    """Plays one world from its start to its judgement. `before` may change something in it."""

    async def story() -> Report:
        world = World(plan)
        before(world)
        with errors_to(world.found):
            return await world.play()

    gc.disable()  # the collector would run clean-up code at different moments in different processes
    try:
        return run_virtual(story(), limit=100_000.0, seed=plan.seed)
    finally:
        gc.enable()


class World:
    """To be made inside the virtual event loop."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.transcript = Transcript(self.clock)
        self.report = Report(plan)
        self.dice: random.Random = random.Random(f"world {plan.seed}")
        self.cluster = ApiServer(clock=self.wall, rng=random.Random(f"server {plan.seed}").random)
        self.api: InProcessApi = InProcessApi(self.cluster, before=self._before, after=self._after)
        self.network: Network = Network(random.Random(f"network {plan.seed}"), plan.weather)
        self.request_log = RequestLog(self.clock)
        self.nodes: dict[str, Node] = {name: Node(self, name) for name in plan.nodes}
        self.fails_over = plan.theme == "failover"
        for name, how in plan.placements:
            self.nodes[name].flags = (f"--node-deployment-placement={how}",)
        self.lost: dict[str, Lost] = {}
        self.ever_lost: set[str] = set()
        """As `node/uid`, also those that are back."""
        self.silent: set[str] = set()
        """Nodes whose kubelets do nothing."""
        self.drains: dict[str, Drain] = {}
        """By node: who drains it, or has drained it."""
        self.delays: dict[str, float] = {}
        """By workload: how long it takes to make a pod again."""
        self.starts: dict[str, float] = {}
        """By set: for how many seconds its pods run before they are ready."""
        self.kinds: dict[str, str] = {}
        """By set: what becomes of its volumes."""
        self.wanted: dict[str, list[tuple[float, int]]] = {}
        """By set: until when it wanted how many replicas."""
        self.evacuated: dict[str, bool] = {}
        """By node: somebody asks for it to be emptied."""
        self.first_asked: dict[str, float] = {}
        self.forsaken: set[str] = set()
        """Handles of volumes on machines that are back though they were given up: nobody need know them any more."""
        self.at_effects: list[str] = []
        """At the next effects on what another machine has left its sender dies `before` or `after` it is carried out, or the machine is
        `back`."""
        self.errors = 0.0
        """Share of a sidecar's requests that the API server answers with an error."""
        self.strays = plan.weather.straying > 0.0 or plan.weather.lost_answers > 0.0
        self.slack = plan.slack
        self.late = 61.0 if self.strays else 0.5 + 3.0 * (plan.weather.read.p99 + plan.weather.write.p99)
        """Seconds between the last look and the moment at which a request arrives."""
        self._announced: dict[str, list[float]] = {}
        """By uid of a Node: since when and until when somebody said last that it goes."""
        self._made: dict[tuple[str, str], float] = {}
        """By kind and name: when it was created, or bound."""
        self._spawned: dict[str, asyncio.Task[None]] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self.verdicts = Verdicts(self)
        self.truth = Truth(self)
        self.replicas = Replicas(self)
        self.effects = Effects(self)
        self.claims = Claims(self)
        self.maintained: Maintained = Maintained(self)
        self.failed_over: FailedOver = FailedOver(self)
        self.machines: Machines = Machines(self)

    async def play(self) -> Report:
        async with asyncio.TaskGroup() as group:
            await self._furnish()
            tasks = [group.create_task(each) for each in (self._stand_ins(), self._operate(), self._sample(), self._collect())]
            for name in self.nodes:
                self._begin(name)
            for item in self.plan.events:
                await asyncio.sleep(max(item.at - self.clock(), 0.0))
                self.report.counts[item.what] += 1
                self.transcript.tell("world", str(item))
                await carry_out(self, item)
            await rest.come_to_rest(self)
            for kind, what in rest.findings(self):
                self.found(kind, what)
            for task in (*tasks, *self._spawned.values(), *self._lives.values()):
                task.cancel()
        self.report.transcript = "\n".join(self.transcript.lines)
        return self.report

    # --- for nodes, actions and the referee -------------------------------------------------------------------------------------

    def wall(self) -> float:
        return EPOCH + self.clock()

    def found(self, kind: str, what: str) -> None:
        """Records that a sentence does not hold."""
        self.report.violations.append(Finding(kind, what))
        self.transcript.tell("VIOLATION", f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        """The driver of that node has done that."""
        if method == "CreateVolume" and node in self.nodes:
            self.claims.created(node, name)
        if method == "DeleteVolume":
            self.claims.deleted(name)
            self.effects.driver_deleted(node, name)

    def spawn(self, name: str, doing: Coroutine[Any, Any, None]) -> None:
        """Starts a task that runs beside the plan. A name has at most one task. What it asks for is the world's own, whoever's request has
        led to it: no fault is drawn for it."""
        self.give_up(name)
        context = contextvars.copy_context()
        context.run(SENDER.set, "")
        self._spawned[name] = asyncio.create_task(doing, context=context)

    def give_up(self, name: str) -> None:
        if task := self._spawned.pop(name, None):
            task.cancel()

    def node(self, name: str) -> Node:
        if name not in self.nodes:
            raise NotFound(f"node {name} is gone")
        return self.nodes[name]

    def bring_up(self, node: str) -> None:
        if node not in self.silent:
            self.network.bring_up(node)

    def is_new(self, resource: object, name: str) -> bool:
        """It was created, or bound, while a request may have been on its way."""
        return self.clock() - self.made_at(resource, name) <= self.late

    def made_at(self, resource: object, name: str) -> float:
        """When it was created, or bound, last."""
        return self._made.get((str(resource), name), float("-inf"))

    def asked(self, node: str, wanted: bool) -> None:
        """Somebody asks for it to be emptied, or does not any more. To be called right before the Node is changed."""
        self.effects.sample()  # a request that is on its way now was sent while the node was still to be emptied
        self.evacuated[node] = wanted
        if wanted:
            self.first_asked.setdefault(node, self.clock())

    # --- what happens to nodes ------------------------------------------------------------------------------------------

    async def tell_ready(self, node: str, status: str) -> None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": self.cluster.now()}
        found = self.cluster.store.find(NODES, node)
        others = [item for item in ((found or {}).get("status") or {}).get("conditions") or () if item["type"] != "Ready"]
        patch = {"status": {"conditions": [*others, condition]}}
        await self.api.patch(NODES, node, patch, content_type=MERGE_PATCH, subresource="status")

    async def switch_off(self, node: str) -> None:
        """For good: its disks are gone, and so is its Node."""
        self.transcript.tell("world", f"{node} is switched off for good")
        await self._end(node)
        for resource in (NODES, CSI_NODES):
            await self.api.delete(resource, node)
        self.nodes.pop(node)
        self.drains.pop(node, None)

    async def lose(self, name: str, pause: float, *, first: str = "Node") -> None:
        """Its Node and its CSINode go, one of them first; two nodes stay."""
        if name not in self.nodes or len(self.nodes) <= 2:
            self.transcript.tell("world", f"{name} stays")
            return
        self.give_up(f"start {name}")
        await self._end(name)
        stored = self.cluster.store.find(NODES, name)
        uid = stored["metadata"]["uid"] if stored else ""
        self._look_at_words()
        # What it had noted, and somebody has taken back when it could not see that any more, still stands on its volumes.
        (since, until), eyes = self._announced.get(uid, [math.inf, -math.inf]), self.verdicts.eyes.setdefault(name, Eyes())
        given_up = until > 0.0 and not eyes.had_a_chance(until, self.clock(), seconds=_TO_NOTE + self.slack)
        # While a share of all requests is refused, it is chance when that stands in its report.
        known = until == self.clock() and self.errors == 0.0 and eyes.had_a_chance(since, until, seconds=_TO_NOTE + self.slack)
        self.silent.add(name)
        self.lost[name] = Lost(self.nodes.pop(name), uid, given_up, known)
        self.ever_lost.add(f"{name}/{uid}")
        self.transcript.tell("world", f"{name} is lost, {'given up' if given_up else 'and nobody has given it up'}")

        async def forget() -> None:
            for resource in (CSI_NODES, NODES) if first == "CSINode" else (NODES, CSI_NODES):
                with suppress(NotFound):
                    await self.api.delete(resource, name)
                await asyncio.sleep(pause)

        self.spawn(f"lose {name}", forget())

    def come_back(self, name: str) -> None:
        """The machine registers again with its disks: another Node under the same name."""
        lost = self.lost.get(name)
        if lost is None or self.cluster.store.find(NODES, name) is not None:
            self.transcript.tell("world", f"{name} does not come back")
            return
        self.give_up(f"lose {name}")
        del self.lost[name]
        self.forsaken |= {volume.id for volume in lost.node.driver.volumes()} if lost.given_up else set()
        self.silent.discard(name)
        node = self.nodes[name] = Node(self, name, driver=lost.node.driver)
        node.folder = lost.node.folder
        uid = self.cluster.create(NODES, node_body(name)).obj["metadata"]["uid"]
        self._made[str(NODES), name] = self.clock()
        if self.cluster.store.find(CSI_NODES, name) is None:
            body = csi_node(name)
            body["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": names.NODE, "name": name, "uid": uid}]
            self.cluster.create(CSI_NODES, body)
        self.transcript.tell("world", f"{name} is back")

        async def start() -> None:
            await self._is_ready(name)
            self._begin(name)

        self.spawn(f"start {name}", start())

    async def _end(self, node: str) -> None:
        if life := self._lives.pop(node, None):  # one that has just come back may not have begun yet
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    def _begin(self, node: str) -> None:
        """All that the node's process does, and what it leaves on its way when it dies, says that it comes from there."""
        context = contextvars.copy_context()
        context.run(SENDER.set, node)
        self._lives[node] = asyncio.create_task(self.nodes[node].run(), context=context)

    async def _is_ready(self, name: str) -> None:
        await self.tell_ready(name, "True")
        await self.api.patch(NODES, name, {"spec": {"taints": None}}, content_type=MERGE_PATCH)

    # --- the rest of the cluster ------------------------------------------------------------------------------------------

    async def _furnish(self) -> None:
        await self.api.create(
            CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True, "attachRequired": self.fails_over}}
        )
        for name, (reclaim, mode, notes) in _CLASSES.items():
            if (name in _OF_CLAIMS) == (self.plan.theme == "claims") or name == LATE:
                meta = {"name": name, "annotations": notes}
                body = {"metadata": meta, "provisioner": DRIVER, "reclaimPolicy": reclaim, "volumeBindingMode": mode}
                await self.api.create(CLASSES, body)
        for name in self.nodes:
            await create_node(self.api, name)
            await self._is_ready(name)
        await strangers.settle(self.api)

    async def _stand_ins(self) -> None:
        base = StandInBase(self.api, clock=self.clock, rng=random.Random(f"eyes {self.plan.seed}"))
        start = lambda pod: self.starts.get((pod["metadata"].get("labels") or {}).get("app", ""), 0.0)  # noqa: E731
        Binder(base), Scheduler(base), Guards(base), Disruptions(base)
        if self.fails_over:
            self.spawn("machines", self.machines.run())
        else:
            Kubelet(base, silent=self.silent, start=start)
        StatefulSets(base, delay=lambda key: self.delays.get(key, 1.0)), EphemeralClaims(base), PodGarbageCollector(base)
        await base.run()

    async def _operate(self) -> None:
        dice = random.Random(f"operator {self.plan.seed}")
        while True:
            await asyncio.sleep(dice.uniform(3.0, 20.0))
            await operate(self)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE)
            self._look_at_words()
            self.effects.sample()
            self.verdicts.sample()

    def _look_at_words(self) -> None:
        """Who says now that his node goes."""
        now, before = self.clock(), self._announced
        self._announced = {}
        for node in self.cluster.store.all_of(NODES):
            uid, taints = node["metadata"]["uid"], (node.get("spec") or {}).get("taints") or ()
            since, until = before.get(uid, [now, -math.inf])
            if any(item["key"] == names.EVACUATE_TAINT for item in taints):
                self._announced[uid] = [since if now - until <= _SAMPLE else now, now]
            elif uid in before:
                self._announced[uid] = before[uid]

    async def _collect(self) -> None:
        """The garbage collector."""
        before = -1
        while True:
            await asyncio.sleep(_COLLECTION)
            if self.cluster.revision != before:
                self.cluster.collect_garbage()
                before = self.cluster.revision

    # --- requests -------------------------------------------------------------------------------------------------------------

    async def _before(self, call: Call) -> None:
        if not (sender := SENDER.get()):
            return
        if call.verb == "get" and call.resource == NODES:
            self.effects.node_read(sender, call.name)
        if call.verb == "list" and call.resource == STATEFUL_SETS and "back" in self.at_effects and self.lost:
            self.at_effects.remove("back")
            self.come_back(self.dice.choice(sorted(self.lost)))
        if self.errors and self.dice.random() < self.errors and call.verb != "watch":
            raise self._error_of(call)

    def _error_of(self, call: Call) -> ApiError:
        broken = Unavailable("internal error", status=500)
        if call.verb == "list":
            return self.dice.choice((Gone("too old", status=410), broken))
        if call.verb in ("patch", "delete", "update", "replace"):
            return self.dice.choice((Conflict("changed", status=409), broken))
        return broken

    async def _after(self, call: Call) -> None:
        """The change has happened, and nobody has acted on it yet."""
        if call.verb in ("get", "list", "watch"):
            return
        if call.verb == "create" and call.subresource in ("", "binding"):
            self._made[str(call.resource), call.name] = self.clock()
        if call.resource in (PODS, STATEFUL_SETS):
            self.replicas.look()
        if self.plan.theme == "maintenance" and call.resource in (NODES, MAINTENANCES, DRAIN_RULES, DRAIN_REPORTS):
            self.maintained.look(SENDER.get())
        self.claims.heard(call)
        self.verdicts.heard(call)


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
    before = log.handlers, log.level, log.propagate
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.handlers, level, log.propagate = before
        log.setLevel(level)
