"""Deletes the volume of a creation, and keeps on record that a deletion was begun until the driver has said how it ended.

A deletion without an answer may still happen. If the claim were given the volume meanwhile, its data would go with it.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from sidecar.csi.outcome import DriverError, NotSent, is_over
from sidecar.deletion.rules import DeletionView, Keep, Undone
from sidecar.engine.backoff import on_a_beat
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.provisioning.creations.confirmation import on_file
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.decisions import DeleteAgain
from sidecar.provisioning.deletion_io import Deletion, Secrets
from sidecar.provisioning.effects.creation_log import CreationLog
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.effects.suspecting import Suspecting
from sidecar.provisioning.progress import NOT_BEGUN
from sidecar.provisioning.progress_table import ProgressTable

log = logging.getLogger(__name__)


class _AnothersError(Exception):
    """Another claim is about to be given the volume, which its PersistentVolume does not show yet."""


class RecordedDeletion:
    """Raises what `Deletion.delete` raises."""

    def __init__(self, deletion: Deletion, creations: CreationLog, table: ProgressTable) -> None:
        self.judge = deletion.judge
        self._delete = deletion.delete
        self._creations = creations
        self._table = table

    async def delete(
        self,
        uid: str,
        view: DeletionView,
        *,
        secrets: Secrets,
        before: BegunDeletion | None = None,
        name: str = "",
        claim: tuple[str, str] = ("", ""),
    ) -> Keep | None:
        """`before`: the deletion that was on record already."""

        async def begin() -> Mapping[str, str]:
            # Not before it is known that the volume may be deleted: what is on record is deleted again without the other questions.
            found = await secrets()
            if holder := self._table.holder(view.handle, besides=uid):
                raise _AnothersError(holder)
            await self._creations.deleting(uid, BegunDeletion(view.handle, view.any_node))
            return found

        try:
            return await self._delete(view, secrets=begin, name=name, claim=claim)
        except _AnothersError as holder:
            return Keep(f"it is {holder}")
        except NotSent:
            await self._creations.deleting(uid, before)
            raise
        except DriverError as error:
            if is_over(error):
                await self._creations.deleting(uid, None)
            raise


class Deleter:
    def __init__(self, shared: Shared, *, deletion: RecordedDeletion) -> None:
        self._clock = shared.tools.clock
        self._here = shared.here
        self._caches = shared.caches
        self._space = shared.space
        self._table = shared.table
        self._creations = shared.creations
        self._lookup = shared.lookup
        self._reports = shared.reports
        self._deletion = deletion
        self._confirming = shared.confirming
        self._suspect = Suspecting(shared).suspect

    async def delete_again(self, uid: str, decision: DeleteAgain) -> float | None:
        """Afterwards a creation may begin anew, for the driver has nothing of the old one in hand."""
        record, deletion = decision.record, decision.deletion
        if why := self._confirming.foreign(record):
            return await self._suspect(uid, record, why)
        if self._table.records.get(uid) is None and (why := await self._creations.begin(record)):
            return self._not_over(uid, decision, f"it cannot be recorded: {why}", in_vain=False)
        unproven = (uid, record.request.name) if record.unproven else None
        view = DeletionView(reason=Undone(on_file(record), unproven), handle=deletion.handle, any_node=deletion.any_node)
        claim = record.namespace, record.name
        try:
            kept = await self._deletion.delete(uid, view, secrets=lambda: self._secrets(record), before=deletion, claim=claim)
        except (DriverError, ApiError) as error:
            await self._creations.count_losses(uid)
            return self._not_over(uid, decision, str(error), in_vain=not isinstance(error, NotSent | Unavailable))
        if kept is not None and kept.suspected:
            if record.unproven and not self._waits_here(uid):
                self._confirming.over(uid)
                return await self._suspect(uid, record, kept.why)
            # It may be another volume than the one whose deletion was begun: that one may still go, so nobody is given it.
            return self._not_over(uid, decision, kept.why, in_vain=True)
        fields = {"claim": record.full_name, "uid": uid, "volume": record.request.name, "handle": deletion.handle}
        log.info("A begun deletion is over", extra={"fields": fields | {"kept": kept.why if kept else ""}})
        self._space.changed(record.class_name, placed=self._here().with_topology)
        return self._over(uid)

    def _over(self, uid: str) -> float | None:
        self._confirming.over(uid)
        self._table.advance(uid, NOT_BEGUN)
        self._creations.end(uid)
        if uid in self._caches.claims:
            return self._clock()
        self._table.forget(uid)
        self._reports.attempts.forget(uid)
        return None

    async def _secrets(self, record: CreationRecord) -> Mapping[str, str]:
        confirmed = await self._confirming.ask(record)
        self._confirming.tell(confirmed)
        return await self._lookup.secret_if_any(confirmed.secret, about=record.full_name)

    def _waits_here(self, uid: str) -> bool:
        claim = self._caches.claims.get(uid)
        return claim is not None and claim.selected_node == self._here().node

    def _not_over(self, uid: str, decision: DeleteAgain, problem: str, *, in_vain: bool) -> float:
        claim, why = self._caches.claims.get(uid), f"{decision.why}: {problem}"
        record = self._table.records.get(uid)
        if in_vain and record is not None and record.is_renamed(self._here()) and self._waits_here(uid):
            self._table.records.keep(replace(record, denials=record.denials + 1))
        if claim is not None and self._waits_here(uid):
            until = self._reports.failed(uid, claim, why)
        else:
            log.warning("A begun deletion is not over", extra={"fields": {"claim": decision.record.full_name, "uid": uid, "err": why}})
            until = self._reports.later(uid)
        return on_a_beat(self._clock(), until)
