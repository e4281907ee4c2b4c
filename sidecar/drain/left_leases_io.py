"""Clears up after an earlier process of this node that made replicas anew, where this one does not: its Leases, and its marks on claims.

Nothing else is deleted. A claim that is gone is made again by its StatefulSet, whoever waits for that.
"""

from typing import Final

from sidecar.drain import leases
from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.lease_io import LeaseWriter
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.settings import Settings
from sidecar.kube.api import KubeApi
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.model import names

_WHAT: Final = "the Lease of a replica that an earlier process made anew"


class LeftLeasesDuty:
    """Once for each process, and again until it has succeeded."""

    def __init__(self, settings: Settings, kube: KubeApi, refusals: Refusals) -> None:
        self._settings = settings
        self._kube = kube
        self._refusals = refusals
        self._writer = LeaseWriter(kube, namespace=settings.namespace, dry_run=False)
        self._done = settings.dry_run or not settings.namespace

    async def perform(self, picture: Picture) -> Outcome:
        if not self._done:
            try:
                await self._clear(picture)
                self._done = True
            except Forbidden:
                self._done = True  # without the right to read or write Leases nobody with this role has had one
            except ApiError as error:
                self._refusals.note(_WHAT, str(error))
        return Outcome(picture)

    async def _clear(self, picture: Picture) -> None:
        me = leases.identity(picture.node.uid, self._settings.driver)
        for lease in await self._writer.all(f"{names.REPROVISION_FOR}={self._settings.driver}"):
            if lease.holder == me:
                # Inside, so that a process that has nothing to clear up does not have this in memory.
                from sidecar.drain.reprovision import clearing_io

                await clearing_io.unmark(self._kube, self._settings, lease, picture.node)
                await self._writer.perform(leases.release(lease, "this sidecar makes no replica anew"))
