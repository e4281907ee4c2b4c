"""Each lock of Reprovision is shut after the pod was evicted, when only the last look stands between that and the deletion of its claim.

What must not happen then is judged by the referee, which shares no rule with the product. Each guard is also left out, and noticed to be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import pytest

from hack.sim.drains.claim_referee import ALLOW, CLAIM_DELETED
from hack.sim.drains.emptying_actions import set_ready
from hack.sim.drains.emptying_plan import EVACUATE, REPROVISIONED, SET
from hack.sim.drains.emptying_world import EmptyingWorld
from hack.sim.drains.plan import GATED
from hack.sim.drains.reprovision_world import play
from hack.sim.drains.sender import SENDER
from hack.sim.world.network import Latency, Weather
from hack.sim.world.node import DRIVER, NAMESPACE
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report
from sidecar.drain.reprovision import acts_io, claim_locks, controller, locks, steps
from sidecar.drain.reprovision.acts_io import Acts
from sidecar.drain.reprovision.lock import Name
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.kube.api import NODES as KUBE_NODES
from sidecar.model import names
from sidecar.model.objects import Json

NODES: Final = ("n0", "n1", "n2", "n3")
QUICK: Final = Latency(0.02, 0.05)
Change = Callable[[EmptyingWorld, str], Awaitable[None]]
Breaks = Callable[[pytest.MonkeyPatch], None]


def emptied() -> Plan:
    """A set of three; the node of its first replica is emptied."""
    events = (PlannedEvent(2.0, SET, "db", 3.0, f"Parallel {REPROVISIONED} none"), PlannedEvent(60.0, "node of the first replica"))
    flags = (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", ALLOW)
    return Plan(1, NODES, weather=Weather(read=QUICK, write=QUICK), events=events, args=flags, settle=60.0)


def node_of(world: EmptyingWorld, pod: str) -> str:
    found = world.cluster.store.find(PODS, pod, NAMESPACE)
    assert found is not None
    return str(found["spec"]["nodeName"])


def nothing_before(world: EmptyingWorld, node: str) -> None:
    pass


def played(change: Change, *, arrives: Callable[[EmptyingWorld, str], None] = nothing_before) -> tuple[Report, int]:
    """The report, and how many claims were deleted. `change` is made when the first replica has been evicted, `arrives` right before."""
    worlds: list[EmptyingWorld] = []

    def prepare(world: EmptyingWorld) -> None:
        worlds.append(world)
        carry_out, post = world._carry_out, world.cluster.post
        where: list[str] = []
        changed: list[asyncio.Task[None]] = []

        async def at_its_node(item: PlannedEvent) -> None:
            if item.what == "node of the first replica":
                where.append(node_of(world, "db-0"))
                item = PlannedEvent(item.at, EVACUATE, where[0])
            await carry_out(item)

        def posted(resource: Resource, name: str, subresource: str, body: Mapping[str, Any], *, namespace: str = "") -> Json:
            first = subresource == "eviction" and SENDER.get() and name == "db-0" and not changed
            if first:
                arrives(world, where[0])
            answer = post(resource, name, subresource, body, namespace=namespace)
            if first:
                changed.append(asyncio.ensure_future(change(world, where[0])))
            return answer

        world._carry_out = at_its_node  # type: ignore[method-assign]
        world.cluster.post = posted  # type: ignore[method-assign]

    report = play(emptied(), before=prepare)
    return report, len(worlds[0].claims.seen)


# --- what happens after the eviction ----------------------------------------------------------------------------------------


async def _nothing(world: EmptyingWorld, node: str) -> None:
    await asyncio.sleep(0)


async def _claim(world: EmptyingWorld, meta: Json) -> None:
    await world.api.patch(CLAIMS, "data-db-0", {"metadata": meta}, namespace=NAMESPACE, content_type=MERGE_PATCH)


async def _set_of(world: EmptyingWorld, spec: Json) -> None:
    await world.api.patch(STATEFUL_SETS, "db", {"spec": spec}, namespace=NAMESPACE, content_type=MERGE_PATCH)


async def _another_word(world: EmptyingWorld, node: str) -> None:
    await _claim(world, {"annotations": {names.DRAIN_POLICY: "Block"}})


async def _finalizer(world: EmptyingWorld, node: str) -> None:
    claim = await world.api.get(CLAIMS, "data-db-0", namespace=NAMESPACE)
    await _claim(world, {"finalizers": [*claim["metadata"]["finalizers"], "example.com/keep"]})


async def _snapshot(world: EmptyingWorld, node: str) -> None:
    claim = await world.api.get(CLAIMS, "data-db-0", namespace=NAMESPACE)
    volume = await world.api.get(VOLUMES, claim["spec"]["volumeName"])
    source = {"volumeHandle": volume["spec"]["csi"]["volumeHandle"]}
    spec = {"driver": DRIVER, "deletionPolicy": "Delete", "source": source, "volumeSnapshotRef": {"name": "x", "namespace": NAMESPACE}}
    await world.api.create(SNAPSHOT_CONTENTS, {"metadata": {"name": "snapcontent-x"}, "spec": spec})


async def _condemned(world: EmptyingWorld, node: str) -> None:
    await _set_of(world, {"replicas": 2, "ordinals": {"start": 1}})


async def _rolls(world: EmptyingWorld, node: str) -> None:
    """The other pods wait for somebody to delete them."""
    template = {"metadata": {"annotations": {"example.com/revision": "2"}}}
    await _set_of(world, {"updateStrategy": {"type": "OnDelete"}, "template": template})


async def _not_ready(world: EmptyingWorld, node: str) -> None:
    await set_ready(world, "db-2", ready=False)


async def _undone(world: EmptyingWorld, node: str) -> None:
    """Its pod waits nevertheless: the node is kept from new pods for another reason."""
    taints = {"spec": {"taints": [{"key": "example.com/checked", "effect": "NoSchedule"}]}}
    await world.api.patch(KUBE_NODES, node, taints, content_type=MERGE_PATCH)
    world.asked(node, False)


async def _used(world: EmptyingWorld, node: str) -> None:
    """By a pod that no scheduler has placed."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    spec = {
        "nodeName": node,
        "containers": [{"name": "main", "image": "none"}],
        "volumes": volumes,
        "tolerations": [{"operator": "Exists"}],
    }
    await world.api.create(PODS, {"metadata": {"name": "rescue", "labels": {"app": "rescue"}}, "spec": spec}, namespace=NAMESPACE)


