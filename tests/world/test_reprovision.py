"""Stories of replicas that are made anew: no claim is deleted while a lock is shut, whatever happens between the last look and that.

What must not happen is judged by the referee, which shares no rule of drains with the product.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from hack.sim.cluster import Call, InProcessApi
from hack.sim.world.actions import carry_out
from hack.sim.world.effects import SENDER
from hack.sim.world.network import Weather
from hack.sim.world.node import DRIVER, NAMESPACE
from hack.sim.world.people import BY
from hack.sim.world.plan import GATED, Plan, PlannedEvent
from hack.sim.world.themes import ALLOW, ANNOUNCED, AT_ONCE, CLEANUP, EVACUATE, LOST_SET, REPROVISIONED, SET, UNDONE
from hack.sim.world.world import World
from sidecar.kube.api import CLAIMS, LEASES, MERGE_PATCH, PODS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json
from tests.harness.placing import place
from tests.harness.seeds import ALL_SEEDS
from tests.world.playing import NODES, QUICK, SLOW, at_request, by_itself, played

EMPTIED: Final = NODES[0]
"""The first replica is there."""
FLAGS: Final = (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", ALLOW, AT_ONCE)
SET_OF_THREE: Final = PlannedEvent(2.0, SET, "db", 3.0, f"Parallel {REPROVISIONED} none")
EVICTION: Final = "create pods/eviction default/db-0"
Change = Callable[[World], Awaitable[None]]


def plan(*args: str, settle: float = 100.0) -> Plan:
    events = (SET_OF_THREE, PlannedEvent(60.0, EVACUATE, EMPTIED))
    weather = Weather(read=QUICK, write=QUICK)
    return Plan(1, NODES, "reprovision", weather=weather, events=events, args=args or FLAGS, settle=settle)


@pytest.fixture(autouse=True)
def _one_replica_on_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, *NODES[:3])


async def _set_of(world: World, spec: Json) -> None:
    await world.api.patch(STATEFUL_SETS, "db", {"spec": spec}, namespace=NAMESPACE, content_type=MERGE_PATCH)


def test_where_nothing_happens_the_claim_is_deleted_and_made_anew() -> None:
    report, world = played(plan(settle=300.0))
    assert report.ok, report
    assert world.effects.deletions == 1


# --- beside tools that act while the locks are looked at ----------------------------------------------------------------------


async def sends_another_replica_away(world: World) -> None:
    """As the updater of a VerticalPodAutoscaler and a descheduler do."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "db-2", "namespace": NAMESPACE, "labels": BY}}
    await world.api.create_subresource(PODS, "db-2", "eviction", body, namespace=NAMESPACE)


async def scales_to_nothing(world: World) -> None:
    """And back, as whoever stops a database for a moment."""

    async def back() -> None:
        await asyncio.sleep(20.0)
        await _set_of(world, {"replicas": 3})

    await _set_of(world, {"replicas": 0})
    world.spawn("scaled", back())


async def replaces_the_set(world: World) -> None:
    """Leaves its pods, and makes it again with them: what a template says cannot be changed otherwise."""
    spec = (await world.api.get(STATEFUL_SETS, "db", namespace=NAMESPACE))["spec"]

    async def made_again() -> None:
        await asyncio.sleep(10.0)
        made = await world.api.create(STATEFUL_SETS, {"metadata": {"name": "db"}, "spec": spec}, namespace=NAMESPACE)
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": made["metadata"]["uid"], "controller": True}
        for pod in (await world.api.list_page(PODS, namespace=NAMESPACE, label_selector="app=db", limit=0)).items:
            adopted = {"metadata": {"ownerReferences": [owner]}}
            await world.api.patch(PODS, pod["metadata"]["name"], adopted, namespace=NAMESPACE, content_type=MERGE_PATCH)

    await world.api.delete(STATEFUL_SETS, "db", namespace=NAMESPACE, propagation="Orphan")
    world.spawn("replaced", made_again())


def at_the_moment(tool: Change, moment: Callable[[list[str]], bool]) -> tuple[Callable[[World], None], list[Any]]:
    """`moment` gets the requests that the sidecar has made since it took the Lease; the tool acts before the last is carried out, and the
    API server is busy for a while then. The list is empty as long as it has not acted."""
    requests, acted = list[str](), list[Any]()

    def prepare(world: World) -> None:
        async def asked(call: Call) -> None:
            said = f"{call}{' (trial)' if call.dry_run else ''}"
            if (
                SENDER.get() != EMPTIED
                or call.verb == "watch"
                or (not requests and "create leases.coordination.k8s.io default/repro" not in said)
            ):
                return
            requests.append(said)
            if not acted and moment(requests):
                acted.append(by_itself(tool(world)))
                await acted[0]
                await asyncio.sleep(2.0)

        at_request(world, asked)

    return prepare, acted


def looked(requests: list[str]) -> bool:
    """All locks were looked at after the eviction, and the last question is which pods of this node end."""
    since = requests[requests.index(EVICTION) :] if EVICTION in requests else [""]
    return any(one.startswith("list storageclasses") for one in since) and all(one.startswith("list pods") for one in since[-2:])


