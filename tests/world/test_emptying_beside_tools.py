"""A node is emptied beside other tools: those that send replicas away, scale or replace their set, or take the node, at the worst moment.

Each tool acts between two requests of the sidecar. What must not happen then is judged by the referee, which shares no rule with the
product. Each guard is also left out, and noticed to be.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from hack.sim.cluster import Call, InProcessApi
from hack.sim.drains.claim_referee import ALLOW, CLAIM_DELETED, LEFT_BEHIND
from hack.sim.drains.emptying_plan import EVACUATE, REPROVISIONED, SET
from hack.sim.drains.emptying_world import EmptyingWorld
from hack.sim.drains.evictions import BY
from hack.sim.drains.plan import GATED
from hack.sim.drains.reprovision_world import play
from hack.sim.drains.sender import SENDER
from hack.sim.world.network import Latency, Weather
from hack.sim.world.node import NAMESPACE
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report
from sidecar.drain.reprovision import acts_io
from sidecar.drain.reprovision.controller import ReprovisionDuty
from sidecar.drain.reprovision.looks_io import Looks
from sidecar.drain.reprovision.steps import DeleteClaims, Evict
from sidecar.kube.api import MERGE_PATCH, PODS, STATEFUL_SETS
from sidecar.kube.api import NODES as KUBE_NODES
from sidecar.kube.errors import ApiError
from sidecar.model import names
from tests.harness.placing import place

NODES: Final = ("n0", "n1", "n2", "n3")
EMPTIED: Final = NODES[0]
"""The first replica is there."""
QUICK: Final = Latency(0.02, 0.05)
BUSY: Final = 2.0
"""Seconds for which the API server is busy after a tool has acted."""
PLAN: Final = Plan(
    1,
    NODES,
    weather=Weather(read=QUICK, write=QUICK),
    events=(PlannedEvent(2.0, SET, "db", 3.0, f"Parallel {REPROVISIONED} none"), PlannedEvent(60.0, EVACUATE, EMPTIED)),
    args=(*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", ALLOW),
    settle=100.0,
)
Tool = Callable[[EmptyingWorld], Awaitable[None]]
Moment = Callable[[list[str]], bool]
"""Of the requests that the sidecar has made since it took the Lease: the tool acts before the last of them is carried out."""


@pytest.fixture(autouse=True)
def _one_replica_on_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, *NODES[:3])


def played(tool: Tool, moment: Moment, *, after: float = 0.0) -> Report:
    """The tool acts so many seconds after the moment, while that request is on its way."""
    requests: list[str] = []
    acted: list[asyncio.Task[None]] = []

    def prepare(world: EmptyingWorld) -> None:
        assert isinstance(world.api, InProcessApi)
        before = world.api.before

        async def asked(call: Call) -> None:
            await before(call)
            if SENDER.get() != EMPTIED or call.verb == "watch" or (not requests and not is_lease(str(call))):
                return
            requests.append(f"{call}{' (trial)' if call.dry_run else ''}")
            if not acted and moment(requests):
                await asyncio.sleep(after)
                acted.append(by_itself(quietly(tool(world))))
                await acted[0]
                await asyncio.sleep(BUSY)

        world.api.before = asked

    report = play(PLAN, before=prepare)
    assert acted, "the moment never came"
    return report


def by_itself(doing: Any) -> asyncio.Task[None]:
    """As nobody's sidecar."""
    context = contextvars.copy_context()
    context.run(SENDER.set, "")
    return asyncio.get_running_loop().create_task(doing, context=context)


async def quietly(doing: Awaitable[None]) -> None:
    with contextlib.suppress(ApiError):
        await doing


def is_lease(request: str) -> bool:
    return request.startswith("create leases.coordination.k8s.io default/reprovision-")


# --- moments ----------------------------------------------------------------------------------------------------------------

EVICTION: Final = "create pods/eviction default/db-0"


def after_the_pods_before_the_deletion(requests: list[str]) -> bool:
    return EVICTION in requests and requests[-1] == "get namespaces default"


def at_the_snapshots(requests: list[str]) -> bool:
    """The last thing that is read, and often the longest."""
    return requests[-1].startswith("list volumesnapshotcontents")


def when_marked(requests: list[str]) -> bool:
    return requests[-1].endswith("(trial)")


# --- tools ------------------------------------------------------------------------------------------------------------------


