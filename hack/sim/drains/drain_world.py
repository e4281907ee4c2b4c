"""Plays a drain world: nodes with the real rooms and everybody who makes, evicts and gives up what is on them, in virtual time.

report = play(plan_of(seed=7))
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hack.sim.clock import run_virtual
from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.kinds import TABLE, Kind
from hack.sim.drains import people, plan
from hack.sim.drains.actions import carry_out
from hack.sim.drains.drainer import Drain
from hack.sim.drains.plan import UNHEEDED, plan_of, slack_of
from hack.sim.drains.referee import DrainReferee
from hack.sim.drains.truth import Truth
from hack.sim.drains.workloads import Guards
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.stand_ins import Binder, Disruptions, Kubelet, Scheduler, StandInBase, StatefulSets
from hack.sim.world.network import Network, Weather
from hack.sim.world.node import DRIVER, EPOCH, TOPOLOGY_KEY, Node, csi_node
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.request_log import RequestLog
from hack.sim.world.transcript import Transcript
from hack.sim.world.world import Finding, Report, errors_to, no_collector
from sidecar.kube.api import CLASSES as CLASS_RESOURCE
from sidecar.kube.api import CSI_DRIVERS, CSI_NODES, MERGE_PATCH, NODES, PODS, SNAPSHOT_CONTENTS, KubeApi
from sidecar.model import names
from sidecar.model.objects import LATE as LATE_BINDING
from sidecar.model.objects import Json

__all__ = ["DrainWorld", "plan_of", "play"]

NEVER_YES: Final = "never yes"
HELD: Final = "held for ever"
NOT_GIVEN_UP: Final = "not given up"
"""A fault of these worlds and not of the product."""

_CONTENTS: Final = Kind(resource=SNAPSHOT_CONTENTS, fields={"spec": dict, "status": dict}, status=True)
_SAMPLE: Final = 2.0
_COLLECTION: Final = 5.0
_TO_STOP: Final = 60.0
_TO_FOLLOW: Final = 30.0
"""Seconds until a sidecar has noted that a node was cordoned, or that it was uncordoned."""
_LINGERS: Final = 300.0
_DEFAULT_TOLERATION: Final = 300.0


def play(plan: Plan, *, before: Callable[["DrainWorld"], None] = lambda _: None) -> Report:
    """Plays one world from its start to its judgement. `before` may break something on purpose."""

    async def story() -> Report:
        world = DrainWorld(plan)
        before(world)
        with errors_to(world.found):
            return await world.play()

    with no_collector():
        return run_virtual(story(), limit=100_000.0, seed=plan.seed)


class DrainWorld:
    """To be made inside the virtual event loop."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.transcript = Transcript(self.clock)
        self.report = Report(plan, worlds="drains")
        rng = random.Random(f"server {plan.seed}").random
        self.cluster = Cluster(clock=self.wall, rng=rng, kinds=(*TABLE, _CONTENTS))
        self.referee = DrainReferee(self, slack=slack_of(plan))
        self.api: KubeApi = InProcessApi(self.cluster, after=self.referee.after)
        self.network = Network(random.Random(f"network {plan.seed}"), plan.weather)
        self.request_log = RequestLog(self.clock)
        self.silent: set[str] = set()
        """Nodes that do not answer."""
        self.drains: dict[str, Drain] = {}
        """By node: who drains it, or has drained it."""
        self.delays: dict[str, float] = {}
        """By workload: how long it takes to make a pod again."""
        self.nodes = {name: Node(self, name) for name in plan.nodes}
        self.heeds_tenants = UNHEEDED not in plan.args
        self.truth = Truth(self.cluster, self._drivers, clock=self.clock, noted=self.referee.saw_acknowledged, heeded=self.heeds_tenants)
        self._announced: dict[str, float] = {}
        self._cordons: dict[str, tuple[float, float | None]] = {}
        """By node: when its last cordon began and ended; None: it has not ended."""
        self._spawned: dict[str, asyncio.Task[None]] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}

    async def play(self) -> Report:
        async with asyncio.TaskGroup() as group:
            await self._furnish()
            tasks = [group.create_task(each) for each in (self._stand_ins(), self._sample(), self._collect())]
            for name in self.nodes:
                self._begin(name)
            await self._play_events()
            await self._come_to_rest()
            await self._judge()
            for task in (*tasks, *self._spawned.values(), *self._lives.values()):
                task.cancel()
        self.report.transcript = str(self.transcript)
        return self.report

    # --- for nodes, actions and the referee -------------------------------------------------------------------------------------

    def wall(self) -> float:
        return EPOCH + self.clock()

    def found(self, kind: str, what: str) -> None:
        self.report.violations.append(Finding(kind, what))
        self.transcript.tell("VIOLATION", f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        """A driver did something: the next sample sees it."""

    def spawn(self, name: str, doing: Coroutine[Any, Any, None]) -> None:
        self.give_up(name)
        self._spawned[name] = asyncio.create_task(doing)

    def give_up(self, name: str) -> None:
        if task := self._spawned.pop(name, None):
            task.cancel()

    def take_down(self, node: str) -> None:
        self.network.take_down(node)

    def bring_up(self, node: str) -> None:
        if node not in self.silent:
            self.network.bring_up(node)

    def exists(self, node: str) -> bool:
        return self.cluster.store.find(NODES, node) is not None

    def sees(self, node: str) -> bool:
        """The sidecar runs and reaches the API server. What it may not read it must not answer."""
        return self.nodes[node].sidecar is not None and self.network.up(node)

    def runs(self, node: str) -> bool:
        """A process runs and reaches the API server, though its driver may be dead."""
        return self.nodes[node].alive and self.network.up(node) and not self.network.restricts(node)

    def _drivers(self) -> dict[str, LocalDriver]:
        return {name: node.driver for name, node in self.nodes.items()}

    def is_let_go(self, node: str) -> bool:
        """It is being drained for good, and no guard of ours holds that up."""
        order = self.drains.get(node)
        if order is None or order.reboots or not self._is_cordoned(node):
            return False
        guards = (pod for pod in self.cluster.store.all_of(PODS) if names.GUARDED_NODE in (pod["metadata"].get("labels") or {}))
        return not any(pod["spec"].get("nodeName") == node for pod in guards)

    def announced(self, node: str, reboots: bool) -> None:
        self._announced.pop(node, None)
        if reboots:
            self._announced[node] = self.clock()

    def cordoned(self, node: str) -> None:
        """What was announced for the cordon before this one is over, if the sidecar could see that cordon and its end.

        Of a reboot that is announced and of a cordon that nobody saw, all that shows is a reboot for which the cordon is yet to come.
        """
        now, eyes = self.clock(), self.referee.eyes.get(node)
        begun, ended = self._cordons.get(node, (now, now))
        if ended is None:
            return
        announced = self._announced.get(node, ended)
        spans = ((max(announced, begun), ended), (ended, now))
        if announced < ended and eyes is not None and all(eyes.had_a_chance(*span, seconds=_TO_FOLLOW) for span in spans):
            self._announced.pop(node, None)
        self._cordons[node] = now, None

    def uncordoned(self, node: str) -> None:
        begun, _ = self._cordons.get(node, (self.clock(), None))
        self._cordons[node] = begun, self.clock()

    def may_be_taken_for_a_reboot(self, node: str) -> bool:
        """Somebody has announced a reboot, and cordoned the node for it as far as anybody can tell."""
        return node in self._announced and self._is_cordoned(node)

    def _is_cordoned(self, node: str) -> bool:
        return bool(((self.cluster.store.find(NODES, node) or {}).get("spec") or {}).get("unschedulable"))

    # --- what happens to nodes ------------------------------------------------------------------------------------------

    async def tell_ready(self, node: str, status: str) -> None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": self.cluster.now()}
        found = self.cluster.store.find(NODES, node)
        others = [item for item in ((found or {}).get("status") or {}).get("conditions") or () if item["type"] != "Ready"]
        patch = {"status": {"conditions": [*others, condition]}}
        await self.api.patch(NODES, node, patch, content_type=MERGE_PATCH, subresource="status")

    async def evict_by_taint(self, node: str) -> None:
        """Who does not tolerate for ever that the node is unreachable is told to end; nobody there hears it."""
        await asyncio.sleep(_DEFAULT_TOLERATION)
        for pod in await self._pods(node):
            tolerations = [item for item in pod["spec"].get("tolerations") or () if "unreachable" in (item.get("key") or "unreachable")]
            if not any("tolerationSeconds" not in item and item.get("effect") in (None, "", "NoExecute") for item in tolerations):
                await self.api.delete(PODS, pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])

    async def switch_off(self, node: str) -> None:
        """For good: its disks are gone, and so is its Node."""
        self.transcript.tell("world", f"{node} is switched off for good")
        await self._end(node)
        self.nodes.pop(node)
        self.drains.pop(node, None)

    async def rename(self, old: str, new: str) -> None:
        """The machine comes back with its disks under another name."""
        if old not in self.nodes:
            return
        await self._end(old)
        former = self.nodes.pop(old)
        await asyncio.sleep(20.0)
        self.nodes[new] = Node(self, new, driver=former.driver)
        await self._register(new)
        self._begin(new)

    async def _end(self, node: str) -> None:
        life = self._lives.pop(node)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        for resource in (NODES, CSI_NODES):
            await self.api.delete(resource, node)
        for pod in await self._pods(node):
            meta = pod["metadata"]
            await self.api.delete(PODS, meta["name"], namespace=meta["namespace"], grace_period_seconds=0)
        self.cluster.collect_garbage()

    async def _pods(self, node: str) -> list[Json]:
        return (await self.api.list_page(PODS, field_selector=f"spec.nodeName={node}", limit=0)).items

    def _begin(self, node: str) -> None:
        self._lives[node] = asyncio.create_task(self.nodes[node].run())

    async def _register(self, name: str) -> None:
        labels = {TOPOLOGY_KEY: name, "kubernetes.io/hostname": name}
        await self.api.create(NODES, {"metadata": {"name": name, "labels": labels}})
        await self.api.create(CSI_NODES, csi_node(name))
        await self.tell_ready(name, "True")
        await self.api.patch(NODES, name, {"spec": {"taints": None}}, content_type=MERGE_PATCH)

    # --- from start to judgement --------------------------------------------------------------------------------

    async def _furnish(self) -> None:
        await self.api.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True, "attachRequired": False}})
        for name, (reclaim, notes) in plan.CLASSES.items():
            meta = {"name": name, "annotations": notes}
            spec = {"provisioner": DRIVER, "reclaimPolicy": reclaim, "volumeBindingMode": LATE_BINDING}
            await self.api.create(CLASS_RESOURCE, {"metadata": meta, **spec})
        for name in self.nodes:
            await self._register(name)

    async def _stand_ins(self) -> None:
        base = StandInBase(self.api, clock=self.clock, rng=random.Random(f"eyes {self.plan.seed}"))
        self._employ(base)
        await base.run()

    def _employ(self, base: StandInBase) -> None:
        Binder(base), Scheduler(base), Kubelet(base, silent=self.silent)
        StatefulSets(base, delay=lambda key: self.delays.get(key, 1.0)), Guards(base), Disruptions(base)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE)
            self.referee.sample()

    async def _collect(self) -> None:
        """The garbage collector."""
        while True:
            await asyncio.sleep(_COLLECTION)
            self.cluster.collect_garbage()

    async def _play_events(self) -> None:
        for item in self.plan.events:
            await asyncio.sleep(max(item.at - self.clock(), 0.0))
            self.report.counts[item.what] += 1
            self.transcript.tell("world", str(item))
            await self._carry_out(item)

    async def _carry_out(self, item: PlannedEvent) -> None:
        await carry_out(self, item)

    async def _come_to_rest(self) -> None:
        """Ends all trouble, and has the owners give everything up. Before that the last drains have time to do harm."""
        await asyncio.sleep(_LINGERS)
        self._heal()
        dice = random.Random(f"owners {self.plan.seed}")
        await asyncio.sleep(_TO_STOP)
        ways = await people.stop_work(self, dice)
        await asyncio.sleep(_TO_STOP)
        await people.give_up(self, ways)
        await asyncio.sleep(_TO_STOP)
        await people.give_up(self, ways)
        left = [what for name in self.nodes for what in self.truth.losses(self.truth.look(), name, gone=lambda _: True)]
        if left:
            self.found(NOT_GIVEN_UP, f"the owners have forgotten {', '.join(left)}")
        self.transcript.tell("world", "everything is given up")
        await asyncio.sleep(self.plan.settle)

    def _heal(self) -> None:
        self.transcript.tell("world", "comes to rest")
        self.network.weather = Weather()
        for name, node in self.nodes.items():
            self.network.allow(name)
            self.network.local_delay(name, 0.0)
            self.silent.discard(name)
            self.bring_up(name)
            node.spare()
            node.get_up()

    async def _judge(self) -> None:
        for name in self.nodes:
            node = await self.api.get(NODES, name)
            said = {item["type"]: item for item in (node.get("status") or {}).get("conditions") or ()}
            for verdict in (names.DRAIN_READY, names.RETIRE_READY):
                condition = said.get(names.condition(DRIVER, verdict)) or {}
                if condition.get("status") != "True":
                    why = f"{condition.get('reason')}: {condition.get('message')}"
                    self.found(NEVER_YES, f"{name} is {condition.get('status')} for {verdict}, and everything was given up: {why}")
        self.referee.notes.at_rest()
        for order in self.drains.values():
            if not order.done:
                self.found(HELD, f"{order.node} is still being drained, and everything was given up: {', '.join(order.left)}")