@pytest.mark.parametrize("tool", [sends_another_replica_away, scales_to_nothing, replaces_the_set])
def test_no_data_is_deleted_where_a_tool_acts_while_the_locks_are_looked_at(tool: Change) -> None:
    prepare, acted = at_the_moment(tool, looked)
    report, _ = played(plan(), prepare)
    assert report.ok, report
    assert acted


def test_no_claim_goes_when_what_was_announced_is_taken_back_and_the_cordon_stays() -> None:
    async def taken_back(world: World) -> None:
        await carry_out(world, PlannedEvent(world.clock(), UNDONE, EMPTIED))

    announced = replace(plan(), events=(SET_OF_THREE, PlannedEvent(60.0, EVACUATE, EMPTIED, detail=ANNOUNCED)))
    report, world = played(announced, at_the_moment(taken_back, looked)[0])
    assert report.ok, report
    assert (world.effects.evictions, world.effects.deletions) == (1, 0)


# --- much at once, and a node that is lost in the middle --------------------------------------------------------------------------


def test_where_much_happens_at_once_no_claim_goes_while_a_lock_is_shut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes are emptied at the same moment, again and again, and what locks look at changes all the time."""
    monkeypatch.undo()
    nodes, dice = (*NODES, "n4"), random.Random("anew 0")
    events = [PlannedEvent(2.0 + number, SET, f"set-{number}", 5.0, f"Parallel {REPROVISIONED} maxUnavailable=1") for number in range(3)]
    events += [PlannedEvent(90.0, "lag", node, dice.uniform(5.0, 20.0)) for node in nodes]
    for at in (100.0, 300.0):
        emptied = dice.sample(nodes, 2)
        events += [PlannedEvent(at, EVACUATE, node) for node in emptied]
        events += [PlannedEvent(at + dice.uniform(3.0, 150.0), UNDONE, node) for node in emptied]
        for number in range(3):
            name, ordinal, off, word = f"set-{number}", dice.randint(0, 2), at + dice.uniform(0.0, 60.0), at + dice.uniform(0.0, 60.0)
            events += [PlannedEvent(off, "replica not ready", name, ordinal), PlannedEvent(off + 30.0, "replica ready", name, ordinal)]
            events += [PlannedEvent(word, "needed", name), PlannedEvent(word + 30.0, "given up", name)]
            events.append(PlannedEvent(at + dice.uniform(0.0, 100.0), "pod deleted", name, dice.randint(0, 2)))
    flags = (*FLAGS, "--max-concurrent-evacuations=0")
    order = tuple(sorted(events, key=lambda event: event.at))
    report, world = played(Plan(0, nodes, "reprovision", weather=Weather(read=SLOW, write=SLOW), events=order, args=flags, settle=600.0))
    assert report.ok, report
    assert world.effects.deletions > 0, "nothing was made anew, so nothing was tried"


STEPS: Final = {
    "the slot": "create leases.coordination.k8s.io default/evacuation-slot-0",
    "the mark": "patch persistentvolumeclaims default/data-db-0",
    "the eviction": EVICTION,
    "the deletion of the claim": "delete persistentvolumeclaims default/data-db-0",
    "the deletion of the volume": "delete persistentvolumes",
}


@pytest.mark.parametrize("step", STEPS if ALL_SEEDS else ("the mark", "the deletion of the claim"))
def test_a_node_that_is_lost_after_a_step_leaves_a_whole_set_and_no_lease(step: str) -> None:
    """The others clear up after it."""

    def prepare(world: World) -> None:
        assert isinstance(world.api, InProcessApi)
        after, done = world.api.after, list[str]()

        async def answered(call: Call) -> None:
            await after(call)
            if SENDER.get() == EMPTIED and str(call).startswith(STEPS[step]) and not call.dry_run and not done:
                done.append(step)
                world.spawn("loss", world.lose(EMPTIED, 0.0))

        world.api.after = answered

        async def may_be_made_anew() -> None:
            await asyncio.sleep(100.0)
            for ordinal in range(3):
                word = {"metadata": {"annotations": {names.DRAIN_POLICY: "Reprovision"}}}
                await world.api.patch(CLAIMS, f"data-db-{ordinal}", word, namespace=NAMESPACE, content_type=MERGE_PATCH)

        world.spawn("words", may_be_made_anew())

    events = (PlannedEvent(10.0, LOST_SET, "db", 3.0, "late"), PlannedEvent(160.0, EVACUATE, EMPTIED), PlannedEvent(400.0, "nothing"))
    args = (*FLAGS, CLEANUP, "--node-gone-after=0s")
    report, world = played(
        Plan(1, NODES, "node-loss", weather=Weather(read=QUICK, write=QUICK), events=events, args=args, settle=1200.0), prepare
    )
    assert report.ok, report
    assert EMPTIED in world.lost, "the step was never made"
    pods = [pod for pod in world.cluster.store.all_of(PODS) if pod["metadata"]["name"].startswith("db-")]
    assert len(pods) == 3 and all(Pod.of(pod).ready for pod in pods)
    assert not any(world.effects.machine_of(volume) == EMPTIED for volume in world.cluster.store.all_of(VOLUMES))
    assert {lease["metadata"]["name"] for lease in world.cluster.store.all_of(LEASES)} == {names.watch(DRIVER)}
