"""What must hold of every process at rest, whatever tenants, drivers and others in the journal's folder have tried. Each is one function.

What worlds cannot show, because their doors are not made of bytes: how large a body, a page, an event or a journal may be.
"""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from hack.sim.world.manners import SECRET
from hack.sim.world.node import Node
from hack.sim.world.upstream_excuses import believed
from sidecar.kube.api import VOLUMES
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

KEPT: Final = "kept"
BELIEVED: Final = "a driver was believed"
PRIED: Final = "a Secret was read that no class names"
COUNTED: Final = "somebody's word is a series"
DESTROYED: Final = "data that somebody kept was deleted"

_LARGEST_CLAIM: Final = 16 * 2**10
_MOST_PLACES: Final = 1000
_RING: Final = 2**20
_LABELS: Final = {"source": frozenset({"", "PersistentVolumeClaim", "VolumeSnapshot", "other"})}

Found = Callable[[str, str], None]


async def bounded(world: "World", classes: set[str]) -> None:
    """`classes`: those that exist."""
    for node in world.nodes.values():
        nothing_large_is_held(node, world.found)
        deletions_are_forgotten(node, world.found)
        series_are_of_what_exists(node, classes, world.found)
    only_named_secrets(world)
    volumes_of_a_size((await world.api.list_page(VOLUMES, limit=0)).items, world.found)


def nothing_large_is_held(node: Node, found: Found) -> None:
    if node.sidecar is None or node.tools is None:
        return  # told elsewhere
    for claim in node.sidecar.caches.claims.values():
        if len(claim.whole) > _LARGEST_CLAIM:
            found(KEPT, f"{node.name} holds all {len(claim.whole)} bytes of claim {claim.full_name}")
    ring = sum(entry.size for entry in node.tools.decisions._entries.values())
    if ring > _RING:
        found(KEPT, f"{node.name} holds decisions of {ring} bytes")


def deletions_are_forgotten(node: Node, found: Found) -> None:
    if node.sidecar is None:
        return
    for name in node.sidecar.provisioning.room.removal._emptying:
        if name not in node.sidecar.caches.volumes:
            found(KEPT, f"{node.name} still keeps when it began to delete volume {name}, which is gone")


def series_are_of_what_exists(node: Node, classes: set[str], found: Found) -> None:
    """A series is kept as long as its process lives, so no tenant's word may make one."""
    if node.tools is None:
        return
    allowed = {**_LABELS, "class": {*classes, "", "other"}}
    for family in node.tools.metrics.families():
        for sample in family.samples:
            for label, words in allowed.items():
                if sample.labels.get(label, "") not in words:
                    found(COUNTED, f"{node.name} has {sample.name} of {label} {sample.labels[label]!r}")


def only_named_secrets(world: "World") -> None:
    for node, name in sorted(world.request_log.secrets):
        if name != SECRET:
            world.found(PRIED, f"{node} asked for Secret {name}")


def volumes_of_a_size(volumes: list[Json], found: Found) -> None:
    for item in volumes:
        terms = ((item["spec"].get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
        if len(terms) > _MOST_PLACES and not believed(item):
            found(BELIEVED, f"PersistentVolume {item['metadata']['name']} lies in {len(terms)} places")


def kept_data_is_there(nodes: Iterable[Node], retained: Collection[str], found: Found) -> None:
    there = {volume.id for node in nodes for volume in node.driver.volumes()}
    for handle in sorted({*retained} - there):
        found(DESTROYED, f"volume {handle} is gone")
