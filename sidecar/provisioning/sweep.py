"""Takes our finalizer off snapshots that nothing is restored from any more: after a crash between setting and removing it, or when
a claim was deleted while it was being filled.

Only where this node has a stake: for snapshots that it has protected itself, and once after its start for those that a process
before it may have. Which claims still need one, the API server is asked: claims of other nodes are not in this one's cache.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sidecar.kube.api import CLAIMS, SNAPSHOT_CONTENTS, SNAPSHOTS, KubeApi, every, find
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model.names import SNAPSHOT_FINALIZER, SNAPSHOT_GROUP
from sidecar.model.objects import Json
from sidecar.provisioning import sources
from sidecar.provisioning.needs import SNAPSHOT, items, part, text

log = logging.getLogger(__name__)

_OPEN_PHASES: Final = ("", "Pending")


class SnapshotSweep:
    """`run` as a task; `protected` tells it that there is something to come back to. `able`: whether the driver knows snapshots."""

    def __init__(
        self, *, kube: KubeApi, driver: str, interval: float, rng: Callable[[], float], able: Callable[[], bool] = lambda: True
    ) -> None:
        self._kube = kube
        self._driver = driver
        self._interval = interval
        self._rng = rng
        self._able = able
        self._stake = True
        self._own = False
        """This process has protected one. Only then does it come back for what nobody can judge, or all nodes would for ever."""

    def protected(self) -> None:
        self._stake = self._own = True

    async def run(self) -> None:
        """Until cancelled."""
        # A DaemonSet starts on all nodes at once; what is to be found is the same for all of them.
        await asyncio.sleep(self._interval * self._rng())
        able = False
        while True:
            able = able or self._able()  # a driver may learn it when it is updated under us
            try:
                if able and self._stake:
                    self._stake = False  # whatever is protected from here on is for the next one
                    if await self._sweep():
                        self._stake = True
            except (NotFound, Forbidden) as error:
                # No such kind, or no right to it. That has changed when one is protected all the same.
                log.info("Snapshots are not swept", extra={"fields": {"err": str(error)}})
            except ApiError as error:
                self._stake = True
                log.warning("Sweeping snapshots failed", extra={"fields": {"err": str(error)}})
            await asyncio.sleep(self._interval)

    async def _sweep(self) -> bool:
        """Whether any is left that is still needed, so that it has to be looked at again."""
        needed = False
        wanted: set[tuple[str, str]] | None = None
        async for snapshot in every(self._kube, SNAPSHOTS, cached=True):
            if SNAPSHOT_FINALIZER not in items(snapshot, "metadata", "finalizers"):
                continue
            driver = await self._driver_of(snapshot)
            if driver is None and not text(snapshot, "metadata", "deletionTimestamp"):
                needed |= self._own  # whose it is shows when it gets one, or leaves without
                continue
            if driver not in (None, self._driver):
                continue
            if wanted is None:
                wanted = await self._restored_from()
            where = (text(snapshot, "metadata", "namespace"), text(snapshot, "metadata", "name"))
            needed |= (where in wanted or not await self._release(snapshot)) and (self._own or driver is not None)
        return needed

    async def _driver_of(self, snapshot: Json) -> str | None:
        """A snapshot of another driver is protected by that driver's sidecar. None: it has no content, so nobody can restore it now."""
        bound = text(snapshot, "status", "boundVolumeSnapshotContentName")
        content = await find(self._kube, SNAPSHOT_CONTENTS, bound) if bound else None
        return None if content is None else text(content, "spec", "driver")

    async def _restored_from(self) -> set[tuple[str, str]]:
        """Namespace and name of each snapshot that some claim is still to be filled from."""
        wanted = set()
        async for claim in every(self._kube, CLAIMS, cached=True):
            spec = part(claim, "spec") or {}
            if text(claim, "status", "phase") not in _OPEN_PHASES:
                continue
            for ref in (part(spec, "dataSource"), part(spec, "dataSourceRef")):
                if ref is not None and text(ref, "kind") == SNAPSHOT and text(ref, "apiGroup") in ("", SNAPSHOT_GROUP):
                    wanted.add((text(ref, "namespace") or text(claim, "metadata", "namespace"), text(ref, "name")))
        return wanted

    async def _release(self, snapshot: Json) -> bool:
        name, namespace = text(snapshot, "metadata", "name"), text(snapshot, "metadata", "namespace")
        body = sources.without_finalizer(snapshot, SNAPSHOT_FINALIZER)
        try:
            if body is not None:
                await self._kube.replace(SNAPSHOTS, body, name=name, namespace=namespace)
        except ApiError as error:
            log.info("A snapshot keeps our finalizer for now", extra={"fields": {"snapshot": f"{namespace}/{name}", "err": str(error)}})
            return isinstance(error, NotFound)
        return True