# --- what would keep the claim ----------------------------------------------------------------------------------------------


def _without(*left_out: Name) -> Breaks:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(locks, "LOCKS", tuple((name, check) for name, check in locks.LOCKS if name not in left_out))

    return breaks


def _no_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claim_locks, "kept_by", lambda contents: None)


def _undo_unseen(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Acts, picture: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(acts_io.Acts, "_undone", nothing)
    patch.setattr(controller, "is_under_way", lambda signals, picture: True)
    # The other two ask what follows from it: whether anything keeps the pod off, and where its claim could go.
    _without(Name.KEPT_OFF, Name.PLACE)(patch)


def _who_makes_it_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "_given_up", lambda view: "")
    _without(Name.MADE_AGAIN)(patch)


CASES: Final[dict[str, tuple[Change, Breaks]]] = {
    # Where a claim could go is looked at only if its policy lets it go.
    "another policy": (_another_word, _without(Name.POLICY, Name.PLACE)),
    "a foreign finalizer": (_finalizer, _without(Name.FINALIZERS)),
    "a snapshot": (_snapshot, _no_snapshots),
    "a condemned replica": (_condemned, _who_makes_it_is_not_asked),
    "a rollout": (_rolls, _without(Name.NOT_ROLLING)),
    "another replica is not ready": (_not_ready, _without(Name.REPLICAS)),
    "an undo": (_undone, _undo_unseen),
    "another pod uses it": (_used, _without(Name.NOBODY_ELSE)),
}


def test_where_nothing_happens_the_claim_is_deleted() -> None:
    report, count = played(_nothing)
    assert report.ok, str(report)
    assert count == 1


@pytest.mark.parametrize("name", CASES)
def test_the_claim_stays_when_a_lock_is_shut_after_the_eviction(name: str) -> None:
    report, _ = played(CASES[name][0])
    assert CLAIM_DELETED not in report.kinds, str(report)


def test_nobody_is_blamed_for_an_eviction_that_was_on_its_way_when_it_was_undone() -> None:
    def undo(world: EmptyingWorld, node: str) -> None:
        world.asked(node, False)
        world.cluster.patch(KUBE_NODES, node, {"spec": {"taints": None}}, content_type=MERGE_PATCH)

    report, count = played(_nothing, arrives=undo)
    assert report.ok, str(report)
    assert count == 0


@pytest.mark.parametrize("name", CASES)
def test_a_guard_that_is_missing_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, breaks = CASES[name]
    with monkeypatch.context() as patch:
        breaks(patch)
        report, _ = played(change)
    assert CLAIM_DELETED in report.kinds, str(report)