async def sends_another_replica_away(world: EmptyingWorld) -> None:
    """As the updater of a VerticalPodAutoscaler and a descheduler do."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "db-2", "namespace": NAMESPACE, "labels": BY}}
    await world.api.create_subresource(PODS, "db-2", "eviction", body, namespace=NAMESPACE)


async def scales_to_nothing(world: EmptyingWorld) -> None:
    """And back, as whoever stops a database for a moment."""
    await _scaled(world, 0)
    world.spawn("scaled", _scaled(world, 3, after=20.0))


async def _scaled(world: EmptyingWorld, replicas: int, *, after: float = 0.0) -> None:
    await asyncio.sleep(after)
    await world.api.patch(STATEFUL_SETS, "db", {"spec": {"replicas": replicas}}, namespace=NAMESPACE, content_type=MERGE_PATCH)


async def replaces_the_set(world: EmptyingWorld) -> None:
    """Leaves its pods, and makes it again with them: what a template says cannot be changed otherwise."""
    found = await world.api.get(STATEFUL_SETS, "db", namespace=NAMESPACE)
    await world.api.delete(STATEFUL_SETS, "db", namespace=NAMESPACE, propagation="Orphan")
    world.spawn("replaced", _made_again(world, found["spec"]))


async def _made_again(world: EmptyingWorld, spec: Any) -> None:
    await asyncio.sleep(10.0)
    made = await world.api.create(STATEFUL_SETS, {"metadata": {"name": "db"}, "spec": spec}, namespace=NAMESPACE)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": made["metadata"]["uid"], "controller": True}
    for pod in (await world.api.list_page(PODS, namespace=NAMESPACE, label_selector="app=db", limit=0)).items:
        adopted = {"metadata": {"ownerReferences": [owner]}}
        await world.api.patch(PODS, pod["metadata"]["name"], adopted, namespace=NAMESPACE, content_type=MERGE_PATCH)


async def rolls_out(world: EmptyingWorld) -> None:
    """By hand: such a rollout waits for no pod."""
    template = {"metadata": {"annotations": {"example.com/revision": "2"}}}
    change = {"spec": {"updateStrategy": {"type": "OnDelete"}, "template": template}}
    await world.api.patch(STATEFUL_SETS, "db", change, namespace=NAMESPACE, content_type=MERGE_PATCH)


async def registers_again(world: EmptyingWorld) -> None:
    """An autoscaler has deleted the Node before its machine, and the kubelet makes it again, with another uid and without taints."""
    found = (await world.api.get(KUBE_NODES, EMPTIED))["metadata"]
    await world.api.delete(KUBE_NODES, EMPTIED)
    labels = {key: value for key, value in found["labels"].items() if names.EVACUATION_STATE not in key}
    await world.api.create(KUBE_NODES, {"metadata": {"name": EMPTIED, "labels": labels}})
    await world.tell_ready(EMPTIED, "True")
    await world.api.patch(KUBE_NODES, EMPTIED, {"spec": {"taints": None}}, content_type=MERGE_PATCH)
    world.asked(EMPTIED, False)


# --- stories ----------------------------------------------------------------------------------------------------------------

WHILE_IT_LOOKS: Final = (sends_another_replica_away, scales_to_nothing, replaces_the_set, rolls_out)
TO_THE_END: Final = (sends_another_replica_away, scales_to_nothing, replaces_the_set)
"""By itself the set is whole again after these. For a rollout by hand somebody has to delete pods."""


@pytest.mark.parametrize("tool", WHILE_IT_LOOKS)
def test_no_data_is_deleted_where_a_tool_acts_while_the_locks_are_looked_at(tool: Tool) -> None:
    report = played(tool, after_the_pods_before_the_deletion)
    assert CLAIM_DELETED not in report.kinds, str(report)
    assert report.ok or tool not in TO_THE_END, str(report)


def test_no_data_is_deleted_where_a_tool_acts_while_a_long_list_of_snapshots_is_read() -> None:
    report = played(scales_to_nothing, at_the_snapshots, after=BUSY)
    assert report.ok, str(report)


def as_it_was(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks again."""

    async def decided(self: Looks, picture: Any, found: Any, facts: Any) -> Any:
        pod = next((pod for pod in facts.pods if pod.uid == found.target.pod_uid and pod.node), None)
        return DeleteClaims((), "") if pod is None else Evict(pod, (), "")

    patch.setattr(Looks, "again", decided)


@pytest.mark.parametrize("tool", WHILE_IT_LOOKS)
def test_it_is_noticed_when_nobody_looks_again_before_the_deletion(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        as_it_was(patch)
        report = played(tool, after_the_pods_before_the_deletion)
    assert CLAIM_DELETED in report.kinds, str(report)


def test_it_is_noticed_when_nobody_looks_again_after_a_long_list_of_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(acts_io, "_STILL_NEW", 10.0 * BUSY)
        report = played(scales_to_nothing, at_the_snapshots, after=BUSY)
    assert CLAIM_DELETED in report.kinds, str(report)


def test_no_mark_is_left_where_the_node_is_registered_again_under_another_uid() -> None:
    """Nothing else takes it off, and whoever empties the node later is told of the mark of another machine."""
    report = played(registers_again, when_marked)
    assert report.ok, str(report)


def test_it_is_noticed_when_the_mark_of_the_former_node_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ReprovisionDuty, "_stray", lambda self, picture: [])
        report = played(registers_again, when_marked)
    assert LEFT_BEHIND in report.kinds, str(report)
