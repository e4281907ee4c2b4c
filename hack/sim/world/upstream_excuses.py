"""What upstream does wrong by itself, so that nothing is said of it in worlds where it runs. Each excuse is one function, and narrow: it
asks which program had the thing in hand last, on that very node.
"""

from typing import TYPE_CHECKING

from hack.sim.driver.state import LocalVolume
from hack.sim.world.node import Node
from hack.sim.world.plan_rolls import Program
from hack.sim.world.request_log import Window
from hack.sim.world.upstream_objects import MARK
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World


def left_behind(world: "World") -> frozenset[str]:
    """Handles of volumes."""
    return frozenset(
        volume.id
        for node in world.nodes.values()
        for volume in node.driver.volumes()
        if forgotten(world, node, volume) or waits_for_ours(world, node, volume)
    )


def forgotten(world: "World", node: Node, volume: LocalVolume) -> bool:
    """Upstream keeps no journal and believes whatever its driver says at last: it was the last on that machine, whatever its name was then,
    to ask for the volume, or to have it made, and no PersistentVolume has ever named it."""
    return node.last_hands.get(volume.name) is Program.UPSTREAM and not world.referee.was_named(volume.id)


def waits_for_ours(world: "World", node: Node, volume: LocalVolume) -> bool:
    """Our program had begun it and upstream runs there now: the line stays in the journal until ours is back."""
    begun = any(begun.request.name == volume.name for begun in node.folder.begun.values())
    return begun and node.runs is Program.UPSTREAM and not world.referee.was_named(volume.id)


def believed(volume: Json) -> bool:
    """Upstream stores what its driver says of a volume: in how many places it lies, and in its context who made it."""
    return MARK in (volume["metadata"].get("annotations") or {})


def made_second(world: "World", volumes: list[Json]) -> frozenset[str]:
    """Names of PersistentVolumes. Upstream looks for a claim's under the name that it would give it, so where flags have changed it makes
    another one. Ours looks under any name, so one that ours stored as the second is not excused."""
    first: dict[str, str] = {}
    seconds = []
    for volume in sorted(volumes, key=lambda item: world.referee.when_named(item["spec"]["csi"]["volumeHandle"])):
        name, uid = volume["metadata"]["name"], (volume["spec"].get("claimRef") or {}).get("uid", "")
        if first.setdefault(uid, name) != name and believed(volume):
            seconds.append(name)
    return frozenset(seconds)


def misled(world: "World") -> frozenset[str]:
    """Names of nodes. Of a capacity object that somebody has made again under its name while its watch was broken, upstream deletes the
    second one and writes to the first one for ever."""
    again = {item.whom for item in world.plan.events if item.what == "meddle" and item.detail == "recreate"}
    return frozenset(node.name for node in world.nodes.values() if node.name in again and node.runs is Program.UPSTREAM)


def in_a_window(node: Node, window: Window) -> bool:
    """Upstream asks an API server that is away as often as it likes."""
    return node.ran_upstream(window.begun, float("inf") if window.ended is None else window.ended)
