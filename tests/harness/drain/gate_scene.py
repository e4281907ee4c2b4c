"""An API server with a node that has a gate, and what a look of the node's own sidecar would be about."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from hack.sim.cluster import Cluster, InProcessApi
from sidecar.drain import leases
from sidecar.drain.duty import Picture
from sidecar.drain.facts.node_marks import read
from sidecar.drain.gate import lease as gate_lease
from sidecar.drain.gate import rules
from sidecar.drain.gate.guard import Post
from sidecar.drain.gate.rules import GateView
from sidecar.drain.leases import identity
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Status
from sidecar.kube.api import (
    BUDGETS,
    CSI_NODES,
    DEPLOYMENTS,
    LEASES,
    MERGE_PATCH,
    NODES,
    Resource,
)
from sidecar.model.nodes import Node
from sidecar.model.standing import OPEN
from tests.harness.drain.judgements import blocked
from tests.harness.drain.samples import DRIVER, KEY, NOW

Json = dict[str, Any]
NAMESPACE = "default"


class Scene:
    """An API server and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cluster = Cluster(clock=self.wall, rng=random.Random("x").random)
        self.you = InProcessApi(self.cluster)

    def wall(self) -> float:
        return NOW + self.now

    def settings(self, node: str) -> Settings:
        return Settings(node, DRIVER, NAMESPACE, "1", judges=True, gate=True, gate_image="pause")

    async def node(self, name: str) -> Node:
        meta = {"name": name, "labels": {KEY: name, "kubernetes.io/hostname": name}}
        await self.you.create(NODES, {"metadata": meta})
        drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [KEY]}]
        await self.you.create(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": drivers}})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.you.patch(NODES, name, ready, content_type=MERGE_PATCH, subresource="status")
        return Node.of(await self.you.get(NODES, name))

    async def guarded(self, name: str) -> Node:
        """A node with a gate."""
        node = await self.node(name)
        post = Post(node, DRIVER, NAMESPACE, "pause")
        made = rules.wanted(GateView(post, True, True, None, Status.FALSE, Status.FALSE, overridden=False, budget=None, deployment=None))
        assert made is not None
        await self.you.create(BUDGETS, made.budget, namespace=NAMESPACE)
        await self.you.create(DEPLOYMENTS, made.deployment, namespace=NAMESPACE)
        terms = gate_lease.terms(node.name, node.uid, DRIVER, namespace=NAMESPACE, holder=identity(node.uid, DRIVER))
        await self.you.create(LEASES, leases.body(terms, now=self.wall()), namespace=NAMESPACE)
        return node

    def picture(self, node: Node, drain: Status, retire: Status) -> Picture:
        """What a look of the node's own sidecar would be about."""
        judged = blocked()
        judged = replace(judged, drain=replace(judged.drain, status=drain), retire=replace(judged.retire, status=retire))
        return Picture(node, read(node, DRIVER, now=self.wall()), OPEN, assessment=judged)

    async def all(self, kind: Resource) -> list[Json]:
        return (await self.you.list_page(kind)).items


def play(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Scene())

    asyncio.run(main())
