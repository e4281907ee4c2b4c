"""Asks the driver for its volumes: which of them no PersistentVolume stands for, and which lie here under the name of another node.

It runs beside the judgements, which read what it found last, so a slow driver delays none of them. Until a driver that can list its
volumes has been asked, the node is not judged to be free for retiring. A driver that fails for `_PATIENCE` counts as one that cannot list:
labels then say alone where volumes are, and a note says why.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Set
from types import MappingProxyType
from typing import Final

from sidecar.csi.api import LIST_VOLUMES, Driver
from sidecar.csi.outcome import Code, DriverError
from sidecar.drain.facts.driver_list import NOTHING_LISTED, DriverList
from sidecar.drain.facts.locations import Listed, VolumeLocator
from sidecar.drain.facts.watched import Watched
from sidecar.kube.api import NODES, VOLUMES, KubeApi, records
from sidecar.kube.errors import ApiError
from sidecar.model.nodes import Node
from sidecar.model.objects import Json, Volume

_EVERY: Final = 600.0
# A PersistentVolume that was stored this long ago is in the lists that the API server serves from its cache.
_APART: Final = 60.0
# Seconds until a driver that could not be asked at the start is asked again, and for which that makes verdicts Unknown.
_SOON: Final = 10.0
_PATIENCE: Final = 120.0
# The longest that a list may take, page after page, and that a creation is waited for before the driver is asked again.
_LONGEST: Final = 600.0
# Of a driver that lists the volumes of all nodes, so many PersistentVolumes of other nodes are kept and judged anew in each look.
_MANY: Final = 500
# Volumes without a PersistentVolume that are judged in each look: a tenth of a second.
_COUNTED: Final = 10_000
_NOT_YET: Final = "the driver has not been asked yet"
_BUSY: Final = "a volume creation has not finished yet"
# The name that the kubelet gives an inline volume. It goes with its pod.
_INLINE: Final = re.compile(r"csi-[0-9a-f]{64}")


class Untracked:
    """One per process. It keeps what was found last until a look finds something else."""

    def __init__(
        self,
        kube: KubeApi,
        driver: Driver,
        watched: Watched,
        *,
        under_way: Callable[[], Iterable[str]],
        clock: Callable[[], float],
        on_found: Callable[[], None] = lambda: None,
    ) -> None:
        """`under_way`: claims for which this process has begun something in the driver and stored no PersistentVolume yet."""
        self._kube = kube
        self._driver = driver
        self._watched = watched
        self._under_way = under_way
        self._clock = clock
        self._on_found = on_found
        self._listed: DriverList | None = None
        """None: the driver has not answered yet."""
        self._failing_since: float | None = None
        self._missing_since: dict[str, float] = {}
        """By handle of a PersistentVolume: since when the driver does not list it any more."""
        self.handles: tuple[str, ...] = ()
        self.unknown = _NOT_YET
        """Why there may be more of them; empty if there are none."""

    def listed(self) -> DriverList:
        """What the driver said last."""
        if self._listed is not None:
            return self._listed
        tried_enough = self._failing_since is not None and self._clock() - self._failing_since >= _PATIENCE
        return NOTHING_LISTED if self._why_not_asked() or tried_enough else DriverList(not_asked=self.unknown)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            before = self.listed()
            await self._look()
            if self.listed() != before:
                self._on_found()
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        if self.listed().not_asked:
            return _SOON
        # What is here for certain is in no watch, so its PersistentVolumes are read again as often as everything else that is not watched.
        listed = self._listed or NOTHING_LISTED
        return _APART if any(listed.handles[volume.handle] for volume in listed.volumes) else _EVERY

    async def _look(self) -> None:
        """A volume without a PersistentVolume counts if it still has none when all creations under way have been stored for a while.

        Deletions need no such care: the PersistentVolume goes after the driver is done, and then the driver lists the volume no more.
        """
        began = self._clock()
        try:
            if why := self._why_not_asked():
                self.unknown = why
                await self._forget_deleted()
                return
            left = await self._left_over()
            self._on_found()
            if left and not await self._settled(set(self._under_way())):
                return
            left = left and left & await self._left_over()
        except DriverError as error:
            self._failed(error, began)
            await self._forget_deleted()
            return
        except ApiError as error:
            self._failed(error, began)
            return
        self.handles = tuple(sorted(left)[:_COUNTED])
        self.unknown = f"it has {len(left)}, of which the first {_COUNTED} are counted" if len(left) > _COUNTED else ""

    def _failed(self, error: Exception, began: float) -> None:
        self.unknown = str(error)
        self._failing_since = began if self._failing_since is None else self._failing_since

    def _why_not_asked(self) -> str:
        info = self._driver.info
        if LIST_VOLUMES not in info.controller:
            return "the driver does not list its volumes"
        return "" if info.segment else "the driver reports no topology, so a volume that it lists may be on any node"

    async def _settled(self, begun: set[str]) -> bool:
        """Whether those creations have been stored for a while. One that never ends must not keep the driver from being asked again."""
        given_up = self._clock() + _LONGEST
        while begun.intersection(self._under_way()):
            self.unknown = _BUSY
            if self._clock() >= given_up:
                return False
            await asyncio.sleep(_APART)
        await asyncio.sleep(_APART)
        return True

    async def _left_over(self) -> set[str]:
        """The driver is asked first: a volume whose PersistentVolume is stored after its answer was not forgotten."""
        listed = {handle: alone for handle, alone in (await self._list()).items() if not _INLINE.fullmatch(handle)}
        believed = self._still_believed(listed)
        listed |= believed
        left = listed.keys() - {volume.handle for volume in self._watched.volumes.values() if volume.driver == self._driver.info.name}
        seen, kept = await self._stored(left, listed)
        if len(seen) > _MANY:
            here = {volume.handle for volume in kept}
            listed = {handle: alone for handle, alone in listed.items() if alone or handle in here or handle not in seen}
        self._listed = DriverList(MappingProxyType(listed), kept, answered=True)
        return left - seen - believed.keys()

    def _still_believed(self, listed: Listed) -> Listed:
        """What it does not list any more although its PersistentVolume was there, for a while: a driver that has just begun, and whose
        disks are not there yet, may list less than it has."""
        now, before = self._clock(), self._listed or NOTHING_LISTED
        tracked = {volume.handle for volume in before.volumes} & before.handles.keys()
        self._missing_since = {handle: self._missing_since.get(handle, now) for handle in tracked - listed.keys()}
        return {handle: before.handles[handle] for handle, since in self._missing_since.items() if now - since < _EVERY}

    async def _list(self) -> Mapping[str, bool]:
        try:
            async with asyncio.timeout(_LONGEST):
                return await self._driver.list_volumes()
        except TimeoutError:
            raise DriverError(Code.DEADLINE_EXCEEDED, f"ListVolumes was not answered to its end within {_LONGEST:.0f} s") from None

    async def _forget_deleted(self) -> None:
        """What the driver listed last holds for as long as it cannot list, but not of PersistentVolumes that are gone."""
        before = self._listed
        if before is None or not before.volumes:
            return
        try:
            _, kept = await self._stored({volume.handle for volume in before.volumes}, before.handles)
        except ApiError as error:
            self.unknown = str(error)
            return
        self._listed = DriverList(before.handles, kept, answered=True)

    async def _stored(self, handles: Set[str], listed: Listed) -> tuple[Set[str], tuple[Volume, ...]]:
        """Which of these handles have a PersistentVolume, on whatever node, and those PersistentVolumes that may be here.

        Which of them are here is judged in each look, for nodes come and go. If they are too many, only those are kept that are here now.
        """
        seen, kept, locator = set[str](), list[Volume](), None
        if not handles:
            return seen, ()
        driver = self._driver.info.name

        def wanted(obj: Json) -> Volume | None:
            csi = (obj.get("spec") or {}).get("csi") or {}
            return Volume.of(obj) if csi.get("volumeHandle") in handles and csi.get("driver") == driver else None

        async for volume in records(self._kube, VOLUMES, wanted, cached=True):
            seen.add(volume.handle)
            kept.append(volume)
            if len(kept) > _MANY and locator is None:
                locator = await self._locator(listed)
                kept = [item for item in kept if locator.holds(item)]
            elif locator is not None and not locator.holds(volume):
                kept.pop()
        return seen, tuple(kept)

    async def _locator(self, listed: Listed) -> VolumeLocator:
        nodes = [node async for node in records(self._kube, NODES, Node.of, cached=True)]
        own = self._watched.nodes
        return VolumeLocator(next(iter(own.values()), None), [node for node in nodes if node.name not in own], listed=listed)
