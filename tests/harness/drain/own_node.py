"""What the drain room writes about its own node, against a simulated API server: requests are refused, or done and never answered."""

import asyncio
from collections.abc import Callable
from typing import Any

from hack.sim.cluster import Call, InProcessApi
from sidecar.kube.api import MERGE_PATCH, NODES, find
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model.nodes import Node
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain.samples import KEY, NODE, NOW


class Bench:
    """A node n1 on a simulated API server, to be used within `virtual`. A sidecar's requests go through `kube`, a person's through `you`.

    `refuse` says what a request is answered with instead of being carried out; `lose`, after which the answer is lost.
    """

    def __init__(self) -> None:
        self.cluster = new_cluster(clock=self.wall)
        self.you = InProcessApi(self.cluster)
        self.kube = InProcessApi(self.cluster, before=self._before, after=self._after)
        self.refuse: Callable[[Call], ApiError | None] = lambda _: None
        self.lose: Callable[[Call], bool] = lambda _: False
        self.calls: list[Call] = []

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return NOW + self.clock()

    async def _before(self, call: Call) -> None:
        self.calls.append(call)
        if error := self.refuse(call):
            raise error

    async def _after(self, call: Call) -> None:
        if self.lose(call):
            raise Unavailable("no answer in time")

    async def node(self, **meta: Any) -> Node:
        """Made, or changed by a person."""
        labels_ = {KEY: NODE, "kubernetes.io/hostname": NODE}
        if await find(self.you, NODES, NODE) is None:
            await self.you.create(NODES, {"metadata": {"name": NODE, "labels": labels_}})
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await self.you.patch(NODES, NODE, ready, content_type=MERGE_PATCH, subresource="status")
        if meta:
            await self.you.patch(NODES, NODE, {"metadata": meta}, content_type=MERGE_PATCH)
        return Node.of(await self.you.get(NODES, NODE))

    def asked(self, *verbs: str) -> list[str]:
        """What was asked since the last time, as `verb resource`; without `verbs`, all."""
        found = [f"{call.verb} {getattr(call.resource, 'plural', call.resource)}" for call in self.calls if not verbs or call.verb in verbs]
        self.calls.clear()
        return found
