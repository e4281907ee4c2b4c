"""Asks the driver for its volumes: which of them no PersistentVolume stands for, and which lie here under the name of another node.

It runs beside the judgements, which read what it found last, so a slow driver delays none of them. Until a driver that can list its
volumes has been asked, the node is not judged to be free for retiring. A driver that fails for `_PATIENCE` counts as one that cannot list:
labels then say alone where volumes are, and a note says why.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from sidecar.csi.api import LIST_VOLUMES, Driver
from sidecar.csi.outcome import DriverError
from sidecar.drain.facts.driver_list import NOTHING_LISTED, DriverList
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.watched import Watched
from sidecar.kube.api import NODES, VOLUMES, KubeApi, every
from sidecar.kube.errors import ApiError
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume

_EVERY: Final = 600.0
# A PersistentVolume that was stored this long ago is in the lists that the API server serves from its cache.
_APART: Final = 60.0
# Seconds until a driver that could not be asked at the start is asked again, and for which that makes verdicts Unknown.
_SOON: Final = 10.0
_PATIENCE: Final = 120.0
# Of a driver that lists the volumes of all nodes, so many PersistentVolumes of other nodes are kept and judged anew in each look.
_MANY: Final = 500
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
        if why := self._why_not_asked():
            self.unknown = why
            return
        try:
            left = await self._left_over()
            self._on_found()
            if left:
                await self._settled(set(self._under_way()))
                left &= await self._left_over()
        except (ApiError, DriverError) as error:
            self.unknown = str(error)
            self._failing_since = self._clock() if self._failing_since is None else self._failing_since
            return
        self.handles, self.unknown = tuple(sorted(left)), ""

    def _why_not_asked(self) -> str:
        info = self._driver.info
        if LIST_VOLUMES not in info.controller:
            return "the driver does not list its volumes"
        return "" if info.segment else "the driver reports no topology, so a volume that it lists may be on any node"

    async def _settled(self, begun: set[str]) -> None:
        while begun.intersection(self._under_way()):
            self.unknown = _BUSY
            await asyncio.sleep(_APART)
        await asyncio.sleep(_APART)

    async def _left_over(self) -> set[str]:
        """The driver is asked first: a volume whose PersistentVolume is stored after its answer was not forgotten."""
        name = self._driver.info.name
        listed = {handle: alone for handle, alone in (await self._driver.list_volumes()).items() if not _INLINE.fullmatch(handle)}
        left = listed.keys() - {volume.handle for volume in self._watched.volumes.values() if volume.driver == name}
        stored: list[Volume] = []
        if left:
            async for obj in every(self._kube, VOLUMES, cached=True):
                # On whatever node: it has a PersistentVolume.
                if ((obj.get("spec") or {}).get("csi") or {}).get("volumeHandle") in left and (volume := Volume.of(obj)).driver == name:
                    stored.append(volume)
        self._listed = DriverList(MappingProxyType(listed), await self._that_may_be_here(stored, listed))
        return left - {volume.handle for volume in stored}

    async def _that_may_be_here(self, stored: list[Volume], listed: Mapping[str, bool]) -> tuple[Volume, ...]:
        """Which of them are here is judged in each look, for nodes come and go. They are only looked through if they are too many."""
        if len(stored) <= _MANY:
            return tuple(stored)
        nodes = [Node.of(obj) async for obj in every(self._kube, NODES, cached=True)]
        own = self._watched.nodes
        locator = VolumeLocator(next(iter(own.values()), None), [node for node in nodes if node.name not in own], listed=listed)
        return tuple(volume for volume in stored if locator.holds(volume))
