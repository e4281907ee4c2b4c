"""Plays a world whose nodes are lost, and whose other nodes clear up after them; `hack/fire --worlds node-loss` plays any number.

report = play(plan_of(seed=7))
"""

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from hack.sim.drains import actions, node_loss_rest
from hack.sim.drains.drain_world import DrainWorld
from hack.sim.drains.eyes import Eyes
from hack.sim.drains.node_loss_plan import HOLDER, plan_of
from hack.sim.drains.node_loss_referee import LossReferee
from hack.sim.drains.plan import slack_of
from hack.sim.drains.sender import SENDER
from hack.sim.drains.workloads import workload_of
from hack.sim.stand_ins import Binder, Disruptions, Kubelet, PodGarbageCollector, Scheduler, StandInBase, StatefulSets
from hack.sim.world.node import DRIVER, NAMESPACE, TOPOLOGY_KEY, Node, csi_node
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report, errors_to, no_collector
from sidecar.kube.api import CSI_NODES, DRAIN_REPORTS, LEASES, MERGE_PATCH, NODES, STATEFUL_SETS, VOLUMES
from sidecar.kube.errors import ApiError, Conflict, Gone, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.objects import Json

__all__ = ["NodeLossWorld", "plan_of", "play"]

WORLDS: Final = "node-loss"
_DATA: Final = "data"
_SAMPLE: Final = 1.0
_LINGERS: Final = 60.0
_ASTRAY: Final = 61.0
_TO_NOTE: Final = 60.0
"""Seconds, beside late watches, in which a sidecar that sees the API server takes off what it has noted."""


def play(plan: Plan, *, before: Callable[["NodeLossWorld"], None] = lambda _: None) -> Report:
    """Plays one world from its start to its judgement. `before` may break something on purpose."""

    async def story() -> Report:
        world = NodeLossWorld(plan)
        before(world)
        with errors_to(world.found):
            return await world.play()

    with no_collector():
        return run_virtual(story(), limit=100_000.0, seed=plan.seed)


@dataclass(slots=True)
class Lost:
    """A machine that is gone, with its disks."""

    node: Node
    uid: str
    """Of its last Node."""
    given_up: bool
    """Somebody has said that its disks do not come back: before it went, or since."""


@dataclass(slots=True)
class Announcement:
    """Of one Node, by its uid."""

    stands: bool = False
    ended: float = float("-inf")
    eyes: Eyes = field(default_factory=Eyes)


