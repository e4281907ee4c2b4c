"""Leaves to people what this program must not, or cannot, clean up. `csi-node-sidecar leftovers` lists it."""

import logging
from typing import Final

from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.effects.shared import Shared

log = logging.getLogger(__name__)

# What more there is, is told, and not kept: the journal must have room for what is begun.
_MOST_KEPT: Final = 200


class Suspecting:
    def __init__(self, shared: Shared) -> None:
        self._metrics = shared.tools.metrics
        self._clock = shared.tools.clock
        self._caches = shared.caches
        self._table = shared.table
        self._creations = shared.creations
        self._reports = shared.reports

    async def suspect(self, uid: str, record: CreationRecord, why: str) -> float | None:
        """It is told to those of the claim, in the log, and as a metric that has an alert. Returns when to look at the claim again."""
        fields = {"claim": record.full_name, "uid": uid, "volume": record.request.name, "why": why}
        log.warning("A volume may be left behind, and is left to people", extra={"fields": fields})
        self._metrics.leak_suspected()
        self._reports.tell_leak(record, why)
        if self._table.suspects() < _MOST_KEPT:
            await self._creations.suspect(record, why)
        else:
            self._creations.end(uid)
        self._table.forget(uid)
        self._reports.attempts.forget(uid)
        return self._clock() if uid in self._caches.claims else None
