"""Two neighbours on one API server: one looks after the other's gate."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from hack.sim.cluster import Call, Cluster, InProcessApi
from sidecar.drain import leases
from sidecar.drain.duty import Picture
from sidecar.drain.facts.node_marks import read
from sidecar.drain.gate import lease as gate_lease
from sidecar.drain.gate import rules
from sidecar.drain.gate.guard import Post
from sidecar.drain.gate.rules import GateView
from sidecar.drain.gate.takeover_io import Neighbours
from sidecar.drain.leases import identity
from sidecar.drain.publish import on_node
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Status
from sidecar.kube.api import (
    BUDGETS,
    CSI_NODES,
    DEPLOYMENTS,
    LEASES,
    MERGE_PATCH,
    NODES,
    STRATEGIC_MERGE_PATCH,
    VOLUMES,
    Resource,
)
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.model.standing import OPEN
from tests.harness.doors import Told, tools
from tests.harness.drain.judgements import blocked, ready
from tests.harness.drain.samples import DRIVER, KEY, NOW

Json = dict[str, Any]
NAMESPACE = "default"
KINDS = (BUDGETS, DEPLOYMENTS, LEASES)
LOOK = 60.0


async def nothing(_: Call) -> None:
    return None


class Scene:
    """An API server, a clock, and what happens before each request of the neighbour."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cluster = Cluster(clock=self.wall, rng=random.Random("x").random)
        self.you = InProcessApi(self.cluster)
        self.happens: Callable[[Call], Awaitable[None]] = nothing
        self.api = InProcessApi(self.cluster, before=self._before)
        self.told = Told()

    async def _before(self, call: Call) -> None:
        await self.happens(call)

    def wall(self) -> float:
        return NOW + self.now

    def settings(self, node: str, **changes: Any) -> Settings:
        given = {"namespace": NAMESPACE, "agent": "1", "judges": True, "gate": True, "gate_image": "pause", **changes}
        return Settings(node, DRIVER, **given)

    async def node(self, name: str) -> Node:
        meta = {"name": name, "labels": {KEY: name, "kubernetes.io/hostname": name}}
        await self.you.create(NODES, {"metadata": meta})
        drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [KEY]}]
        await self.you.create(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": drivers}})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.you.patch(NODES, name, ready, content_type=MERGE_PATCH, subresource="status")
        return Node.of(await self.you.get(NODES, name))

    async def guarded(self, name: str) -> Node:
        """A node with a gate, whose own sidecar is dead."""
        node = await self.node(name)
        post = Post(node, DRIVER, NAMESPACE, "pause")
        made = rules.wanted(GateView(post, True, True, None, Status.FALSE, Status.FALSE, overridden=False, budget=None, deployment=None))
        assert made is not None
        await self.you.create(BUDGETS, made.budget, namespace=NAMESPACE)
        await self.you.create(DEPLOYMENTS, made.deployment, namespace=NAMESPACE)
        await self.you.create(LEASES, self.lease(node), namespace=NAMESPACE)
        return node

    def lease(self, node: Node, version: str = "") -> Json:
        """As the node's own sidecar writes it."""
        terms = gate_lease.terms(node.name, node.uid, DRIVER, namespace=NAMESPACE, holder=identity(node.uid, DRIVER))
        return leases.body(terms, now=self.wall(), resource_version=version)

    async def force_drain(self, node: str) -> None:
        await self._change(node, {"metadata": {"annotations": {names.FORCE_DRAIN: "the disks burnt"}}})

    async def cordon(self, node: str) -> None:
        await self._change(node, {"spec": {"unschedulable": True}})

    async def evacuate(self, node: Node) -> None:
        """Begun now, as the node's own sidecar has noted it."""
        started = {names.of_driver(DRIVER, names.EVACUATION_STARTED_AT): timestamps.to_text(self.wall())}
        state = {names.of_driver(DRIVER, names.EVACUATION_STATE): "InProgress"}
        taints = [{"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}]
        await self._change(node.name, {"metadata": {"annotations": started, "labels": state}, "spec": {"taints": taints}})

    async def annotate(self, node: str, annotations: Json) -> None:
        await self._change(node, {"metadata": {"annotations": annotations}})

    async def note(self, node: str, key: str) -> str:
        return str((await self.you.get(NODES, node))["metadata"].get("annotations", {}).get(key, ""))

    async def version(self, node: str) -> str:
        return str((await self.you.get(NODES, node))["metadata"]["resourceVersion"])

    async def said(self, node: Node, status: str) -> None:
        """Both verdicts, as the node's own sidecar has just written them."""
        word = Status(status)
        judged = ready(node=node.name, node_uid=node.uid, driver=DRIVER, at=self.wall())
        judged = replace(judged, drain=replace(judged.drain, status=word), retire=replace(judged.retire, status=word))
        patch = on_node.conditions_patch(on_node.conditions(judged, []), node_uid=node.uid)
        await self.you.patch(NODES, node.name, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
        await self.annotate(node.name, dict(on_node.summary_mark(judged, {}).annotations))

    async def statuses(self, node: str) -> list[str]:
        """Of this driver's conditions; of an Unknown its reason too."""
        found = [item for item in (await self.you.get(NODES, node))["status"]["conditions"] if item["type"].startswith(f"{DRIVER}/")]
        return [item["status"] + (f"/{item['reason']}" if item["status"] == "Unknown" else "") for item in found]

    async def open_by_hand(self, node: str) -> None:
        """As the node's own sidecar does while somebody drains it: the lease stays."""
        await self.cordon(node)
        for kind in (BUDGETS, DEPLOYMENTS):
            for item in await self.all(kind):
                await self.you.delete(kind, item["metadata"]["name"], namespace=NAMESPACE)

    async def _change(self, node: str, patch: Json) -> None:
        await self.you.patch(NODES, node, patch, content_type=MERGE_PATCH)

    async def volume(self, name: str, node: str, *, maker: str = "", policy: str = "") -> None:
        here = {"matchExpressions": [{"key": KEY, "operator": "In", "values": [node]}]}
        attributes = {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-{maker}"} if maker else {}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": DRIVER, "volumeHandle": f"h-{name}", "volumeAttributes": attributes},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        }
        annotations = {names.DRAIN_POLICY: policy} if policy else {}
        await self.you.create(VOLUMES, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})

    async def neighbour(self, name: str = "n1", *, ahead: float = 0.0, **changes: Any) -> Neighbours:
        """`ahead`: so far its clock is ahead of the others'."""
        own = await self.node(name)
        given = tools(self.api, recorder=self.told, clock=lambda: self.now, wall=lambda: self.wall() + ahead)
        return Neighbours(given, self.settings(name, **changes), own_node=lambda: own)

    async def looks(self, neighbour: Neighbours, seconds: float) -> list[str]:
        """One a minute, so long; what failed."""
        failures: list[str] = []
        until = self.now + seconds
        while self.now < until:
            failures += await neighbour.look()
            self.now += LOOK
        return failures

    def picture(self, node: Node, drain: Status, retire: Status, *, holds: bool = True) -> Picture:
        """What a look of the node's own sidecar would be about."""
        judged = blocked() if holds else ready()
        judged = replace(judged, drain=replace(judged.drain, status=drain), retire=replace(judged.retire, status=retire))
        return Picture(node, read(node, DRIVER, now=self.wall()), OPEN, assessment=judged)

    async def all(self, kind: Resource) -> list[Json]:
        return (await self.you.list_page(kind)).items

    async def holder(self) -> str:
        """The node whose sidecar has the lease; empty if there is none."""
        (held, *_) = [item["spec"]["holderIdentity"] for item in await self.all(LEASES)] or [""]
        return next((item["metadata"]["name"] for item in await self.all(NODES) if held.startswith(item["metadata"]["uid"])), "")

    async def left(self) -> list[int]:
        return [len(await self.all(kind)) for kind in KINDS]


def play(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Scene())

    asyncio.run(main())
