"""Carries out the events of a plan: what users, the weather and accidents do to a world. The table is at the end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from hack.sim.driver.faults import Fault
from hack.sim.driver.local_driver import POOL_PARAMETER
from hack.sim.world import hostile_actions, label_actions, label_events, roster_actions
from hack.sim.world.manners import CANARY, SECRET
from hack.sim.world.node import DRIVER, NAMESPACE
from hack.sim.world.plan import IMMEDIATE_CLASS, PlannedEvent
from hack.sim.world.plan_rolls import KILLED, PLACEMENTS, Program
from sidecar.csi.outcome import Code
from sidecar.kube.api import CLAIMS, CLASSES, PODS, Resource
from sidecar.kube.errors import AlreadyExists, NotFound
from sidecar.model.objects import IMMEDIATE, LATE, Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

_PATIENCE: Final = 1.0


async def carry_out(world: "World", item: PlannedEvent) -> None:
    await _TABLE[item.what](world, item)


def class_(name: str) -> Json:
    return _class(name, IMMEDIATE if name == IMMEDIATE_CLASS else LATE)


def secret() -> Json:
    """What drivers are handed for the volumes of guarded classes."""
    return {"metadata": {"name": SECRET}, "stringData": {"key": CANARY}}


def _class(name: str, mode: str, **parameters: str) -> Json:
    return {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode, "parameters": parameters}


async def _claim(world: "World", item: PlannedEvent) -> None:
    world.spawn(item.whom, _make(world, item))


async def _make(world: "World", item: PlannedEvent) -> None:
    """Creates the claim, and for late binding the pod that uses it."""
    await _make_one(world, CLAIMS, _claim_body(item))
    if item.detail != IMMEDIATE_CLASS:
        await _make_one(world, PODS, _pod_body(item.whom))


async def _make_one(world: "World", resource: Resource, body: Json) -> None:
    """Waits while an object of the same name is still being deleted, as controllers do."""
    while True:
        try:
            await world.api.create(resource, body, namespace=NAMESPACE)
            return
        except AlreadyExists:
            await asyncio.sleep(_PATIENCE)


async def _delete(world: "World", item: PlannedEvent) -> None:
    world.give_up(item.whom)
    for resource in (PODS, CLAIMS):
        try:
            await world.api.delete(resource, item.whom, namespace=NAMESPACE, grace_period_seconds=0)
        except NotFound:
            pass  # an Immediate claim has no pod, and a claim may be deleted twice


async def _class_away(world: "World", item: PlannedEvent) -> None:
    try:
        await world.api.delete(CLASSES, item.whom)
    except NotFound:
        pass  # it is gone already: two such spans may overlap


async def _class_back(world: "World", item: PlannedEvent) -> None:
    """Restores the class as it was at the start."""
    wanted = class_(item.whom)
    try:
        await world.api.create(CLASSES, wanted)
    except AlreadyExists:
        if (await world.api.get(CLASSES, item.whom))["volumeBindingMode"] != wanted["volumeBindingMode"]:
            await _make_anew(world, wanted)


async def _class_bids(world: "World", item: PlannedEvent) -> None:
    """Replaces a late-binding class by an Immediate one."""
    await _make_anew(world, _class(item.whom, IMMEDIATE))


async def _class_passes(world: "World", item: PlannedEvent) -> None:
    mode, _, pool = item.detail.partition(" ")
    if pool:
        await _make_anew(world, _class(item.whom, IMMEDIATE if mode == "immediate" else LATE, **{POOL_PARAMETER: pool}))
    else:
        await _class_away(world, item)


async def _make_anew(world: "World", body: Json) -> None:
    try:
        await world.api.delete(CLASSES, body["metadata"]["name"])
    except NotFound:
        pass
    await world.api.create(CLASSES, body)


async def _capacity_mute(world: "World", item: PlannedEvent) -> None:
    trouble = {"hang": 60.0} if item.detail == "hangs" else {"fail": Code[item.detail]}
    world.nodes[item.whom].strike(Fault(method="GetCapacity", **trouble))


async def _capacity_told(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].strike(None)


async def _foreign_capacity(world: "World", item: PlannedEvent) -> None:
    await world.foreign.make(item.whom, item.detail)


async def _meddle(world: "World", item: PlannedEvent) -> None:
    await world.foreign.meddle(item.whom, item.detail)


async def _kill(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].kill()


async def _doom(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].doom(int(item.number))


async def _stop(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].stop()


async def _placement(world: "World", item: PlannedEvent) -> None:
    node = world.nodes[item.whom]
    node.placement = PLACEMENTS[item.detail]
    node.stop()


async def _swap(world: "World", item: PlannedEvent) -> None:
    """Another program takes over, on the same driver and in the same folder."""
    node = world.nodes[item.whom]
    program, how = item.detail.split()
    node.program = Program(program)
    if how == KILLED:
        node.kill()
    else:
        node.stop()


async def _driver_away(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].driver_away()


async def _driver_back(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].driver_back()


async def _disk_full(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].folder.full = True


async def _disk_free(world: "World", item: PlannedEvent) -> None:
    world.nodes[item.whom].folder.full = False


async def _outage(world: "World", _: PlannedEvent) -> None:
    for name in world.nodes:
        world.take_down(name)


async def _recovery(world: "World", _: PlannedEvent) -> None:
    for name in world.nodes:
        world.bring_up(name)


async def _partition(world: "World", item: PlannedEvent) -> None:
    world.take_down(item.whom)


async def _healed(world: "World", item: PlannedEvent) -> None:
    world.bring_up(item.whom)


async def _compact(world: "World", _: PlannedEvent) -> None:
    world.cluster.compact()
    for name in world.nodes:
        world.network.break_connections(name)


async def _cut(world: "World", item: PlannedEvent) -> None:
    world.network.break_connections(item.whom)


async def _lag(world: "World", item: PlannedEvent) -> None:
    world.network.local_delay(item.whom, item.number)


_TABLE: Final[dict[str, Callable[["World", PlannedEvent], Awaitable[None]]]] = {
    "claim": _claim,
    "delete": _delete,
    "class away": _class_away,
    "class back": _class_back,
    "class bids": _class_bids,
    "class passes": _class_passes,
    "capacity mute": _capacity_mute,
    "capacity told": _capacity_told,
    "foreign capacity": _foreign_capacity,
    "meddle": _meddle,
    "kill": _kill,
    "doom": _doom,
    "stop": _stop,
    "placement": _placement,
    "swap": _swap,
    "driver away": _driver_away,
    "driver back": _driver_back,
    "disk full": _disk_full,
    "disk free": _disk_free,
    "outage": _outage,
    "recovery": _recovery,
    "partition": _partition,
    "healed": _healed,
    "compact": _compact,
    "cut": _cut,
    "lag": _lag,
    "lag over": _lag,
    "odd claim": hostile_actions.odd_claim,
    "odd claim gone": hostile_actions.odd_claim_gone,
    "manner": hostile_actions.manner,
    "clock jumps": hostile_actions.clock_jumps,
    "flags changed": hostile_actions.flags_changed,
    "class guarded": hostile_actions.class_guarded,
    "class keyless": hostile_actions.class_keyless,
    "flipped claim": hostile_actions.flipped_claim,
    "flips end": hostile_actions.flips_end,
    "forged line": hostile_actions.forged_line,
    "volume deleted": hostile_actions.volume_deleted,
    "volume relabelled": hostile_actions.volume_relabelled,
    label_events.IN_FORCE: label_actions.in_force,
    label_events.GONE: label_actions.gone,
    label_events.UNBOUND: label_actions.unbound,
    label_events.EDITED: label_actions.edited,
    label_events.RELABELLED: label_actions.relabelled,
    label_events.SCOPE: label_actions.scope,
    label_events.JOINS: roster_actions.joins,
    label_events.LEAVES: roster_actions.leaves,
    label_events.RENAMED: roster_actions.renamed,
    label_events.UNREGISTERED: roster_actions.unregistered,
    label_events.REGISTERED: roster_actions.registered,
    label_events.ROLLED: roster_actions.rolled,
    "retained": hostile_actions.retained,
    "gets up": hostile_actions.gets_up,
}


def _claim_body(item: PlannedEvent) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": item.whom, "namespace": NAMESPACE},
        "spec": {
            "storageClassName": item.detail,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{item.number:.0f}Gi"}},
        },
    }


def _pod_body(name: str) -> Json:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "main", "image": "none"}], "volumes": volumes},
    }
