"""The owners, at the end: they give up all that is left, each in a way of his own, and take no lie, orphan or forgotten word away."""

import random
from typing import TYPE_CHECKING, Final

from hack.sim.drains import plan
from hack.sim.drains.actions import acknowledge, merge
from hack.sim.world.node import DRIVER, NAMESPACE
from sidecar.kube.api import CLAIMS, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

_WAYS: Final = ("delete", "ignore", "acknowledge", "idle by name")
_PLAIN: Final[Json] = dict.fromkeys((names.DRAIN_POLICY, names.DRAIN_POLICY_RETIRE, names.DRAIN_POLICY_REBOOT))


async def stop_work(world: "DrainWorld", dice: random.Random) -> dict[str, str]:
    """How each workload's owner gives its volume up. What is not ignored is no longer used. Where tenants are not heeded, an owner may say
    at the same time that no reboot is wanted."""
    ways = {}
    for workload in await _all(world, STATEFUL_SETS):
        name = workload["metadata"]["name"]
        way = ways[name] = dice.choice(_WAYS)
        world.transcript.tell("people", f"{name}: {way}")
        if way == "delete":
            await _delete(world, STATEFUL_SETS, name)
            await _delete(world, CLAIMS, name)
        elif way == "ignore":
            in_vain = not world.heeds_tenants and await _class_of(world, name) != plan.FIRM
            await _word(world, name, {names.DRAIN_POLICY: "Ignore"} | ({names.DRAIN_POLICY_REBOOT: "Block"} if in_vain else {}))
        else:
            await merge(world, STATEFUL_SETS, name, {"spec": {"replicas": 0}})
    for pod in await _all(world, PODS):
        if not pod["metadata"].get("ownerReferences") and pod["spec"].get("nodeName"):
            await _delete(world, PODS, pod["metadata"]["name"])
    return ways


async def give_up(world: "DrainWorld", ways: dict[str, str]) -> None:
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
            await _try_acknowledge(world, VOLUMES, volume["metadata"]["name"])
    for content in await _all(world, SNAPSHOT_CONTENTS):
        await _try_acknowledge(world, SNAPSHOT_CONTENTS, content["metadata"]["name"])


async def _class_of(world: "DrainWorld", claim: str) -> str:
    try:
        return str((await world.api.get(CLAIMS, claim, namespace=NAMESPACE))["spec"].get("storageClassName", ""))
    except NotFound:
        return ""


def _places(volume: Json) -> set[str]:
    """The nodes that its affinity names."""
    terms = ((volume["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    return {value for term in terms for item in term.get("matchExpressions", ()) for value in item.get("values", ())}


async def _word(world: "DrainWorld", claim: str, notes: Json) -> None:
    try:
        await merge(world, CLAIMS, claim, {"metadata": {"annotations": _PLAIN | notes}})
    except NotFound:
        pass  # it had been deleted before


async def _try_acknowledge(world: "DrainWorld", resource: Resource, name: str) -> None:
    try:
        await acknowledge(world, resource, name)
    except NotFound:
        pass  # deleted meanwhile


async def _delete(world: "DrainWorld", resource: Resource, name: str) -> None:
    try:
        await world.api.delete(resource, name, namespace=NAMESPACE)
    except NotFound:
        pass


async def _all(world: "DrainWorld", resource: Resource) -> list[Json]:
    return (await world.api.list_page(resource, limit=0)).items