class NodeLossWorld(DrainWorld):
    """To be made inside the virtual event loop."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.report.worlds = WORLDS
        self.api = InProcessApi(self.cluster, before=self._before, after=self._after)
        self.strays = plan.weather.straying > 0.0 or plan.weather.lost_answers > 0.0
        self.lost: dict[str, Lost] = {}
        """By name."""
        self._was_given_up: set[str] = set()
        """Names of machines that are back. What a process there had noted stands until one there takes it off."""
        self.at_effects: list[str] = []
        """`before` or `after` the next effects of a peer are carried out, its sidecar dies."""
        self.back_at_look = 0
        """So many nodes come back when somebody begins to clear up."""
        self.errors = 0.0
        self._error_dice = random.Random(f"errors {plan.seed}")
        self._announced: dict[str, Announcement] = {}  # type: ignore[assignment]
        self._made: dict[tuple[str, str], float] = {}
        """By kind and name: when it was created, or bound."""
        self._replicas: dict[str, list[tuple[float, int]]] = {}
        """By set: until when it wanted how many."""
        late = _ASTRAY if self.strays else 0.5 + 3.0 * (plan.weather.read.p99 + plan.weather.write.p99)
        self.losses = LossReferee(self, late=late)

    # --- for the referee --------------------------------------------------------------------------------------------------

    def is_new(self, resource: object, name: str, seconds: float) -> bool:
        return self.clock() - self._made.get((str(resource), name), float("-inf")) <= seconds

    def most_replicas(self, workload: Json, seconds: float) -> int:
        """That it has wanted lately."""
        name, now = workload["metadata"]["name"], int(workload["spec"].get("replicas", 1))
        return max([now, *(count for until, count in self._replicas.get(name, ()) if self.clock() - until <= seconds)])

    def acted(self, node: str, method: str, name: str) -> None:
        if method == "DeleteVolume":
            self.losses.driver_deleted(node, name)

    async def _before(self, call: Call) -> None:
        sender = SENDER.get()
        if not sender:
            return
        if call.verb == "get" and call.resource == NODES:
            self.losses.node_read(sender, call.name)
        if call.verb == "list" and call.resource == STATEFUL_SETS and self.back_at_look and self.lost:
            self.back_at_look -= 1
            self.come_back(self._error_dice.choice(sorted(self.lost)))
        if self._error_dice.random() < self.errors and call.verb != "watch":
            raise self._error_of(call)

    def _error_of(self, call: Call) -> ApiError:
        if call.verb == "list":
            return self._error_dice.choice((Gone("too old", status=410), Unavailable("internal error", status=500)))
        if call.verb in ("patch", "delete", "update", "replace"):
            return self._error_dice.choice((Conflict("changed", status=409), Unavailable("internal error", status=500)))
        return Unavailable("internal error", status=500)

    async def _after(self, call: Call) -> None:
        if call.verb == "create" and call.subresource in ("", "binding"):
            self._made[str(call.resource), call.name] = self.clock()

    # --- what happens -----------------------------------------------------------------------------------------------------

    def _begin(self, node: str) -> None:
        """All that the node's process does, and what it leaves on its way when it dies, says that it comes from there."""
        context = contextvars.copy_context()
        context.run(SENDER.set, node)
        self._lives[node] = asyncio.create_task(self.nodes[node].run(), context=context)

    async def _carry_out(self, item: PlannedEvent) -> None:
        whom = self._holder() if item.whom == HOLDER else item.whom
        match item.what:
            case "evacuate" | "evacuation undone" if whom not in self.nodes:
                self.transcript.tell("world", f"{item.what} {whom}: too late")
            case "evacuate" | "evacuation undone":
                await actions.carry_out(self, PlannedEvent(item.at, item.what, whom))
            case "set" | "lost set":
                await self._set(item)
            case "scale":
                await self._scale(item)
            case "node lost":
                await self._lose(whom, item.number, first=item.detail)
            case "node back":
                self.come_back(whom)
            case "dies at an effect":
                if item.detail == "back":
                    self.back_at_look += 1
                else:
                    self.at_effects.append(item.detail)
            case "loss acknowledged":
                self.spawn(f"ack {whom}", self._acknowledge(whom))
            case "errors":
                self.errors = item.number
            case "note taken":
                await self._take_note(item.detail)
            case _:
                await actions.carry_out(self, replace(item, whom=whom))

    def _holder(self) -> str:
        lease = self.cluster.store.find(LEASES, names.node_loss(DRIVER), NAMESPACE)
        owners = (lease or {}).get("metadata", {}).get("ownerReferences") or ()
        return next((owner["name"] for owner in owners if owner["name"] in self.nodes), "")

    async def _set(self, item: PlannedEvent) -> None:
        self.delays[f"{NAMESPACE}/{item.whom}"] = 1.0
        spec = {"storageClassName": item.detail, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        body = workload_of(STATEFUL_SETS, item.whom, {"containers": [{"name": "main", "image": "none"}]}, replicas=int(item.number))
        body["spec"] |= {"podManagementPolicy": "Parallel", "volumeClaimTemplates": [{"metadata": {"name": _DATA}, "spec": spec}]}
        await self.api.create(STATEFUL_SETS, body, namespace=NAMESPACE)

    async def _scale(self, item: PlannedEvent) -> None:
        workload = self.cluster.store.find(STATEFUL_SETS, item.whom, NAMESPACE)
        if workload is not None:
            self._replicas.setdefault(item.whom, []).append((self.clock(), workload["spec"]["replicas"]))
            await actions.merge(self, STATEFUL_SETS, item.whom, {"spec": {"replicas": int(item.number)}})

    async def _lose(self, name: str, pause: float, *, first: str) -> None:
        """Its Node and its CSINode go, one of them first; two nodes stay."""
        if name not in self.nodes or len(self.nodes) <= 2:
            self.transcript.tell("world", f"{name} stays")
            return
        self.give_up(f"start {name}")
        life = self._lives.pop(name, None)
        if life is not None:  # one that has just come back may not have begun yet
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        stored = self.cluster.store.find(NODES, name)
        uid = stored["metadata"]["uid"] if stored else ""
        self._look()
        said = self._announced.get(uid, Announcement())
        # What it had noted, and somebody has taken back when it could not see that any more, still stands on its volumes.
        seen = said.eyes.had_a_chance(said.ended, self.clock(), seconds=_TO_NOTE + slack_of(self.plan))
        given_up = said.stands or (not seen and (said.ended > float("-inf") or name in self._was_given_up))
        self.silent.add(name)
        self.lost[name] = Lost(self.nodes.pop(name), uid, given_up)
        self.transcript.tell("world", f"{name} is lost, {'given up' if given_up else 'and nobody has given it up'}")
        resources = (CSI_NODES, NODES) if first == "CSINode" else (NODES, CSI_NODES)
        self.spawn(f"lose {name}", self._forget(name, resources, pause))

    async def _forget(self, name: str, resources: tuple[object, ...], pause: float) -> None:
        for resource in resources:
            try:
                await self.api.delete(resource, name)  # type: ignore[arg-type]
            except NotFound:
                pass
            await asyncio.sleep(pause)

    def come_back(self, name: str) -> None:
        """The machine registers again with its disks: another Node under the same name."""
        lost = self.lost.get(name)
        if lost is None or self.cluster.store.find(NODES, name) is not None:
            self.transcript.tell("world", f"{name} does not come back")
            return
        self.give_up(f"lose {name}")
        del self.lost[name]
        self._was_given_up = self._was_given_up | {name} if lost.given_up else self._was_given_up - {name}
        self.silent.discard(name)
        node = self.nodes[name] = Node(self, name, driver=lost.node.driver)
        node.folder = lost.node.folder
        labels = {TOPOLOGY_KEY: name, "kubernetes.io/hostname": name}
        self.cluster.create(NODES, {"metadata": {"name": name, "labels": labels}})
        self._made[str(NODES), name] = self.clock()
        if self.cluster.store.find(CSI_NODES, name) is None:
            stored, body = self.cluster.store.find(NODES, name), csi_node(name)
            owner = {"apiVersion": "v1", "kind": names.NODE, "name": name, "uid": (stored or {})["metadata"]["uid"]}
            body["metadata"]["ownerReferences"] = [owner]
            self.cluster.create(CSI_NODES, body)
        self.transcript.tell("world", f"{name} is back")
        self.spawn(f"start {name}", self._start(name))

    async def _start(self, name: str) -> None:
        await self.tell_ready(name, "True")
        await self.api.patch(NODES, name, {"spec": {"taints": None}}, content_type=MERGE_PATCH)
        self._begin(name)

    async def _acknowledge(self, name: str) -> None:
        """A person waits for the report on the node that is gone, and says that its disks are lost."""
        for _ in range(60):
            lost = self.lost.get(name)
            report = self.cluster.store.find(DRAIN_REPORTS, names.drain_report(name, DRIVER))
            gone = ((report or {}).get("status") or {}).get("gone") or {}
            if report and lost and gone and gone.get("evidence") != "Unproven" and report["status"].get("nodeUID") == lost.uid:
                lost.given_up = True
                patch = {"metadata": {"annotations": {names.ACKNOWLEDGED: "a person"}, "uid": report["metadata"]["uid"]}}
                try:
                    await self.api.patch(DRAIN_REPORTS, report["metadata"]["name"], patch, content_type=MERGE_PATCH)
                    self.transcript.tell("world", f"the loss of {name} is acknowledged")
                except (NotFound, Conflict):
                    pass
                return
            await asyncio.sleep(30.0)

    async def _take_note(self, how: str) -> None:
        """Somebody edits what is noted on a volume."""
        volumes = sorted(self.cluster.store.all_of(VOLUMES), key=lambda item: item["metadata"]["name"])
        if volumes:
            chosen = self._error_dice.choice(volumes)["metadata"]["name"]
            notes = dict.fromkeys((names.LIES_ON, names.LEAVING), None if how == "none" else "a machine")
            await actions.merge(self, VOLUMES, chosen, {"metadata": {"annotations": notes}})

    # --- from start to judgement --------------------------------------------------------------------------------

    def _employ(self, base: StandInBase) -> None:
        Binder(base), Scheduler(base), Kubelet(base, silent=self.silent)
        StatefulSets(base, delay=lambda key: self.delays.get(key, 1.0)), Disruptions(base), PodGarbageCollector(base)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE)
            self._look()

    def _look(self) -> None:
        for node in self.cluster.store.all_of(NODES):
            name, uid = node["metadata"]["name"], node["metadata"]["uid"]
            said = self._announced.setdefault(uid, Announcement())
            stands = any(item["key"] == names.EVACUATE_TAINT for item in (node.get("spec") or {}).get("taints") or ())
            if said.stands and not stands:
                said.ended = self.clock()
            said.stands = stands
            if name in self.nodes:
                said.eyes.sample(self.clock(), life=self.nodes[name].lives, sees=self.sees(name))

    async def _come_to_rest(self) -> None:
        await asyncio.sleep(_LINGERS)
        self.errors, self.back_at_look = 0.0, 0
        self.at_effects.clear()
        self._heal()
        self.silent.update(self.lost)
        for name in self.nodes:
            await self.tell_ready(name, "True")
            await self.api.patch(NODES, name, {"spec": {"taints": None}}, content_type=MERGE_PATCH)
        await asyncio.sleep(self.plan.settle)

    async def _judge(self) -> None:
        for kind, what in node_loss_rest.findings(self):
            self.found(kind, what)
