"""Which sidecar looks after gone nodes, and what all of them together ask of the API server."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from hack.sim.clock import run_virtual
from sidecar.drain import leases
from sidecar.drain.leases import DURATION, Lease, Leave, Take
from sidecar.drain.node_loss import turn
from sidecar.drain.node_loss.controller import NodeLoss
from sidecar.drain.settings import Settings
from sidecar.kube.api import CSI_NODES, DRAIN_REPORTS, LEASES, VOLUMES, Page, Resource
from sidecar.kube.errors import AlreadyExists, Conflict, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node
from tests.harness import doors

DRIVER: Final = "local.example"
Json = dict[str, Any]


def lease(*, holder: str = "uid-2/local.example", version: str = "1") -> Lease:
    return Lease(names.node_loss(DRIVER), "u", version, holder, "n2", "uid-2", renewed=0.0, duration=DURATION)


def decided(stored: Lease | None, others: turn.Seen | None, *, now: float, wall: float = 0.0) -> leases.Decision:
    return leases.decide(turn.view(stored, others, node="n1", node_uid="uid-1", driver=DRIVER, namespace="kube-system", now=now, wall=wall))


def test_one_that_nobody_has_is_taken_and_goes_with_its_holders_node() -> None:
    found = decided(None, None, now=0.0)
    assert isinstance(found, Take)
    assert [(ref["name"], ref["uid"]) for ref in found.body["metadata"]["ownerReferences"]] == [("n1", "uid-1")]


def test_G8_it_is_taken_from_a_silent_holder_by_ones_own_clock_alone() -> None:
    for wall in [0.0, 300.0, 1e9]:
        seen = turn.seen(lease(), None, now=100.0)
        seen = turn.seen(lease(), seen, now=500.0)
        assert isinstance(decided(lease(), seen, now=100.0 + DURATION, wall=wall), Leave)
        assert isinstance(decided(lease(), seen, now=100.0 + DURATION + turn.PATIENCE, wall=wall), Take)


def test_nodes_do_not_look_all_at_once() -> None:
    nodes = [f"node-{number}" for number in range(1000)]
    for pauses in ([turn.first_pause(node) for node in nodes], [turn.pause(node, holds=False) for node in nodes]):
        width = max(pauses) - min(pauses)
        parts = Counter(int(10 * (each - min(pauses)) / (width * 1.0001)) for each in pauses)
        assert max(parts.values()) <= 150


# --- all together ---------------------------------------------------------------------------------------------------------


class Counting:
    """As much of an API server as the looks of a cluster at rest ask for, which counts what it is asked."""

    def __init__(self, *, nodes: int, volumes: int) -> None:
        self.asked: Counter[str] = Counter()
        self.leases: dict[str, Json] = {}
        self._version = 0
        self._lists: dict[Resource, list[Json]] = {
            CSI_NODES: [{"metadata": {"name": f"n{n}", "ownerReferences": [_owner(n)]}} for n in range(nodes)],
            VOLUMES: [_volume(n, on=n % nodes) for n in range(volumes)],
            DRAIN_REPORTS: [],
        }

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        self.asked[f"get {resource.plural}"] += 1
        if resource != LEASES or name not in self.leases:
            raise NotFound("none", status=404, reason="NotFound")
        return self.leases[name]

    async def list_page(self, resource: Resource, *, resource_version: str = "", begin: Callable[[], Any], **_: Any) -> Page:
        items = self._lists[resource]
        self.asked[f"list {resource.plural}"] += 1 if resource_version == "0" else 1 + len(items) // 500
        take = begin()
        return Page([item for item in items if not take(item)], "1", "")

    async def create(self, resource: Resource, body: Json, *, namespace: str = "") -> Json:
        self.asked[f"create {resource.plural}"] += 1
        if body["metadata"]["name"] in self.leases:
            raise AlreadyExists("there is one", status=409)
        return self._store(body)

    async def replace(self, resource: Resource, body: Json, *, name: str, namespace: str = "") -> Json:
        self.asked[f"replace {resource.plural}"] += 1
        if name not in self.leases or body["metadata"]["resourceVersion"] != self.leases[name]["metadata"]["resourceVersion"]:
            raise Conflict("another one was faster", status=409)
        return self._store(body)

    def _store(self, body: Json) -> Json:
        self._version += 1
        meta = body["metadata"] | {"uid": "u", "resourceVersion": str(self._version)}
        self.leases[meta["name"]] = body | {"metadata": meta}
        return self.leases[meta["name"]]


def _owner(number: int) -> Json:
    return {"apiVersion": "v1", "kind": names.NODE, "name": f"n{number}", "uid": f"uid-{number}"}


def _volume(number: int, *, on: int) -> Json:
    note = {names.LIES_ON: f"n{on}/uid-{on}"}
    return {"metadata": {"name": f"pv-{number}", "annotations": note}, "spec": {"csi": {"driver": DRIVER}}}


def test_a_thousand_nodes_at_rest_ask_for_less_than_three_things_a_second() -> None:
    """With 10,000 volumes, all looks of half an hour. Each is a request, and a list is as many as it has pages."""
    nodes, seconds = 1000, 1800.0
    api = Counting(nodes=nodes, volumes=10_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tools = doors.tools(api, clock=loop.time, wall=loop.time)

        def sidecar(number: int) -> NodeLoss:
            own = Node.of({"metadata": {"name": f"n{number}", "uid": f"uid-{number}"}})
            settings = Settings(own.name, DRIVER, "kube-system", "v0", judges=True, follows_loss=True)
            return NodeLoss(tools, settings, own_node=lambda: own, attaches=False)

        tasks = [loop.create_task(sidecar(number).run()) for number in range(nodes)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(main())
    assert sum(api.asked.values()) / seconds <= 3.0, api.asked
    assert api.asked["list csinodes"] == pytest.approx(seconds / turn.HOLDER_EVERY, abs=2), "one looks for all"
    assert api.asked["list persistentvolumes"] == pytest.approx(seconds / turn.VOLUMES_EVERY, abs=1)
    assert api.asked["get nodes"] == 0


def test_two_processes_of_one_node_do_not_keep_each_other_from_looking() -> None:
    """As where a roll starts the new pod before the old one ends: both are the same holder."""
    api = Counting(nodes=3, volumes=10)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tools = doors.tools(api, clock=loop.time, wall=loop.time)
        own = Node.of({"metadata": {"name": "n0", "uid": "uid-0"}})
        settings = Settings(own.name, DRIVER, "kube-system", "v0", judges=True, follows_loss=True)
        both = [NodeLoss(tools, settings, own_node=lambda: own, attaches=False) for _ in range(2)]
        for _ in range(60):
            for each in both:
                await each.turn()
            await asyncio.sleep(turn.HOLDER_EVERY)

    run_virtual(main())
    assert api.asked["list csinodes"] >= 60, "every minute one of them looks"
