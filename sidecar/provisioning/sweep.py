"""Removes our finalizer from snapshots that no claim is restored from any more.

Such snapshots remain after a crash between setting and removing the finalizer, or when a claim is deleted while its volume is being
filled. A node sweeps only when it may have left one: once after its start, because the process before may have protected a snapshot,
and again after it has protected one itself. The API server is asked which claims still need a snapshot, because this node's cache
does not hold the claims of other nodes.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sidecar.kube.api import CLAIMS, SNAPSHOT_CONTENTS, SNAPSHOTS, find, records
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model.names import SNAPSHOT_FINALIZER, SNAPSHOT_GROUP
from sidecar.model.objects import Json
from sidecar.provisioning.needs import SNAPSHOT, items, part, text
from sidecar.provisioning.requests.source_finalizers import without_finalizer
from sidecar.tools import Tools

log = logging.getLogger(__name__)

_OPEN_PHASES: Final = ("", "Pending")


class SnapshotSweep:
    """Run `run` as a task, and call `protected` when a snapshot gets our finalizer. `able` says whether the driver knows snapshots."""

    def __init__(self, tools: Tools, *, driver: str, interval: float, able: Callable[[], bool] = lambda: True) -> None:
        self._kube = tools.kube
        self._driver = driver
        self._interval = interval
        self._rng = tools.rng
        self._able = able
        self._stake = True
        self._own = False
        """This process has protected a snapshot itself.

        Only then does it come back for snapshots that cannot be judged; otherwise every node would ask for them for ever.
        """

    def protected(self) -> None:
        self._stake = self._own = True

    async def run(self) -> None:
        """Sweeps at each interval while there is a stake, until cancelled."""
        # A DaemonSet starts on all nodes at once, and all would find the same snapshots: the random delay spreads their sweeps.
        await asyncio.sleep(self._interval * self._rng())
        able = False
        while True:
            able = able or self._able()  # the driver may be updated while we run, and support snapshots from then on
            try:
                if able and self._stake:
                    self._stake = False  # cleared before the sweep: a snapshot protected during it sets it again, for the next sweep
                    if await self._sweep():
                        self._stake = True
            except (NotFound, Forbidden) as error:
                # The kind is unknown, or we may not read it. The stake stays cleared: if a snapshot gets protected, that has changed.
                log.info("Snapshots are not swept", extra={"fields": {"err": str(error)}})
            except ApiError as error:
                self._stake = True
                log.warning("Sweeping snapshots failed", extra={"fields": {"err": str(error)}})
            await asyncio.sleep(self._interval)

    async def _sweep(self) -> bool:
        """Releases what is no longer needed. True when a snapshot remains that must be looked at again."""
        needed = False
        wanted: set[tuple[str, str]] | None = None
        async for snapshot in records(self._kube, SNAPSHOTS, _with_our_finalizer, cached=True):
            driver = await self._driver_of(snapshot)
            if driver is None and not text(snapshot, "metadata", "deletionTimestamp"):
                needed |= self._own  # its driver is known once it gets a content; without one it is released when it is deleted
                continue
            if driver not in (None, self._driver):
                continue
            # All claims of the cluster are listed, so only once in a sweep, and only when a snapshot needs it.
            if wanted is None:
                wanted = await self._restored_from()
            where = (text(snapshot, "metadata", "namespace"), text(snapshot, "metadata", "name"))
            needed |= (where in wanted or not await self._release(snapshot)) and (self._own or driver is not None)
        return needed

    async def _driver_of(self, snapshot: Json) -> str | None:
        """The driver of the snapshot, because a snapshot of another driver is left to that driver's sidecar.

        None: it has no content, so nobody can restore it now.
        """
        bound = text(snapshot, "status", "boundVolumeSnapshotContentName")
        content = await find(self._kube, SNAPSHOT_CONTENTS, bound) if bound else None
        return None if content is None else text(content, "spec", "driver")

    async def _restored_from(self) -> set[tuple[str, str]]:
        """Namespace and name of each snapshot from which a claim is still to be filled."""
        wanted: set[tuple[str, str]] = set()
        async for snapshots in records(self._kube, CLAIMS, _snapshots_of, cached=True):
            wanted |= snapshots
        return wanted

    async def _release(self, snapshot: Json) -> bool:
        name, namespace = text(snapshot, "metadata", "name"), text(snapshot, "metadata", "namespace")
        body = without_finalizer(snapshot, SNAPSHOT_FINALIZER)
        try:
            if body is not None:
                await self._kube.replace(SNAPSHOTS, body, name=name, namespace=namespace)
        except ApiError as error:
            log.info("A snapshot keeps our finalizer for now", extra={"fields": {"snapshot": f"{namespace}/{name}", "err": str(error)}})
            return isinstance(error, NotFound)
        return True


def _with_our_finalizer(snapshot: Json) -> Json | None:
    return snapshot if SNAPSHOT_FINALIZER in items(snapshot, "metadata", "finalizers") else None


def _snapshots_of(claim: Json) -> set[tuple[str, str]] | None:
    """Namespace and name of the snapshots from which this claim is still to be filled; None if there is none."""
    if text(claim, "status", "phase") not in _OPEN_PHASES:
        return None
    spec = part(claim, "spec") or {}
    # Either field counts, even if they disagree: a snapshot that is kept too long does no harm.
    refs = [ref for ref in (part(spec, "dataSource"), part(spec, "dataSourceRef")) if ref is not None]
    snapshots = (ref for ref in refs if text(ref, "kind") == SNAPSHOT and text(ref, "apiGroup") in ("", SNAPSHOT_GROUP))
    return {(text(ref, "namespace") or text(claim, "metadata", "namespace"), text(ref, "name")) for ref in snapshots} or None
