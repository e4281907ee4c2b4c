"""What befalls the policy that labels claims, and the labels. Called by `plan_actions`."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hack.sim.cluster.claim_policy import BINDINGS, POLICIES, written
from hack.sim.world.label_events import BY_LABEL
from hack.sim.world.node import NAMESPACE
from sidecar.kube.api import CLAIMS, MERGE_PATCH, Resource
from sidecar.kube.errors import AlreadyExists, NotFound
from sidecar.model import names

if TYPE_CHECKING:
    from hack.sim.world.plan import PlannedEvent
    from hack.sim.world.world import World

_ANOTHER: Final = {"matchConditions": [{"name": "never", "expression": "false"}]}


async def in_force(world: "World", item: "PlannedEvent") -> None:
    await gone(world, item)
    for resource, body in zip((POLICIES, BINDINGS), written(), strict=True):
        with suppress(AlreadyExists):
            await world.api.create(resource, body)


async def gone(world: "World", item: "PlannedEvent") -> None:
    for resource in (POLICIES, BINDINGS):
        await _delete(world, resource)


async def unbound(world: "World", item: "PlannedEvent") -> None:
    await _delete(world, BINDINGS)


async def edited(world: "World", item: "PlannedEvent") -> None:
    with suppress(NotFound):
        await world.api.patch(POLICIES, names.CLAIM_POLICY, {"spec": _ANOTHER}, content_type=MERGE_PATCH)


async def relabelled(world: "World", item: "PlannedEvent") -> None:
    labels = {names.CLAIM_LABEL: item.detail or None}
    with suppress(NotFound):
        await world.api.patch(CLAIMS, item.whom, {"metadata": {"labels": labels}}, content_type=MERGE_PATCH, namespace=NAMESPACE)


async def scope(world: "World", item: "PlannedEvent") -> None:
    """Somebody rolls the node to the other scope."""
    node = world.nodes[item.whom]
    node.scope = BY_LABEL if item.detail == "labelled" else ()
    node.stop()


async def _delete(world: "World", resource: Resource) -> None:
    with suppress(NotFound):
        await world.api.delete(resource, names.CLAIM_POLICY)
