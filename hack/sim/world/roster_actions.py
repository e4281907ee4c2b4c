"""Machines that join a world, leave it or come back under another name, and nodes that change their program or scope. Called by
`plan_actions`."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hack.sim.world.label_events import BY_LABEL, LABELLED, STAYS_LISTED, UPSTREAM
from hack.sim.world.node import Node, csi_node
from hack.sim.world.plan_rolls import KILLED, PLACEMENTS, RANKED, Program
from sidecar.kube.api import CSI_NODES
from sidecar.kube.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from hack.sim.world.plan import PlannedEvent
    from hack.sim.world.world import World

_SECONDS_TO_COME_BACK: Final = 20.0


async def joins(world: "World", item: "PlannedEvent") -> None:
    node = Node(world, item.whom)
    node.placement = PLACEMENTS[RANKED]
    _becomes(node, item.detail)
    await world.admit(node)


async def leaves(world: "World", item: "PlannedEvent") -> None:
    await world.dismiss(item.whom, stays_listed=item.detail == STAYS_LISTED)


async def renamed(world: "World", item: "PlannedEvent") -> None:
    """It comes back with its disks, and with what stands on them, under another name."""
    former = await world.dismiss(item.whom)
    node = Node(world, item.detail, driver=former.driver)
    node.folder, node.placement, node.program, node.scope = former.folder, former.placement, former.program, former.scope
    node.former_names, node.last_hands = former.all_names, former.last_hands
    node.joins_at = _SECONDS_TO_COME_BACK
    await world.admit(node)


async def unregistered(world: "World", item: "PlannedEvent") -> None:
    """Its driver is, although its sidecar may run."""
    with suppress(NotFound):
        await world.api.delete(CSI_NODES, item.whom)


async def registered(world: "World", item: "PlannedEvent") -> None:
    with suppress(AlreadyExists):
        await world.api.create(CSI_NODES, csi_node(item.whom))


async def rolled(world: "World", item: "PlannedEvent") -> None:
    node = world.nodes[item.whom]
    program, how = item.detail.split()
    _becomes(node, program)
    if how == KILLED:
        node.kill()
    else:
        node.stop()


def _becomes(node: Node, program: str) -> None:
    node.program = Program.UPSTREAM if program == UPSTREAM else Program.OURS
    node.scope = BY_LABEL if program == LABELLED else ()
