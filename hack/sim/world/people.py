"""Who drains nodes, and who owns what is on them.

A drainer does as kubectl, Cluster API and kured do: cordon, list the pods, evict each until it is gone; then switch off, or reboot. At
the end of a world owners give up all that is left.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hack.sim.world import strangers
from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NODES, PODS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

BY: Final = {"example.com/by": "drainer"}
"""The label of evictions that are not a sidecar's."""
KURED: Final = names.KURED_REBOOTS
_RETRY: Final = 5.0
_REBOOT: Final = 40.0
_ENDED: Final = 60.0


@dataclass(slots=True)
class Drain:
    """One drain of one node."""

    node: str
    reboots: bool
    announces: str = ""
    """What the drainer says before it cordons: an annotation's key, `taint`, or nothing."""
    done: bool = False
    left: list[str] = field(default_factory=list)


async def drain(world: "World", order: Drain) -> None:
    """Until the node is empty; then what the drainer came for."""
    await _announce(world, order, "reboot" if order.reboots else "retire")
    await change(world, order.node, {"spec": {"unschedulable": True}})
    order.left = [_key(pod) for pod in await _pods(world, order.node)]
    world.transcript.tell("drainer", f"drains {order.node}, {'to reboot' if order.reboots else 'for good'}: {', '.join(order.left)}")
    while order.left:
        for key in list(order.left):
            await _evict(world, order, key)
        await asyncio.sleep(_RETRY)
        there = {_key(pod) for pod in await _pods(world, order.node)}
        order.left = [key for key in order.left if key in there]
    order.done = True
    world.transcript.tell("drainer", f"has drained {order.node}")
    if order.reboots:
        await _reboot(world, order)
    else:
        world.verdicts.ended(order.node)
        await world.switch_off(order.node)


async def change(world: "World", node: str, patch: Json) -> None:
    with suppress(NotFound):  # it has been switched off meanwhile
        await world.api.patch(NODES, node, patch, content_type=MERGE_PATCH)


async def _announce(world: "World", order: Drain, says: str | None) -> None:
    """None: not any more."""
    if order.announces == "taint":
        taints = [{"key": names.EVACUATE_TAINT, "value": says, "effect": "NoSchedule"}] if says else None
        await change(world, order.node, {"spec": {"taints": taints}})
    elif order.announces:
        text = world.cluster.now() if says and order.announces == KURED else says  # kured writes when it saw that a reboot is needed
        await change(world, order.node, {"metadata": {"annotations": {order.announces: text}}})


async def _evict(world: "World", order: Drain, key: str) -> None:
    namespace, name = key.split("/")[:2]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace, "labels": BY}}
    try:
        await world.api.create_subresource(PODS, name, "eviction", body, namespace=namespace)
    except ApiError:
        return  # 429 while a budget forbids it, 404 if it is gone, 500 if two budgets select it: the next round shows
    world.transcript.tell("drainer", f"evicted {name} from {order.node}")


async def _reboot(world: "World", order: Drain) -> None:
    node = world.nodes[order.node]
    node.lay_down()
    await asyncio.sleep(_REBOOT)
    node.get_up()
    await _announce(world, order, None)
    await asyncio.sleep(_RETRY)
    await change(world, order.node, {"spec": {"unschedulable": None}})
    world.drains.pop(order.node, None)


async def _pods(world: "World", node: str) -> list[Json]:
    return (await world.api.list_page(PODS, field_selector=f"spec.nodeName={node}", limit=0)).items


def _key(pod: Json) -> str:
    meta = pod["metadata"]
    return f"{meta['namespace']}/{meta['name']}/{meta['uid']}"


# --- owners ---------------------------------------------------------------------------------------------------------------


async def give_up(world: "World") -> None:
    """Who owns something deletes it, and acknowledges what is kept nevertheless, as soon as nobody uses it any more."""
    for resource in (STATEFUL_SETS, CLAIMS):
        for meta in [found["metadata"] for found in world.cluster.store.all_of(resource)]:
            if not meta["name"].startswith(strangers.NAME):
                with suppress(NotFound):
                    await world.api.delete(resource, meta["name"], namespace=meta["namespace"])
    await asyncio.sleep(_ENDED)
    for volume in list(world.cluster.store.all_of(VOLUMES)):
        if volume["spec"]["csi"]["driver"] == DRIVER:
            await acknowledge(world, volume["metadata"]["name"])


async def acknowledge(world: "World", volume: str) -> None:
    with suppress(NotFound):  # deleted meanwhile
        await merge(world, VOLUMES, volume, {"metadata": {"annotations": {names.ACKNOWLEDGED: f"by the owner, at {world.clock():.0f}"}}})


async def merge(world: "World", resource: Resource, name: str, patch: Json) -> None:
    await world.api.patch(resource, name, patch, content_type=MERGE_PATCH, namespace=NAMESPACE if resource.namespaced else "")


def claim_of(name: str, class_: str, notes: Json | None = None, *, size: str = "1Gi") -> Json:
    spec = {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name, "annotations": notes or {}}, "spec": spec}


def pod_spec(*claims: str) -> Json:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {"containers": [{"name": "main", "image": "none"}], "volumes": volumes}


def set_of(name: str, pod: Json, *, replicas: int = 1) -> Json:
    labels = {"app": name}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return {"metadata": {"name": name}, "spec": spec}
