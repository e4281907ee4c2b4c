"""Watches claims and volumes while a world runs, and reports what must not be the case even for a moment."""

from typing import TYPE_CHECKING, Final

from hack.sim.cluster import Call
from hack.sim.world import strangers
from hack.sim.world.node import DRIVER
from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

TWO_OWNERS: Final = "two owners"
HOLLOW: Final = "hollow"
TAKEN_AWAY: Final = "taken away"
NOT_ITS_OWN: Final = "acted on another's claim"
_MAY_GO: Final = ("Released", "Failed")


class Claims:
    """To be told of every change and of what drivers do."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._owners: dict[str, str] = {}
        """By uid of a claim: the node that has it."""
        self._owned: set[tuple[str, str]] = set()
        """Every claim with each node that has ever had it."""
        self._made: set[str] = set()
        """Handles of volumes that drivers have made."""

    def created(self, node: str, name: str) -> None:
        """Its driver has made that volume, or had it already, because the node asked for it: the claim is that node's, or was."""
        self._made.update(volume.id for volume in self._world.nodes[node].driver.volumes())
        owners = {owner for uid, owner in self._owned if names.is_volume_name(name, uid)}
        if owners and node not in owners:
            self._world.found(NOT_ITS_OWN, f"{node} asked for {name}, of which the owners were {sorted(owners)}")

    def deleted(self, handle: str) -> None:
        """A driver has deleted that volume, or had none."""
        for volume in self._world.cluster.store.all_of(VOLUMES):
            if (volume["spec"].get("csi") or {}).get("volumeHandle") != handle or volume["metadata"].get("deletionTimestamp"):
                continue
            uid = (volume["spec"].get("claimRef") or {}).get("uid")
            there = any(claim["metadata"]["uid"] == uid for claim in self._world.cluster.store.all_of(CLAIMS))
            if there and (volume.get("status") or {}).get("phase") not in _MAY_GO:
                self._world.found(TAKEN_AWAY, f"{handle} was deleted, and {volume['metadata']['name']} names it for its claim")

    def heard(self, call: Call) -> None:
        resource = next((each for each in (CLAIMS, VOLUMES) if each == call.resource), None)
        found = self._world.cluster.store.find(resource, call.name, call.namespace) if resource else None
        if found is None or strangers.is_one(found):
            return
        if call.resource == CLAIMS:
            self._look_at_claim(found)
        elif found["spec"]["csi"]["driver"] == DRIVER:
            self._look_at_volume(found)

    def _look_at_claim(self, claim: Json) -> None:
        """An owner may give a claim back, but no other node may take it over."""
        uid, owner = claim["metadata"]["uid"], (claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, "")
        before = self._owners.get(uid, "")
        if owner and before and owner != before:
            self._world.found(TWO_OWNERS, f"claim {claim['metadata']['name']} was {before}'s and became {owner}'s")
        self._owners[uid] = owner
        self._owned.add((uid, owner))

    def _look_at_volume(self, volume: Json) -> None:
        """A PersistentVolume may outlive its volume for a while, but must not exist before it."""
        handle = volume["spec"]["csi"]["volumeHandle"]
        if handle not in self._made:
            self._world.found(HOLLOW, f"PersistentVolume {volume['metadata']['name']} names volume {handle}, which never was")
            self._made.add(handle)  # said once
