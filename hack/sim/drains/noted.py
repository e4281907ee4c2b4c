"""Holds what sidecars note on volumes against the truth: on which machine the bytes are, and whether anybody said that this machine goes.

A second reading, which shares no rule with the product. A note that is missing is no fault here: nothing is done without one.
"""

from typing import TYPE_CHECKING, Final

from hack.sim.world.node import DRIVER
from sidecar.kube.api import NODES, VOLUMES
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

WRONG_NOTE: Final = "wrong note"


class NotesReferee:
    def __init__(self, world: "DrainWorld", *, lag: float) -> None:
        self._world = world
        self._lag = lag
        self._heard: dict[tuple[str, str], str] = {}
        """By uid of a volume and annotation: what stood there last."""
        self._announced: dict[str, float] = {}
        """By uid of a Node: when it was last said that it goes for good."""

    def sample(self) -> None:
        for node in self._world.cluster.store.all_of(NODES):
            if _goes(node):
                self._announced[node["metadata"]["uid"]] = self._world.clock()

    def hear(self, name: str) -> None:
        """Something was written on that volume."""
        volume = self._world.cluster.store.find(VOLUMES, name)
        if volume is None:
            return
        notes, uid = volume["metadata"].get("annotations") or {}, volume["metadata"]["uid"]
        for key, check in ((names.LIES_ON, self._check_place), (names.LEAVING, self._check_leaving)):
            text = notes.get(key, "")
            if text != self._heard.get((uid, key), "") and text:
                check(volume, text)
            self._heard[uid, key] = text

    def at_rest(self) -> None:
        """What was announced and taken back is said of no volume any more."""
        self.sample()
        for volume in self._world.cluster.store.all_of(VOLUMES):
            text = (volume["metadata"].get("annotations") or {}).get(names.LEAVING, "")
            node = self._node(text)
            if node is not None and self._world.sees(node["metadata"]["name"]) and not _goes(node):
                self._world.found(WRONG_NOTE, f"at rest {volume['metadata']['name']} is said to leave with {text}, and nobody says so")

    def _check_place(self, volume: Json, text: str) -> None:
        csi, what = volume["spec"].get("csi") or {}, volume["metadata"]["name"]
        holders = [
            name for name, node in self._world.nodes.items() if any(held.id == csi.get("volumeHandle") for held in node.driver.volumes())
        ]
        node = self._node(text)
        if node is None:
            self._world.found(WRONG_NOTE, f"{what} is said to lie on {text}, which is no machine of today")
        elif csi.get("driver") != DRIVER or (holders != [node["metadata"]["name"]] and not _goes_away(volume)):
            self._world.found(WRONG_NOTE, f"{what} is said to lie on {text}, and it lies on {' and '.join(holders) or 'no node'}")

    def _check_leaving(self, volume: Json, text: str) -> None:
        self.sample()
        uid = text.partition("/")[2]
        if self._world.clock() - self._announced.get(uid, float("-inf")) > self._lag:
            self._world.found(WRONG_NOTE, f"{volume['metadata']['name']} is said to leave with {text}, and nobody says that this goes")

    def _node(self, text: str) -> Json | None:
        """The Node of that name and uid."""
        name, _, uid = text.partition("/")
        found = self._world.cluster.store.find(NODES, name) if name else None
        return found if found is not None and found["metadata"]["uid"] == uid else None


def _goes(node: Json) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    said = (node["metadata"].get("annotations") or {}).get(names.DRAIN_INTENT, "")
    return said == "retire" or any(
        item["key"] in names.RETIRING_TAINTS or (item["key"], item.get("value")) == (names.EVACUATE_TAINT, "retire") for item in taints
    )


def _goes_away(volume: Json) -> bool:
    """Its driver may have deleted it already."""
    return "deletionTimestamp" in volume["metadata"] or (volume.get("status") or {}).get("phase") == "Released"
