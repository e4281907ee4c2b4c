"""Who has a handle already. Two claims with one volume would write over each other's data, and lose it both with one of them."""

from collections.abc import Callable
from typing import Final

from sidecar.engine.backoff import Backoff
from sidecar.kube.api import VOLUMES, KubeApi, find
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.local.caches import Caches
from sidecar.model.objects import Volume
from sidecar.provisioning.deletion_io import Deletion
from sidecar.provisioning.progress import RemovalStep
from sidecar.provisioning.progress_table import ProgressTable

MOST_ASKED: Final = 20
"""So many requests at most for one answer of the driver, where an earlier process has left that many creations that get no answer."""


class HandleHolders:
    def __init__(
        self, *, kube: KubeApi, caches: Caches, table: ProgressTable, deletion: Deletion, retry: Backoff, clock: Callable[[], float]
    ) -> None:
        self._deletion = deletion
        self._kube = kube
        self._caches = caches
        self._table = table
        self._retry = retry
        self._clock = clock
        self._failures = 0
        """In a row, of whatever was asked for."""
        self._failure = ""
        self._asked_again_at = 0.0

    async def other(self, handle: str, *, uid: str, name: str, asked_at: float) -> str:
        """Who besides the claim with that uid and its PersistentVolume; empty: nobody that this node knows of. `asked_at`: when the driver
        was asked for the volume. Raises ApiError.

        What the cache has may be gone by now, and so may what it has yet to show, and a driver may give a handle again: so the API server
        is asked, but only then.
        """
        if self._deletion.ended_since(handle, asked_at):
            return "a volume that was deleted while the driver was asked"
        for held in self._caches.volumes.by_index("handle", handle):
            if held.name != name and self._table.removal_step(held) is RemovalStep.NOT_YET and await self._still_has(held.name, handle):
                return f"PersistentVolume {held.name}"
        for unseen in [item for item, its in self._table.unseen().items() if its == handle and item != name]:
            if await self._still_has(unseen, handle):
                return f"PersistentVolume {unseen}"
            self._table.seen(unseen)
        for begun in self._table.unanswered(besides=uid)[:MOST_ASKED]:
            if await self._has(begun, handle):
                return f"PersistentVolume {begun}"
        return self._table.holder(handle, besides=uid)

    async def _still_has(self, name: str, handle: str) -> bool:
        try:
            return await self._has(name, handle)
        except ApiError:
            return True

    async def _has(self, name: str, handle: str) -> bool:
        # Every claim that gets a volume asks for the same objects: without a server they share one back-off.
        if self._clock() < self._asked_again_at:
            raise Unavailable(self._failure)
        try:
            found = await find(self._kube, VOLUMES, name)
        except ApiError as error:
            self._failure, self._asked_again_at = str(error), self._clock() + self._retry.delay(self._failures)
            self._failures += 1
            raise
        self._failures, self._asked_again_at = 0, 0.0
        return found is not None and Volume.of(found).handle == handle
