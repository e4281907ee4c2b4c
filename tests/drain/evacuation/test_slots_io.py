"""Slots are leases that are taken, kept and given back; somebody else's lease under a slot's name is left alone, and told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, Cluster, InProcessApi
from hack.sim.cluster.storage.reading import Query
from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER as BENCH_DRIVER
from sidecar.drain import leases
from sidecar.drain.evacuation import slots
from sidecar.drain.evacuation.slots import Decision, NoLimit, WaitFor
from sidecar.drain.evacuation.slots_io import SlotController
from sidecar.drain.leases import Hold, NotWanted, Terms
from sidecar.drain.settings import Settings
from sidecar.kube.api import LEASES, MERGE_PATCH, NODES
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain.samples import DRIVER, NOW, stamp
from tests.harness.drain.simulated import EVACUATE, EVACUATING, node_of, play, wait, with_pod
from tests.harness.drain.simulated import STATE as BENCH_STATE

START = names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)
STATE = names.of_driver(DRIVER, names.EVACUATION_STATE)
FIRST, SECOND = (names.evacuation_slot(index, DRIVER) for index in range(2))
NAMESPACE = "default"


def slot_of(node: str, uid: str, name: str = FIRST) -> Terms:
    """As the sidecar of that node takes it."""
    return Terms(name, NAMESPACE, {names.SLOT_FOR: DRIVER}, node, uid, leases.identity(uid, DRIVER))


CLOCK = 1_000.0 - NOW
"""The monotonic clock began some time ago."""


@dataclass
class Scene:
    """One process on node n1 of a small cluster. `meanwhile` is called ahead of each of its requests."""

    limit: int = 1
    now: float = NOW
    jump: float = 0.0
    """By how much the node's wall clock is wrong."""
    meanwhile: Callable[[Call], None] = lambda _: None
    cluster: Cluster = field(init=False)
    controller: SlotController = field(init=False)

    def __post_init__(self) -> None:
        async def before(call: Call) -> None:
            self.meanwhile(call)

        self.cluster = new_cluster(clock=lambda: self.now)
        settings = Settings(node="n1", driver=DRIVER, namespace=NAMESPACE, agent="sidecar", limit=self.limit)
        self.controller = SlotController(
            InProcessApi(self.cluster, before=before), settings, clock=lambda: self.now + CLOCK, wall=lambda: self.now + self.jump
        )
        self.evacuated("n1")

    def evacuated(self, name: str, ago: float = 60.0) -> None:
        meta = {"name": name, "labels": {STATE: "Pending"}, "annotations": {START: stamp(ago)}}
        self.cluster.create(NODES, {"metadata": meta})

    def step(self, *, wanted: bool = True) -> Decision:
        node = Node.of(self.cluster.get(NODES, "n1").obj)
        found: list[Decision] = []

        async def take() -> None:
            found.append(await self.controller.step(node, wanted=wanted))

        run_virtual(take())
        return found[0]

    def foreign(self, name: str = FIRST, **labels: str) -> Json:
        """A lease of somebody else, which has long run out."""
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": "them", "leaseDurationSeconds": 1}}
        return self.cluster.create(LEASES, body, namespace=NAMESPACE).obj

    def taken_by(self, name: str, slot: str = FIRST) -> None:
        """As the sidecar of that node takes it."""
        self.cluster.create(LEASES, leases.body(slot_of(name, f"uid-{name}", slot), now=self.now), namespace=NAMESPACE)

    def stored(self, name: str) -> Json:
        return self.cluster.get(LEASES, name, namespace=NAMESPACE).obj

    def deleted(self, name: str) -> None:
        self.cluster.delete(LEASES, name, namespace=NAMESPACE)


def once(verb: str, act: Callable[[], Any]) -> Callable[[Call], None]:
    """Acts ahead of the first such request about a lease."""
    done: list[Call] = []

    def meanwhile(call: Call) -> None:
        if (call.verb, call.resource) == (verb, LEASES) and not done:
            done.append(call)
            act()

    return meanwhile


def test_a_slot_is_taken_held_and_given_back() -> None:
    scene = Scene()
    decision = scene.step()
    assert isinstance(decision, Hold) and decision.name == FIRST
    assert scene.step(wanted=False) == NotWanted()
    assert not scene.cluster.list(LEASES, Query()).items


