"""Leaves to people what this program must not, or cannot, clean up. `csi-node-sidecar leftovers` lists it."""

from dataclasses import replace
from typing import Final

from sidecar.model.objects import Claim
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.effects.shared import Shared

# What more there is, is told, and not kept: the journal must have room for what is begun.
_MOST_KEPT: Final = 200


class Suspecting:
    def __init__(self, shared: Shared) -> None:
        self._clock = shared.tools.clock
        self._here = shared.here
        self._caches = shared.caches
        self._table = shared.table
        self._creations = shared.creations
        self._reports = shared.reports

    def held_up(self, uid: str, record: CreationRecord) -> Claim | None:
        """The claim that waits here for a volume of another name until this creation is settled."""
        claim, here = self._caches.claims.get(uid), self._here()
        waits = claim is not None and not claim.volume_name and claim.selected_node == here.node
        return claim if waits and record.is_renamed(here) else None

    async def suspect(self, uid: str, record: CreationRecord, why: str) -> float | None:
        """Returns when to look at the claim again."""
        suspect, kept = replace(record, suspect=why), self._table.records.suspects() < _MOST_KEPT
        self._reports.tell_leak(suspect, kept=kept)
        if kept:
            await self._creations.suspect(suspect)
        else:
            self._creations.end(uid)
        self._table.forget(uid)
        self._reports.attempts.forget(uid)
        return self._clock() if uid in self._caches.claims else None
