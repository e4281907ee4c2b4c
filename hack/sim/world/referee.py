"""Watches a world while it runs, and reports what must not be the case even for a moment."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from hack.sim.driver.local_driver import LocalDriver
from hack.sim.world import foreign_objects
from sidecar.kube.api import CLAIMS, VOLUMES, KubeApi, Resource, WatchEvent
from sidecar.kube.errors import ApiError
from sidecar.model import names
from sidecar.model.objects import Json

TWO_OWNERS: Final = "two owners"
TWO_VOLUMES: Final = "two volumes"
HOLLOW: Final = "hollow"
TAKEN_AWAY: Final = "taken away"
NOT_ITS_OWN: Final = "acted on another's claim"
_MAY_GO: Final = ("Released", "Failed")

Found = Callable[[str, str], None]


class Referee:
    """Sees every version of every claim and volume, without delay."""

    def __init__(self, api: KubeApi, drivers: dict[str, LocalDriver], found: Found) -> None:
        self._api = api
        self.drivers = drivers
        """By node."""
        self._found = found
        self._owners: dict[str, str] = {}
        self._owned: set[tuple[str, str]] = set()
        """Every claim with each node that has ever had it."""
        self._made: set[str] = set()
        self._named: dict[str, Json] = {}
        """The PersistentVolume of each handle, as it is now."""
        self._were_named: dict[str, int] = {}
        """Every handle that a PersistentVolume has ever had, by order."""
        self._claims: set[str] = set()
        self.on_taken: Callable[[Json, str], None] = lambda claim, node: None
        """Called when a claim has become that node's."""
        self._late: set[str] = set()
        """Handles of volumes that a driver has made after it had said that it could not."""

    def created(self, name: str) -> None:
        """A driver has made that volume, or had it already. A node that has lost the claim asks its driver for what it had begun, and the
        driver may make it only then: that it goes again is judged at rest."""
        holders = [
            (node, volume)
            for node, driver in self.drivers.items()
            for volume in driver.volumes()
            if volume.name == name and volume.id not in self._late
        ]
        self._made.update(volume.id for _, volume in holders)
        if sum(not self._has_lost(node, name) for node, _ in holders) > 1:
            self._found(TWO_VOLUMES, f"{name} exists on {' and '.join(node for node, _ in holders)}")

    def acts(self, names_of_node: Collection[str], volume: str) -> None:
        """A driver has made that volume, or had it, because its node asked for it: the claim is that node's, or was. Of forged lines of
        journals there may be no claim at all."""
        owners = {owner for uid, owner in self._owned if names.is_volume_name(volume, uid)}
        if owners and not owners & {*names_of_node}:
            self._found(NOT_ITS_OWN, f"{' or '.join(names_of_node)} asked for {volume}, of which the owners were {sorted(owners)}")

    def _has_lost(self, node: str, name: str) -> bool:
        """Whether the claim of that volume was that node's, and is not any more."""
        owned = (uid for uid, owner in self._owned if owner == node and names.is_volume_name(name, uid))
        return any(self._owners.get(uid) != node for uid in owned)

    def made_late(self, handle: str) -> None:
        """For a while there may be two then, and nobody can help it. At rest there is one."""
        self._late.add(handle)
        self._made.add(handle)

    def deleted(self, handle: str) -> None:
        """A driver has deleted that volume, or had none."""
        volume = self._named.get(handle)
        if volume is None or volume["metadata"].get("deletionTimestamp") or (volume.get("status") or {}).get("phase") in _MAY_GO:
            return
        if (volume["spec"].get("claimRef") or {}).get("uid") in self._claims:
            self._found(
                TAKEN_AWAY, f"volume {handle} was deleted, and PersistentVolume {volume['metadata']['name']} names it for its claim"
            )

    def is_named(self, handle: str) -> bool:
        """Whether a PersistentVolume has it now."""
        return handle in self._named

    def was_named(self, handle: str) -> bool:
        """Whether a PersistentVolume has ever had it."""
        return handle in self._were_named

    def when_named(self, handle: str) -> int:
        """How many handles were named before this one."""
        return self._were_named.get(handle, len(self._were_named))

    async def watch_claims(self) -> None:
        await self._follow(CLAIMS, self._look_at_claim, self._forget_owners)

    async def watch_volumes(self) -> None:
        await self._follow(VOLUMES, self._look_at_volume, lambda: None)

    async def _follow(self, resource: Resource, look: Callable[[Json], None], skipped: Callable[[], None]) -> None:
        version = ""
        while True:
            try:
                if not version:
                    page = await self._api.list_page(resource, limit=0)
                    version = page.resource_version
                    skipped()
                    _each(look, page.items)
                async for event in self._api.watch(resource, resource_version=version):
                    version = event.resource_version
                    self._hear(event, look)
            except ApiError:
                version = ""

    def _hear(self, event: WatchEvent, look: Callable[[Json], None]) -> None:
        if event.type in ("ADDED", "MODIFIED"):
            look(event.object)
        elif event.type == "DELETED":
            self._forget(event.object)

    def _forget(self, obj: Json) -> None:
        self._claims.discard(obj["metadata"]["uid"])
        if source := obj["spec"].get("csi"):
            self._named.pop(source["volumeHandle"], None)

    def _forget_owners(self) -> None:
        """After missed versions: a claim may have been given back in between, so its known owner no longer counts."""
        self._owners.clear()

    def _look_at_claim(self, claim: Json) -> None:
        """An owner may give a claim back, but no other node may take it over."""
        uid = claim["metadata"]["uid"]
        self._claims.add(uid)
        owner = (claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, "")
        before = self._owners.get(uid, "")
        if owner and before and owner != before:
            self._found(TWO_OWNERS, f"claim {claim['metadata']['name']} was {before}'s and became {owner}'s")
        if owner and not before:
            self.on_taken(claim, owner)
        self._owners[uid] = owner
        self._owned.add((uid, owner))

    def _look_at_volume(self, volume: Json) -> None:
        """A PersistentVolume may outlive its volume for a while, but must not exist before it."""
        if foreign_objects.is_one(volume):
            return
        source = volume["spec"]["csi"]
        self._named[source["volumeHandle"]] = volume
        self._were_named.setdefault(source["volumeHandle"], len(self._were_named))
        name = volume["metadata"]["name"]
        if source["volumeHandle"] not in self._made:
            self._found(HOLLOW, f"PersistentVolume {name} names volume {source['volumeHandle']}, which never was")
            self._made.add(source["volumeHandle"])  # said once


def _each(look: Callable[[Json], None], items: Iterable[Json]) -> None:
    for item in items:
        look(item)