def test_a_foreign_lease_of_a_slots_name_is_left_alone_and_told() -> None:
    for labels in [{}, {names.SLOT_FOR: "other.example.com"}]:
        scene = Scene()
        before = scene.foreign(**labels)
        for _ in range(2):
            with pytest.raises(ApiError) as caught:
                scene.step()
            for word in (f"{NAMESPACE}/{FIRST}", "not ours", f"{names.SLOT_FOR}={DRIVER}", "delete it", "--max-concurrent-evacuations"):
                assert word in str(caught.value)
        assert scene.stored(FIRST) == before
        assert not scene.controller.maybe_held


def test_the_next_slot_is_taken_instead_and_no_more_than_the_limit() -> None:
    scene = Scene(limit=2)
    before = scene.foreign()
    decision = scene.step()
    assert isinstance(decision, Hold) and decision.name == SECOND
    assert scene.stored(FIRST) == before
    narrowed = Scene(limit=2)
    narrowed.foreign()
    narrowed.taken_by("n2", SECOND)
    with pytest.raises(ApiError, match=FIRST):
        narrowed.step()


def test_another_node_that_was_faster_is_not_taken_for_a_foreign_lease() -> None:
    scene = Scene()
    scene.meanwhile = once("create", lambda: scene.taken_by("n2"))
    decision = scene.step()
    assert isinstance(decision, WaitFor) and decision.holders == ("n2",)
    scene.deleted(FIRST)
    assert isinstance(scene.step(), Hold)


def unlimited(seen: list[Call], refusal: ApiError | None = None) -> Scene:
    """A process without a limit, on a node that has a slot from one with a limit."""

    def meanwhile(call: Call) -> None:
        if call.resource == LEASES:
            seen.append(call)
            if refusal is not None:
                raise refusal

    scene = Scene(limit=0, meanwhile=meanwhile)
    uid = scene.cluster.get(NODES, "n1").obj["metadata"]["uid"]
    scene.cluster.create(LEASES, leases.body(slot_of("n1", uid), now=scene.now), namespace=NAMESPACE)
    return scene


def test_without_a_limit_a_former_slot_is_given_back_and_then_nothing_is_asked() -> None:
    seen: list[Call] = []
    scene = unlimited(seen)
    assert scene.step() == NoLimit()
    assert not scene.cluster.list(LEASES, Query()).items and not scene.controller.maybe_held
    seen.clear()
    assert scene.step() == NoLimit() and seen == []


def test_without_a_limit_nobody_is_held_up_by_a_slot_that_cannot_be_given_back() -> None:
    for refusal, asks_again in [(Forbidden("cannot list leases", status=403), False), (Unavailable("overloaded", status=503), True)]:
        seen: list[Call] = []
        scene = unlimited(seen, refusal)
        assert scene.step() == NoLimit() and len(seen) == 1
        assert scene.step() == NoLimit() and len(seen) == 1 + asks_again


def test_an_evacuation_that_a_foreign_lease_keeps_waiting_says_so_and_goes_on_when_it_is_gone() -> None:
    slot = names.evacuation_slot(0, BENCH_DRIVER)

    def health(bench: NotebookWorld) -> str:
        tools = bench.nodes["n0"].tools
        assert tools is not None
        return next(str(row.state) for row in tools.health.rows() if row.path == "drain")

    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await bench.you.create(LEASES, {"metadata": {"name": slot}, "spec": {"holderIdentity": "them"}}, namespace=NAMESPACE)
        await bench.you.patch(NODES, "n0", {"spec": {"taints": [EVACUATE]}}, content_type=MERGE_PATCH)
        await wait(bench, 120)
        assert (await node_of(bench))["metadata"]["labels"][BENCH_STATE] == "Pending"
        assert f"Lease {NAMESPACE}/{slot} has the name of a slot and is not ours" in health(bench)
        await bench.you.delete(LEASES, slot, namespace=NAMESPACE)
        await wait(bench, 300)
        assert (await node_of(bench))["metadata"]["labels"][BENCH_STATE] == "InProgress"
        assert slot not in health(bench)
        taken = await bench.you.list_page(LEASES, label_selector=slots.selector(BENCH_DRIVER))
        assert [item["metadata"]["name"] for item in taken.items] == [slot]

    play(story, args=EVACUATING, nodes=("n0",))


def test_a_clock_that_jumps_takes_no_slot_that_is_held_and_waits_no_longer_for_one_that_is_not() -> None:
    for jump in [3600.0, -3600.0, 365 * 86400.0, -365 * 86400.0]:
        scene = Scene()
        scene.taken_by("n2")
        assert isinstance(scene.step(), WaitFor)
        scene.jump = jump
        scene.now += leases.DURATION - 1
        assert isinstance(scene.step(), WaitFor)
        scene.now += 1
        assert isinstance(scene.step(), Hold)
