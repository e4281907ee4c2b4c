"""Who drains nodes, and who owns what is on them.

A drainer does as kubectl, Cluster API and kured do: cordon, list the pods, evict each until it is gone; then switch off, or reboot. At
the end of a world owners give up all that is left, each in a way of his own.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NODES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Resource
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
_WAYS: Final = ("delete", "ignore", "acknowledge", "idle by name")
_PLAIN: Final[Json] = dict.fromkeys((names.DRAIN_POLICY, names.DRAIN_POLICY_RETIRE, names.DRAIN_POLICY_REBOOT))


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
    await _announce(world, order)
    await change(world, order.node, {"spec": {"unschedulable": True}})
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
        world.verdicts.ended(order.node)
        await world.switch_off(order.node)


async def change(world: "World", node: str, patch: Json) -> None:
    with suppress(NotFound):  # it has been switched off meanwhile
        await world.api.patch(NODES, node, patch, content_type=MERGE_PATCH)


async def _announce(world: "World", order: Drain) -> None:
    says = "reboot" if order.reboots else "retire"
    if order.announces == "taint":
        await change(world, order.node, {"spec": {"taints": [{"key": names.EVACUATE_TAINT, "value": says, "effect": "NoSchedule"}]}})
    elif order.announces:
        text = world.cluster.now() if order.announces == KURED else says  # kured writes when it saw that a reboot is needed
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
    if order.announces == "taint":
        await change(world, order.node, {"spec": {"taints": None}})
    elif order.announces:
        await change(world, order.node, {"metadata": {"annotations": {order.announces: None}}})
    await asyncio.sleep(_RETRY)
    await change(world, order.node, {"spec": {"unschedulable": None}})
    world.drains.pop(order.node, None)


async def _pods(world: "World", node: str) -> list[Json]:
    return (await world.api.list_page(PODS, field_selector=f"spec.nodeName={node}", limit=0)).items


def _key(pod: Json) -> str:
    meta = pod["metadata"]
    return f"{meta['namespace']}/{meta['name']}/{meta['uid']}"


def _counts_as_gone(world: "World", node: str, pod: Json) -> bool:
    return node in world.silent and bool(pod["metadata"].get("deletionTimestamp"))


# --- owners ---------------------------------------------------------------------------------------------------------------


async def stop_work(world: "World", dice: random.Random) -> dict[str, str]:
    """How each workload's owner gives its volume up. What is not ignored is no longer used."""
    ways = {}
    for workload in await _all(world, STATEFUL_SETS):
        name = workload["metadata"]["name"]
        way = ways[name] = dice.choice(_WAYS)
        world.transcript.tell("people", f"{name}: {way}")
        if way == "delete":
            await _delete(world, STATEFUL_SETS, name)
            await _delete(world, CLAIMS, name)
        elif way == "ignore":
            await _word(world, name, {names.DRAIN_POLICY: "Ignore"})
        else:
            await merge(world, STATEFUL_SETS, name, {"spec": {"replicas": 0}})
    return ways


async def give_up(world: "World", ways: dict[str, str]) -> None:
    """To be called when no pod is left that was told to end."""
    for name, way in ways.items():
        if way == "idle by name":
            await _word(world, name, {names.DRAIN_POLICY_RETIRE: "AllowIdle"})
    claims = {claim["metadata"]["name"] for claim in await _all(world, CLAIMS)}
    for volume in await _all(world, VOLUMES):
        claim = (volume["spec"].get("claimRef") or {}).get("name", "")
        places = _places(volume)
        placed = bool(places) and places <= world.nodes.keys()
        enough = claim in claims and (ways.get(claim) == "ignore" or (ways.get(claim) == "idle by name" and placed))
        if volume["spec"]["csi"]["driver"] == DRIVER and not enough:
            await acknowledge(world, VOLUMES, volume["metadata"]["name"])
    for content in await _all(world, SNAPSHOT_CONTENTS):
        await acknowledge(world, SNAPSHOT_CONTENTS, content["metadata"]["name"])


async def acknowledge(world: "World", resource: Resource, name: str) -> None:
    with suppress(NotFound):  # deleted meanwhile
        await merge(world, resource, name, {"metadata": {"annotations": {names.ACKNOWLEDGED: f"by the owner, at {world.clock():.0f}"}}})


async def merge(world: "World", resource: Resource, name: str, patch: Json) -> None:
    await world.api.patch(resource, name, patch, content_type=MERGE_PATCH, namespace=NAMESPACE if resource.namespaced else "")


def _places(volume: Json) -> set[str]:
    """The nodes that its affinity names."""
    terms = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    return {value for term in terms for item in term.get("matchExpressions", ()) for value in item.get("values", ())}


async def _word(world: "World", claim: str, notes: Json) -> None:
    with suppress(NotFound):  # it had been deleted before
        await merge(world, CLAIMS, claim, {"metadata": {"annotations": _PLAIN | notes}})


async def _delete(world: "World", resource: Resource, name: str) -> None:
    with suppress(NotFound):
        await world.api.delete(resource, name, namespace=NAMESPACE)


async def _all(world: "World", resource: Resource) -> list[Json]:
    return (await world.api.list_page(resource, limit=0)).items
