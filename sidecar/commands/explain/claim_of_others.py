"""`explain pvc` where another program provisions (`--provisioning=false`): where the claim's volume is. Nothing is done with it."""

from sidecar.drain.facts.locations import maker_of
from sidecar.drain.facts.volume_map import VolumeMap
from sidecar.drain.wording import first_few
from sidecar.kube.api import NODES, VOLUMES, KubeApi, find, records
from sidecar.model.nodes import Node
from sidecar.model.objects import Claim, Volume

DECISION = "Ignore"
_NOWHERE = "none that lives, by its affinity or its maker"


async def rows(kube: KubeApi, claim: Claim) -> dict[str, str]:
    """About its volume."""
    if not claim.volume_name:
        return {"volume": "none yet"}
    found = await find(kube, VOLUMES, claim.volume_name)
    if found is None:
        return {"volume": f"{claim.volume_name}: not there"}
    volume = Volume.of(found)
    nodes = [node async for node in records(kube, NODES, Node.of, cached=True)]
    return {
        "volume": f"{volume.name}: {volume.phase}, of {volume.driver}, made by {volume.provisioned_by or 'hand'}",
        "volume is on": _place(volume, VolumeMap(nodes, [volume]), {node.name for node in nodes}),
    }


def _place(volume: Volume, nodes: VolumeMap, living: set[str]) -> str:
    if reached := nodes.reached_by(volume):
        return first_few(reached)
    maker = maker_of(volume)
    return maker if maker in living else _NOWHERE


def why(claim: Claim, driver: str) -> str:
    if not claim.volume_name and claim.provisioner == driver:
        return "report only: the driver's own provisioner makes the volume; until then the claim may keep its node from being retired"
    return "report only: no claim is touched here; `explain node` says what its volume means for the node"
