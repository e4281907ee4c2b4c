"""Asks the driver for volumes that have no PersistentVolume: kept and forgotten, or made by hand.

It runs beside the judgements, which read what it found last: a driver that is slow, fails or cannot list its volumes delays no
judgement and makes none Unknown.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Final

from sidecar.csi.api import LIST_VOLUMES, Driver
from sidecar.csi.outcome import DriverError
from sidecar.drain.facts.watched import Watched
from sidecar.kube.api import VOLUMES, KubeApi, every
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Volume

_EVERY: Final = 600.0
# A PersistentVolume that was stored this long ago is in the lists that the API server serves from its cache.
_APART: Final = 60.0
_NOT_YET: Final = "the driver has not been asked yet"
_BUSY: Final = "a volume creation has not finished yet"
# The name that the kubelet gives an inline volume. It goes with its pod.
_INLINE: Final = re.compile(r"csi-[0-9a-f]{64}")


class Untracked:
    """One per process. It keeps what was found last until a look finds something else."""

    def __init__(self, kube: KubeApi, driver: Driver, watched: Watched, *, under_way: Callable[[], Iterable[str]]) -> None:
        """`under_way`: claims for which this process has begun something in the driver and stored no PersistentVolume yet."""
        self._kube = kube
        self._driver = driver
        self._watched = watched
        self._under_way = under_way
        self.handles: tuple[str, ...] = ()
        self.unknown = _NOT_YET
        """Why there may be more of them; empty if there are none."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_APART)
            await self._look()
            await asyncio.sleep(_EVERY - _APART)

    async def _look(self) -> None:
        """A volume without a PersistentVolume counts if it still has none when all creations under way have been stored for a while.

        Deletions need no such care: the PersistentVolume goes after the driver is done, and then the driver lists the volume no more.
        """
        if why := self._why_not_asked():
            self.unknown = why
            return
        try:
            left = await self._left_over()
            if left:
                await self._settled(set(self._under_way()))
                left &= await self._left_over()
        except (ApiError, DriverError) as error:
            self.unknown = str(error)
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
        listed = {handle for handle in await self._driver.list_volumes() if not _INLINE.fullmatch(handle)}
        listed -= {volume.handle for volume in self._watched.volumes.values() if volume.driver == name}
        if listed:
            async for obj in every(self._kube, VOLUMES, cached=True):
                volume = Volume.of(obj)
                # On whatever node: it has a PersistentVolume.
                if volume.driver == name:
                    listed.discard(volume.handle)
        return listed
