"""Tells of released volumes that no node deletes, because nothing says which one has them.

No cache holds such volumes, as they are no node's. What is noted here is a name for the time until somebody's turn to tell has come.
"""

from collections.abc import Callable
from typing import Final

from sidecar.kube.api import VOLUMES, find
from sidecar.kube.events.recorder import ObjectRef
from sidecar.local.here import Here
from sidecar.local.volume_location import is_of_another_node, lies_here
from sidecar.model import names
from sidecar.model.objects import Json, Volume
from sidecar.ownership import user_notice
from sidecar.tools import Tools

# What was told is forgotten first, the oldest ahead: a process lives for months, and most of these volumes are gone by then.
_MOST: Final = 1000


def why_unowned(here: Here, volume: Volume) -> str:
    """Why no node deletes this released volume; empty: one may, or need not."""
    by = volume.driver if volume.provisioned_by is None else volume.provisioned_by
    if (by, volume.driver) != (here.driver.name, here.driver.name) or volume.deleting:
        return ""
    if (volume.phase, volume.reclaim_policy) != ("Released", "Delete") or lies_here(here, volume) or is_of_another_node(here, volume):
        return ""
    place = "it has no node affinity" if volume.affinity is None else "its node affinity names no place that the driver reports"
    maker = f"its attribute {names.PROVISIONER_IDENTITY} ({volume.identity[:100] or 'missing'}) names no node"
    return (
        f"no node is known to have this volume: {place}, and {maker}. So none has it deleted: a driver answers OK for what it does not"
        " have, and the data would stay without a PersistentVolume. Delete it on its node, then delete the PersistentVolume"
    )


class Unowned:
    """`noticed` is told of each volume that the cache does not keep, `look` is called when its turn has come."""

    def __init__(self, tools: Tools, *, here: Callable[[], Here]) -> None:
        self._here = here
        self._kube = tools.kube
        self._recorder = tools.recorder
        self._clock = tools.clock
        self._dry_run = tools.dry_run
        self._seen: dict[str, str] = {}
        """By name: the uid. What is not told yet and what was told, the latest ones last."""
        self._turns: dict[str, float] = {}
        """By name: what is not told yet."""

    def noticed(self, obj: Json) -> float | None:
        """When to look at the volume with that name, if there is something to tell of it."""
        if (obj.get("status") or {}).get("phase") != "Released":
            return None
        volume = Volume.of(obj)
        if self._seen.get(volume.name) == volume.uid or len(self._turns) >= _MOST or not why_unowned(self._here(), volume):
            return None
        self._seen.pop(volume.name, None)
        self._seen[volume.name] = volume.uid
        if len(self._seen) > _MOST:
            del self._seen[next(name for name in self._seen if name not in self._turns)]
        # A thousand nodes would say the same: they draw lots, as for claims that nobody takes.
        turn = user_notice.turn(self._here().node, volume.uid, None)
        if turn is None or self._dry_run:
            return None
        self._turns[volume.name] = self._clock() + turn
        return self._turns[volume.name]

    def is_due(self, name: str) -> bool:
        turn = self._turns.get(name)
        return turn is not None and turn <= self._clock()

    async def look(self, name: str) -> None:
        """Raises ApiError."""
        found = await find(self._kube, VOLUMES, name)
        self._turns.pop(name, None)
        volume = Volume.of(found) if found is not None else None
        if volume is None or volume.uid != self._seen.get(name) or not (why := why_unowned(self._here(), volume)):
            self._seen.pop(name, None)
            return
        ref = ObjectRef("v1", names.VOLUME, "", volume.name, volume.uid, volume.resource_version)
        once = names.shared_event(volume.name, volume.uid, "unowned")
        self._recorder.record(ref, names.WARNING, names.VOLUME_FAILED_DELETE, why, once=once)
