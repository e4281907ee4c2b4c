"""Clears up after creations that came to nothing. What may be deleted: `deletion.rules`."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sidecar.csi.outcome import DriverError
from sidecar.deletion.rules import DeletionView, Undone
from sidecar.engine.backoff import on_a_beat
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Claim
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.orphan_cleanup import AskAgain, OrphanCleanup, Settled
from sidecar.provisioning.effects.deleting import RecordedDeletion
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.effects.suspecting import Suspecting
from sidecar.provisioning.effects.undo_pace import PAUSE, UndoPace
from sidecar.provisioning.progress import NOT_BEGUN, Creating
from sidecar.provisioning.requests.secrets import SecretRef

log = logging.getLogger(__name__)

LATE_STORE: Final = 60.0
"""Seconds. A PersistentVolume that was sent may still arrive after its sender has died or given up. If its volume were deleted before, the
claim would be bound to nothing."""


class Undoer:
    """`undo` deletes a volume that the driver has just made, `clean_up` one that may have been made at any time before."""

    def __init__(self, shared: Shared, *, deletion: RecordedDeletion) -> None:
        suspecting = Suspecting(shared)
        self.suspect, self._held_up = suspecting.suspect, suspecting.held_up
        self._clock = shared.tools.clock
        self._here = shared.here
        self._caches = shared.caches
        self._space = shared.space
        self._table = shared.table
        self._creations = shared.creations
        self._lookup = shared.lookup
        self._reports = shared.reports
        self._deletion = deletion
        self._pace = UndoPace()
        self._turns: dict[str, float] = {}
        self._sent: dict[str, float] = {}
        """By uid: until when a PersistentVolume may still arrive. The first ends first."""
        self._orphans = OrphanCleanup(
            here=shared.here,
            driver=shared.tools.driver,
            deletion=deletion,
            secrets=self._secret_for_clean_up,
            confirming=shared.confirming,
            seeks=shared.creations.seeks,
            shown=shared.creations.shown,
            sent_until=self.sent_until,
            clock=shared.tools.clock,
        )

    async def undo(self, uid: str, claim: Claim, volume_id: str, *, secret: SecretRef | None, why: str, elsewhere: bool = False) -> str:
        """Returns `why` with what has become of the volume, for the claim's user."""
        if (until := self.sent_until(uid)) > self._clock():
            self._turns[uid] = until
            self._table.advance(uid, Creating(claim))
            return f"{why}; it is left behind for a minute, in which a PersistentVolume that was sent before may still arrive"
        if turn := self._pace.wait_until(self._clock()):
            self._turns[uid] = turn
            self._table.advance(uid, Creating(claim))  # the next look has to see to it
            return f"{why}; it is left behind for now: such volumes are deleted together, every {PAUSE / 60:.0f} minutes"
        try:
            view = DeletionView(reason=Undone(), handle=volume_id, any_node=elsewhere)
            kept = await self._deletion.delete(uid, view, secrets=lambda: self._lookup.secret_if_any(secret, about=claim.full_name))
        except (DriverError, ApiError) as error:
            self._table.advance(uid, Creating(claim))  # the volume exists, so the next look has to see to it
            await self._creations.count_losses(uid)
            return f"{why}; deleting it failed, so it is left behind for now: {error}"
        self._undone(uid)
        if kept is not None:
            return f"{why}; it is left alone: {kept.why}"
        self._space.changed(claim.class_name, placed=self._here().with_topology)
        return f"{why}; it was deleted again"

    def was_sent(self, uid: str) -> None:
        """A PersistentVolume for that claim, perhaps: by this process, or by one that is gone, of whatever program. Nobody knows whether it
        arrived."""
        now = self._clock()
        self._sent.pop(uid, None)
        self._sent[uid] = now + LATE_STORE
        while (first := next(iter(self._sent))) != uid and self._sent[first] <= now:
            del self._sent[first]

    def sent_until(self, uid: str) -> float:
        """Until when that one may still arrive; 0.0: none was sent."""
        return self._sent.get(uid, 0.0)

    def next_turn(self, uid: str) -> float:
        """When those that were left behind for now are seen to, if this claim's is one of them; else 0.0."""
        return self._turns.pop(uid, 0.0)

    def _undone(self, uid: str) -> None:
        self._table.advance(uid, NOT_BEGUN)
        self._creations.end(uid)

    async def clean_up(self, uid: str, record: CreationRecord) -> float | None:
        """The claim has no use for the volume any more. What is still open is tried again with back-off, if need be by the next process."""
        fields = {"claim": record.full_name, "uid": uid, "volume": record.request.name}
        try:
            found = await self._orphans.clear(record)
        except asyncio.CancelledError:
            self._creations.left_open(uid)  # the look's deadline is over, and the driver may be at what it was asked
            raise
        await self._creations.count_losses(uid)
        self._space.changed(record.class_name, placed=self._here().with_topology)
        match found:
            case Settled(why, suspected=True):
                return await self.suspect(uid, self._table.records.get(uid) or record, why)
            case Settled(why):
                log.info("A creation is settled", extra={"fields": fields | {"why": why}})
                self._creations.end(uid)
                self._table.forget(uid)
                self._reports.attempts.forget(uid)
                return self._clock() if uid in self._caches.claims else None
            case AskAgain(why, denied, open_call, in_vain, otherwise):
                log.warning("Whether a creation has left a volume is not known yet", extra={"fields": fields | {"err": why}})
                held_up = self._held_up(uid, record)
                if (kept := self._table.records.get(uid)) is not None:
                    counts = denied or (in_vain and held_up is not None)
                    kept = (kept.asked_before() if otherwise else None) or kept
                    self._table.records.keep(replace(kept, denials=kept.denials + counts, open_call=open_call or kept.open_call))
                problem = f"volume {record.request.name} was begun for it, as flags were then, and is seen to first: {why}"
                until = self._reports.failed(uid, held_up, problem) if held_up else self._reports.later(uid)
                return max(on_a_beat(self._clock(), until), open_call.not_before if open_call else 0.0)

    async def _secret_for_clean_up(self, ref: SecretRef | None) -> Mapping[str, str]:
        return await self._lookup.secret_if_any(ref, about="a creation that has lost its claim")
