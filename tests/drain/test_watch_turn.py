"""Which sidecar looks after gone nodes and silent sidecars, and what all of them together ask of the API server."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from hack.sim.clock import run_virtual
from sidecar.drain.settings import Settings
from sidecar.drain.watch import loss_io, turn_io
from sidecar.drain.watch.turn_io import Looker
from sidecar.kube.api import CSI_NODES, DRAIN_REPORTS, LEASES, NODES, VOLUMES, Page, Resource
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.nodes import Node
from tests.harness import doors

DRIVER: Final = "local.example"
Json = dict[str, Any]


class Counting:
    """As much of an API server as the looks of a cluster at rest ask for, which counts what it is asked."""

    def __init__(self, *, nodes: int, volumes: int) -> None:
        self.asked: Counter[str] = Counter()
        self.leases: dict[str, Json] = {}
        self.failing: ApiError | None = None
        self._version = 0
        self._lists: dict[Resource, list[Json]] = {
            CSI_NODES: [{"metadata": {"name": f"n{n}", "ownerReferences": [_owner(n)]}} for n in range(nodes)],
            NODES: [{"metadata": {"name": f"n{n}", "uid": f"uid-{n}"}} for n in range(nodes)],
            VOLUMES: [_volume(n, on=n % nodes) for n in range(volumes)],
            DRAIN_REPORTS: [],
        }

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        self.asked[f"get {resource.plural}"] += 1
        if resource != LEASES or name not in self.leases:
            raise NotFound("none", status=404, reason="NotFound")
        return self.leases[name]

    async def list_page(self, resource: Resource, *, resource_version: str = "", begin: Callable[[], Any], **_: Any) -> Page:
        if self.failing is not None:
            raise self.failing
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


def sidecar(api: Counting, number: int = 0, *, uid: str = "") -> Looker:
    loop = asyncio.get_running_loop()
    own = Node.of({"metadata": {"name": f"n{number}", "uid": uid or f"uid-{number}"}})
    settings = Settings(own.name, DRIVER, "kube-system", "v0", judges=True, follows_loss=True)
    return Looker(doors.tools(api, clock=loop.time, wall=loop.time), settings, own_node=lambda: own, attaches=False)


def test_a_thousand_nodes_at_rest_ask_for_less_than_three_things_a_second() -> None:
    """With 10,000 volumes, all looks of half an hour. Each is a request, and a list is as many as it has pages."""
    nodes, seconds = 1000, 1800.0
    api = Counting(nodes=nodes, volumes=10_000)

    async def main() -> None:
        tasks = [asyncio.create_task(sidecar(api, number).run()) for number in range(nodes)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(main())
    assert sum(api.asked.values()) / seconds <= 3.0, api.asked
    assert api.asked["list csinodes"] == pytest.approx(seconds / turn_io.EVERY, abs=2), "one looks for all"
    assert api.asked["list persistentvolumes"] == pytest.approx(seconds / loss_io.VOLUMES_EVERY, abs=1)
    assert api.asked["list nodes"] == pytest.approx(seconds / turn_io.SILENT_EVERY, abs=1)
    assert api.asked["get nodes"] == 0


def test_two_processes_of_one_node_do_not_keep_each_other_from_looking() -> None:
    """As where a roll starts the new pod before the old one ends: both are the same holder."""
    api = Counting(nodes=3, volumes=10)

    async def main() -> None:
        both = [sidecar(api) for _ in range(2)]
        for _ in range(60):
            for each in both:
                await each.turn()
            await asyncio.sleep(turn_io.EVERY)

    run_virtual(main())
    assert api.asked["list csinodes"] >= 60, "every minute one of them looks"


def test_one_looks_and_another_one_takes_over_when_it_is_not_heard_of() -> None:
    api = Counting(nodes=3, volumes=10)

    async def main() -> None:
        first, second = sidecar(api, 0), sidecar(api, 1)
        await first.turn()
        await second.turn()
        assert (first.lost(), second.lost()) == ({}, None)
        await asyncio.sleep(899)
        await second.turn()
        assert second.lost() is None
        await asyncio.sleep(1)
        await second.turn()
        await first.turn()
        assert (first.lost(), second.lost()) == (None, {})

    run_virtual(main())


def test_another_machine_of_the_name_is_another_holder() -> None:
    api = Counting(nodes=3, volumes=10)

    async def main() -> None:
        await sidecar(api, uid="uid-former").turn()
        later = sidecar(api)
        await later.turn()
        assert later.lost() is None

    run_virtual(main())


def test_what_cannot_be_looked_at_is_told_once_and_looked_at_again(caplog: pytest.LogCaptureFixture) -> None:
    api = Counting(nodes=3, volumes=10)
    caplog.set_level("INFO")

    async def main() -> None:
        one = sidecar(api)
        api.failing = Unavailable("no answer")
        for _ in range(3):
            await one.turn()
            await asyncio.sleep(turn_io.EVERY)
        api.failing = None
        for _ in range(8):
            await one.turn()
            await asyncio.sleep(turn_io.EVERY)

    run_virtual(main())
    said = [text for text in caplog.messages if "looked after" in text]
    assert [text.startswith("Not all") for text in said] == [True, False]
