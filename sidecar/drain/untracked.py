"""Asks the driver what it has here that no PersistentVolume stands for: kept and forgotten, or made by hand.

It works beside the judgements, which read what was found last: a driver that is slow, fails or cannot list delays none of them and
makes none of them Unknown.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Final

from sidecar.csi.api import LIST_VOLUMES, Driver
from sidecar.csi.outcome import DriverError
from sidecar.drain.watched import Watched
from sidecar.kube.api import VOLUMES, KubeApi, every
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Volume

_EVERY: Final = 600.0
# A PersistentVolume that was stored so long ago is in the lists that the API server remembers.
_APART: Final = 60.0
_NOT_YET: Final = "the driver has not been asked yet"
_BUSY: Final = "a creation that was begun has not ended"
# As the kubelet calls an inline volume, which goes with its pod.
_INLINE: Final = re.compile(r"csi-[0-9a-f]{64}")


class Untracked:
    """One per process. It holds what was found last until a look finds something else."""

    def __init__(self, kube: KubeApi, driver: Driver, watched: Watched, *, under_way: Callable[[], Iterable[str]]) -> None:
        """`under_way`: claims for which this process has begun something in the driver that is not stored yet."""
        self._kube = kube
        self._driver = driver
        self._watched = watched
        self._under_way = under_way
        self.handles: tuple[str, ...] = ()
        self.unknown = _NOT_YET
        """Why there may be others; empty where there are none."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_APART)
            await self._look()
            await asyncio.sleep(_EVERY - _APART)

    async def _look(self) -> None:
        """What is left over counts if it is left over once more, when all that was under way has been stored for a while.

        A deletion needs no such care: its PersistentVolume goes after the driver is done, and by then the driver lists it no more.
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
        return "" if info.segment else "the driver has no topology, so what it lists may lie anywhere"

    async def _settled(self, begun: set[str]) -> None:
        while begun.intersection(self._under_way()):
            self.unknown = _BUSY
            await asyncio.sleep(_APART)
        await asyncio.sleep(_APART)

    async def _left_over(self) -> set[str]:
        """The driver first: what is stored after it has answered was not forgotten."""
        name = self._driver.info.name
        listed = {handle for handle in await self._driver.list_volumes() if not _INLINE.fullmatch(handle)}
        listed -= {volume.handle for volume in self._watched.volumes.values() if volume.driver == name}
        if listed:
            async for obj in every(self._kube, VOLUMES, cached=True):
                volume = Volume.of(obj)
                # Wherever it lies: then it is not forgotten.
                if volume.driver == name:
                    listed.discard(volume.handle)
        return listed
