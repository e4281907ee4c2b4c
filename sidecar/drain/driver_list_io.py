"""Asks the driver, if it can list its volumes, for those that no PersistentVolume stands for: every ten minutes two lists.

A handle is untracked if it has no PersistentVolume in a list of the API server that is a minute younger than the driver's, and is listed
still: what is being created has one by then. It runs beside the looks, which read what it found last, so a slow driver delays none of
them. Until a driver that can list its volumes has been asked, nobody knows that the node has none under another name, and retiring is
Unknown.
"""

import asyncio
import re
from collections.abc import Callable, Collection
from typing import Final

from sidecar.csi.api import LIST_VOLUMES, Driver
from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.api import VOLUMES, KubeApi, records
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Json

EVERY: Final = 600.0
APART: Final = 60.0  # seconds between the two lists
_SOON: Final = 10.0
PATIENCE: Final = 120.0  # seconds for which a driver that fails makes retiring Unknown; then it counts as one that cannot list, with a note
_LONGEST: Final = 600.0  # seconds that the driver's list may take, page after page
_INLINE: Final = re.compile(r"csi-[0-9a-f]{64}")  # the name that the kubelet gives an inline volume, which goes with its pod
_COUNTED: Final = 10_000  # volumes without a PersistentVolume that are judged in each look: a tenth of a second
_NOT_YET: Final = "the driver has not been asked yet"


class DriverList:
    """One per process. It keeps what was found last until a look finds something else."""

    def __init__(
        self,
        kube: KubeApi,
        driver: Driver,
        *,
        under_way: Callable[[], Collection[str]],
        known: Callable[[], Collection[str]],
        clock: Callable[[], float],
        on_found: Callable[[], None] = lambda: None,
    ) -> None:
        """`under_way`: claims for which this process has begun something in the driver and stored no PersistentVolume yet.
        `known`: handles of the PersistentVolumes that may be on this node."""
        self._kube, self._driver, self._under_way, self._clock, self._on_found = kube, driver, under_way, clock, on_found
        self._known_here = known
        self._failing_since: float | None = None
        self._asked = False
        self.handles: frozenset[str] = frozenset()  # all that the driver lists: some list what other nodes have as well
        self.elsewhere: frozenset[str] = frozenset()  # with a PersistentVolume that says another node: it may have been this one's name
        self.untracked: tuple[str, ...] = ()
        self.unknown = _NOT_YET  # why there may be more of them; empty if there are none

    @property
    def not_listed(self) -> str:
        """Why the driver has not said yet which volumes it has; empty if it has, and if it never will."""
        tried_enough = self._failing_since is not None and self._clock() - self._failing_since >= PATIENCE
        return "" if self._asked or tried_enough or not self._can_list() else self.unknown

    async def run(self) -> None:
        while True:
            before = self.handles, self.untracked, self.not_listed
            await self.look()
            if (self.handles, self.untracked, self.not_listed) != before:
                self._on_found()
            await asyncio.sleep(_SOON if self.not_listed else EVERY)

    async def look(self) -> None:
        if not self._can_list():
            # Without topology a volume that it lists may be on any node.
            self.unknown, self._asked = "the driver does not list its volumes, or reports no topology", True
            return
        try:
            if self._under_way():
                self.unknown = "a volume creation has not finished yet"
                return
            listed = await self._listed()
            await asyncio.sleep(APART)
            stored = await self._stored()
            # What was deleted in between has lost its PersistentVolume too.
            untracked = (listed - stored) & await self._listed() if listed - stored else frozenset[str]()
        except (DriverError, ApiError, TimeoutError) as error:
            self._failing_since = self._clock() if self._failing_since is None else self._failing_since
            self.unknown = str(error) or f"the driver's list of volumes takes longer than {_LONGEST:g} s"
            self._asked = self._asked or (isinstance(error, DriverError) and error.code is Code.UNIMPLEMENTED)
            return
        self.handles = listed
        self.untracked = tuple(sorted(untracked)[:_COUNTED])
        self.elsewhere = self.handles & stored - frozenset(self._known_here())
        self.unknown, self._asked, self._failing_since = "", True, None

    async def _listed(self) -> frozenset[str]:
        async with asyncio.timeout(_LONGEST):
            return frozenset(handle for handle in await self._driver.list_volumes() if not _INLINE.fullmatch(handle))

    def _can_list(self) -> bool:
        return LIST_VOLUMES in self._driver.info.controller and bool(self._driver.info.segment)

    async def _stored(self) -> frozenset[str]:
        """Handles of all PersistentVolumes of the driver, on whatever node."""
        name = self._driver.info.name

        def handle(obj: Json) -> str | None:
            csi = (obj.get("spec") or {}).get("csi") or {}
            return str(csi.get("volumeHandle") or "") if csi.get("driver") == name else None

        return frozenset([found async for found in records(self._kube, VOLUMES, handle, cached=True)])
