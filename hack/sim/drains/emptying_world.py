"""Plays a world whose nodes are emptied, with sets of several replicas; `hack/fire --worlds emptying` plays any number.

report = play(plan_of(seed=7))
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Container
from typing import Final

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from hack.sim.drains.claim_deletions import REPROVISION
from hack.sim.drains.claim_referee import ALLOW, LEFT_BEHIND, ClaimReferee
from hack.sim.drains.drain_world import DrainWorld
from hack.sim.drains.emptying_actions import REPLICAS, carry_out, operate, set_ready
from hack.sim.drains.emptying_plan import KEPT, REPROVISIONED, UNDONE, plan_of
from hack.sim.drains.evictions import WRONG_EVICTION, EvictionReferee
from hack.sim.drains.eyes import LAG
from hack.sim.drains.plan import slack_of
from hack.sim.drains.replicas import ReplicaReferee
from hack.sim.drains.sender import SENDER
from hack.sim.drains.workloads import Guards
from hack.sim.stand_ins import Binder, Disruptions, EphemeralClaims, Kubelet, Scheduler, StandInBase, StatefulSets
from hack.sim.stand_ins import stateful_set_objects as objects
from hack.sim.world.node import DRIVER
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report, errors_to, no_collector
from sidecar.kube.api import CLAIMS, NODES, PODS, STATEFUL_SETS
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.objects import Json

__all__ = ["EmptyingWorld", "plan_of", "play"]

WORLDS: Final = "emptying"
NOT_EMPTIED: Final = "not emptied"
NOT_WHOLE: Final = "not whole"
_LINGERS: Final = 60.0
_ASTRAY: Final = 61.0
_SAMPLE: Final = 2.0
_TAKEN_BACK: Final = 300.0
"""Seconds after an evacuation was taken back within which the replicas that waited for one another are ready."""


def play(plan: Plan, *, before: Callable[["EmptyingWorld"], None] = lambda _: None) -> Report:
    """Plays one world from its start to its judgement. `before` may break something on purpose."""

    async def story() -> Report:
        world = EmptyingWorld(plan)
        before(world)
        with errors_to(world.found):
            return await world.play()

    with no_collector():
        return run_virtual(story(), limit=100_000.0, seed=plan.seed)


class EmptyingWorld(DrainWorld):
    """To be made inside the virtual event loop."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.report.worlds = WORLDS
        self.api = InProcessApi(self.cluster, after=self._after)
        self.starts: dict[str, float] = {}
        """By name of a set: for how many seconds its pods run before they are ready."""
        self.kinds: dict[str, str] = {}
        """By name of a set: what becomes of its volumes."""
        self.evacuated: dict[str, bool] = {}
        """By node: somebody asks for it to be emptied."""
        self._undone_at: dict[str, float] = {}
        self._came_back: dict[str, set[str]] = {}
        """By node: uids of pods that were put there during an undo that its sidecar may not have seen. It takes them for pods that whatever
        keeps pods off the node does not keep off."""
        self.dies_at_eviction: dict[str, str] = {}
        """By node: `before` or `after` its next eviction is carried out, its sidecar dies."""
        self.replicas = ReplicaReferee(self, slack=_ASTRAY if plan.weather.straying else 0.0)
        losable = ("Ignore", REPROVISION) if ALLOW in plan.args else ("Ignore",)
        self.evictions = EmptyingReferee(self, slack=slack_of(plan), losable=losable)
        self.claims = ClaimReferee(self, self.replicas, asked=self.evictions.asked, late=self.evictions.late)

    def place_of(self, volume: str) -> str:
        """The node that has the data of this PersistentVolume."""
        return next((name for name, node in self.nodes.items() if any(volume == each.name for each in node.driver.volumes())), "")

    def asked(self, node: str, wanted: bool) -> None:
        """Somebody asks for it to be emptied, or does not any more. To be called right before the Node is changed."""
        self.evictions.sample()  # a request that is on its way now was sent while the node was still to be emptied
        seen = LAG + slack_of(self.plan)
        if not wanted:
            self._undone_at[node] = self.clock()
        elif self.clock() - self._undone_at.get(node, 0.0) > seen:
            self._came_back.pop(node, None)
        self.evacuated[node] = wanted

    def _begin(self, node: str) -> None:
        """All that the node's process does, and what it leaves on its way when it dies, says that it comes from there."""
        context = contextvars.copy_context()
        context.run(SENDER.set, node)
        self._lives[node] = asyncio.create_task(self.nodes[node].run(), context=context)

    async def wake_kubelet(self, node: str) -> None:
        self.silent.discard(node)
        await self.tell_ready(node, "True")

    async def _after(self, call: Call) -> None:
        await self.referee.after(call)
        if call.verb not in ("get", "list", "watch") and call.resource in (PODS, STATEFUL_SETS):
            self.replicas.look()
        if call.resource == PODS and call.subresource == "binding":
            pod = self.cluster.store.find(PODS, call.name, call.namespace)
            node = (pod or {}).get("spec", {}).get("nodeName", "")
            if pod and self.evacuated.get(node) is False:
                self._came_back.setdefault(node, set()).add(pod["metadata"]["uid"])

    def _employ(self, base: StandInBase) -> None:
        Binder(base), Scheduler(base), Kubelet(base, silent=self.silent, start=self._start)
        StatefulSets(base), EphemeralClaims(base), Guards(base), Disruptions(base)

    def _start(self, pod: Json) -> float:
        return self.starts.get((pod["metadata"].get("labels") or {}).get("app", ""), 0.0)

    async def _stand_ins(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super()._stand_ins())
            group.create_task(self._operate())

    async def _operate(self) -> None:
        dice = random.Random(f"operator {self.plan.seed}")
        while True:
            await asyncio.sleep(dice.uniform(3.0, 20.0))
            await operate(self)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE)
            self.referee.sample()
            self.evictions.sample()

    async def _carry_out(self, item: PlannedEvent) -> None:
        await carry_out(self, item)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _come_to_rest(self) -> None:
        """Nothing goes wrong any more, all replicas are well and wanted, and there is a node that takes pods."""
        await asyncio.sleep(_LINGERS)
        self._heal()
        self.dies_at_eviction.clear()
        for node in self.nodes:
            await self.tell_ready(node, "True")
        if all(self.evacuated.get(node) for node in self.nodes):
            free = random.Random(f"free {self.plan.seed}").choice(list(self.nodes))
            await self._carry_out(PlannedEvent(self.clock(), UNDONE, free))
        for name in self.kinds:
            await self._carry_out(PlannedEvent(self.clock(), "set scaled", name, REPLICAS))
            await self._carry_out(PlannedEvent(self.clock(), "given up", name))
            for ordinal in range(REPLICAS):
                try:
                    await set_ready(self, f"{name}-{ordinal}", ready=True)
                except NotFound:
                    pass  # it is being made
        await asyncio.sleep(self.plan.settle)
        for _ in self.nodes:
            for node in (stuck := self._wait_for_one_another()):
                self.transcript.tell("operator", f"takes the evacuation of {node} back, for replicas wait for one another")
                await self._carry_out(PlannedEvent(self.clock(), UNDONE, node))
            await asyncio.sleep(_TAKEN_BACK if stuck else 0.0)

    def _wait_for_one_another(self) -> set[str]:
        """Nodes whose evacuation their owners take back, as the reasons say that are told of replicas which sidecars have evicted and now
        hold: the data of other replicas is there, without which nothing may be deleted; or that of the replica itself, without which an
        ordered set makes no later one."""
        found = set()
        for workload in self.cluster.store.all_of(STATEFUL_SETS):
            name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
            if self.kinds.get(name) != REPROVISIONED:
                continue
            ordered = workload["spec"].get("podManagementPolicy") != "Parallel"
            there = [self.cluster.store.find(PODS, f"{name}-{ordinal}", namespace) is not None for ordinal in objects.ordinals(workload)]
            away = {each for each in self.replicas.not_whole() if each.rpartition("-")[0] == name}
            ours = {each for each in self.replicas.not_whole(by_us=True) if each in away}
            waited_for = away - ours if ours else set()
            if ordered:
                waited_for |= {each for each in ours if not all(there[int(each.rpartition("-")[2]) :])}
            found |= {self._data_of(each, namespace) for each in waited_for}
        return {node for node in found if self.evacuated.get(node)}

    def _data_of(self, replica: str, namespace: str) -> str:
        """The node that has it; empty: none."""
        claim = self.cluster.store.find(CLAIMS, f"data-{replica}", namespace)
        return self.place_of(claim["spec"].get("volumeName", "")) if claim else ""

    async def _judge(self) -> None:
        for what in self.claims.left_behind():
            self.found(LEFT_BEHIND, what)
        ours, away = set(self.replicas.not_whole(by_us=True)), list(self.replicas.not_whole())
        # What somebody else has sent away from its data is not made anew: nobody knows why he did.
        excused = {KEPT: set(away), REPROVISIONED: set(away) - ours}
        for name in (each for each in away if each not in excused.get(self.kinds[each.rpartition("-")[0]], ())):
            self.found(NOT_WHOLE, f"{name} is still away, and everything has been well for {self.plan.settle:.0f} s")
        for node in self.cluster.store.all_of(NODES):
            state = (node["metadata"].get("labels") or {}).get(names.of_driver(DRIVER, names.EVACUATION_STATE))
            if self.evacuated.get(node["metadata"]["name"]) and state == "InProgress":
                for pod in self._may_leave(node["metadata"]["name"]):
                    self.found(NOT_EMPTIED, f"{pod} is still on {node['metadata']['name']}, and nothing keeps it there")

    def _may_leave(self, node: str) -> list[str]:
        found = []
        for pod in self.cluster.store.all_of(PODS):
            name = (pod["metadata"].get("labels") or {}).get("app", "")
            if pod["spec"].get("nodeName") == node and self.kinds.get(name, KEPT) != KEPT and not self._is_held(name, pod):
                found.append(pod["metadata"]["name"])
        return found

    def _is_held(self, name: str, pod: Json) -> bool:
        """Its budget lets nobody go, ever, or it came back when nobody saw why; or it is made anew only where all replicas are apart."""
        if self.kinds[name] == REPROVISIONED and not self._are_apart(name):
            return True
        made = next(item.detail for item in self.plan.events if item.whom == name)
        return made.endswith("maxUnavailable=0") or pod["metadata"]["uid"] in self._came_back.get(pod["spec"]["nodeName"], ())

    def _are_apart(self, name: str) -> bool:
        """All of its replicas are there, each on another node."""
        if any(each.rpartition("-")[0] == name for each in self.replicas.not_whole()):
            return False
        pods = [pod for pod in self.cluster.store.all_of(PODS) if (pod["metadata"].get("labels") or {}).get("app") == name]
        return len({pod["spec"].get("nodeName") for pod in pods}) == len(pods)


