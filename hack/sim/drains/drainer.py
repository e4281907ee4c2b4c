"""A drainer, as kubectl, Cluster API and kured drain: cordon, list the pods, evict each until it is gone; then switch off, or reboot."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hack.sim.drains.evictions import BY
from sidecar.kube.api import MERGE_PATCH, NODES, PODS
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

_RETRY: Final = 5.0

_REBOOT: Final = 40.0
KURED: Final = names.KURED_REBOOTS


@dataclass(slots=True)
class Drain:
    """One drain of one node."""

    node: str
    reboots: bool
    announces: str = ""
    """What the drainer says before it cordons: an annotation's key, `taint`, or nothing."""
    forgets: bool = False
    """It leaves its annotation on the node."""
    done: bool = False
    left: list[str] = field(default_factory=list)


async def drain(world: "DrainWorld", order: Drain) -> None:
    """Until the node is empty; then what the drainer came for."""
    await _announce(world, order)
    await cordon(world, order.node, cordoned=True)
    order.left = [_key(pod) for pod in await _pods(world, order.node)]
    world.transcript.tell("drainer", f"drains {order.node}, {'to reboot' if order.reboots else 'for good'}: {', '.join(order.left)}")
    while order.left:
        for key in list(order.left):
            await _evict(world, order, key)
        await asyncio.sleep(_RETRY)
        there = {_key(pod): pod for pod in await _pods(world, order.node)}
        order.left = [key for key in order.left if key in there and not _counts_as_gone(world, order.node, there[key])]
    order.done = True
    world.transcript.tell("drainer", f"has drained {order.node}")
    if order.reboots:
        await _reboot(world, order)
    else:
        world.referee.ended(order.node)
        await world.switch_off(order.node)


async def cordon(world: "DrainWorld", node: str, *, cordoned: bool) -> None:
    await change(world, node, {"spec": {"unschedulable": True if cordoned else None}})
    if cordoned:
        world.cordoned(node)
    else:
        world.uncordoned(node)


async def annotate(world: "DrainWorld", node: str, key: str, text: str | None) -> None:
    """kured writes when it saw that a reboot is needed."""
    said = world.cluster.now() if key == KURED and text is not None else text
    await change(world, node, {"metadata": {"annotations": {key: said}}})
    if key in (KURED, names.DRAIN_INTENT):
        world.announced(node, text is not None and text != "retire")


async def change(world: "DrainWorld", node: str, patch: Json) -> None:
    try:
        await world.api.patch(NODES, node, patch, content_type=MERGE_PATCH)
    except NotFound:
        pass  # it has been switched off or renamed meanwhile


async def _announce(world: "DrainWorld", order: Drain) -> None:
    if order.announces == "taint":
        taint = {"key": names.EVACUATE_TAINT, "value": "reboot" if order.reboots else "retire", "effect": "NoSchedule"}
        await change(world, order.node, {"spec": {"taints": [taint]}})
        world.announced(order.node, order.reboots)
    elif order.announces:
        await annotate(world, order.node, order.announces, "reboot" if order.reboots else "retire")


async def _evict(world: "DrainWorld", order: Drain, key: str) -> None:
    namespace, name = key.split("/")[:2]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace, "labels": BY}}
    try:
        await world.api.create_subresource(PODS, name, "eviction", body, namespace=namespace)
    except ApiError:
        return  # 429 while a budget forbids it, 404 if it is gone, 500 if two budgets select it: the next round shows
    world.transcript.tell("drainer", f"evicted {name} from {order.node}")


async def _reboot(world: "DrainWorld", order: Drain) -> None:
    node = world.nodes[order.node]
    node.lay_down()
    await asyncio.sleep(_REBOOT)
    node.get_up()
    if order.announces and not order.forgets:
        if order.announces == "taint":
            await change(world, order.node, {"spec": {"taints": None}})
        else:
            await annotate(world, order.node, order.announces, None)
    await asyncio.sleep(_RETRY)
    await cordon(world, order.node, cordoned=False)
    world.drains.pop(order.node, None)


async def _pods(world: "DrainWorld", node: str) -> list[Json]:
    return (await world.api.list_page(PODS, field_selector=f"spec.nodeName={node}", limit=0)).items


def _key(pod: Json) -> str:
    meta = pod["metadata"]
    return f"{meta['namespace']}/{meta['name']}/{meta['uid']}"


def _counts_as_gone(world: "DrainWorld", node: str, pod: Json) -> bool:
    return node in world.silent and bool(pod["metadata"].get("deletionTimestamp"))