class EmptyingReferee(EvictionReferee):
    """Besides what holds of each eviction: the other replicas, and deaths in the middle of one."""

    def __init__(self, world: EmptyingWorld, *, slack: float, losable: Container[str]) -> None:
        super().__init__(world, slack=slack, losable=losable)
        self._of = world
        self._evicted: set[str] = set()
        """Uids of pods."""
        self._asked: dict[str, float] = {}
        """By node: when somebody asked for it to be emptied last."""

    def sample(self) -> None:
        super().sample()
        for node in self._of.cluster.store.all_of(NODES):
            if super()._is_evacuated(node):
                self._asked[node["metadata"]["name"]] = self._of.clock()

    @property
    def late(self) -> float:
        """Seconds between the last look and the moment at which a request arrives."""
        weather = self._of.plan.weather
        return _ASTRAY if weather.straying else 0.5 + 3.0 * (weather.read.p99 + weather.write.p99)

    def asked(self, node: str) -> float:
        """How many seconds ago somebody asked for it to be emptied last."""
        self.sample()
        return self._of.clock() - self._asked.get(node, float("-inf"))

    def _is_evacuated(self, node: Json) -> bool:
        """Or was when the request was sent."""
        return super()._is_evacuated(node) or self._of.clock() - self._asked.get(node["metadata"]["name"], float("-inf")) < self.late

    def _leaving(self, pod: Json) -> list[str]:
        """Those that a sidecar has asked to end. Others may have been deleted at this moment."""
        there = {each["metadata"]["name"]: each["metadata"]["uid"] for each in self._of.cluster.store.all_of(PODS)}
        return [name for name in super()._leaving(pod) if there.get(name) in self._evicted]

    def _carry_out(self, pod: Json | None, evict: Callable[[], Json]) -> Json:
        node, sender = self.node_of(pod) if pod else "", SENDER.get()
        if pod and node != sender:
            self._of.found(WRONG_EVICTION, f"{pod['metadata']['name']} is on {node}, and {sender or 'nobody'} evicts it")
        dies = self._of.dies_at_eviction.pop(node, "") if pod else ""
        # Who has no node is away already.
        faults = self._of.replicas.faults(pod) if pod and pod["spec"].get("nodeName") else []
        if dies == "before":
            self._of.nodes[node].kill()
        answer = evict()
        if pod:
            self._of.transcript.tell(node, f"evicted {pod['metadata']['name']}")
            for kind, text in faults:
                self._of.found(kind, f"{pod['metadata']['name']} was evicted from {node}: {text}")
            self._of.replicas.evicted(pod)
            self._evicted.add(pod["metadata"]["uid"])
        if dies == "after":
            self._of.nodes[node].kill()
        return answer
