"""Puts our finalizer on what a volume is filled from, and takes it off a claim from which nothing is cloned any more."""

import json
import logging
from dataclasses import replace

from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.objects import Claim
from sidecar.provisioning.decisions import Protect
from sidecar.provisioning.effects.claim_writing import ClaimWriter
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.needs import SNAPSHOT
from sidecar.provisioning.requests.source_finalizers import without_finalizer

log = logging.getLogger(__name__)


class SourceProtector:
    def __init__(self, shared: Shared) -> None:
        self._writer = ClaimWriter(shared.tools.kube, shared.caches)
        self._clock = shared.tools.clock
        self._table = shared.table
        self._lookup = shared.lookup
        self._reports = shared.reports
        self._snapshot_protected = shared.snapshot_protected
        self._told = False
        """The log says that snapshots may not be protected."""

    async def protect(self, uid: str, decision: Protect) -> float | None:
        """The next look reads the source anew: whatever else has changed about it counts too."""
        findings = self._table.findings(uid)
        if findings.source.just_written:
            self._table.learn(uid, replace(findings, source=replace(findings.source, just_written=False)))
            why = f"our finalizer does not stay on {decision.source}: something takes it off again"
            # Once may have been the sidecar of another node, which was done with the same source.
            return self._reports.failed(uid, decision.claim, why, tell=self._reports.attempts.count(uid) > 0)
        hold = replace(findings.source, source=decision.source)
        # Before the write: another claim may be done with it at that very moment.
        self._table.learn(uid, replace(findings, source=hold))
        try:
            if decision.source.kind == SNAPSHOT:
                self._snapshot_protected()
            await self._lookup.protect(decision.source, decision.body)
        except Forbidden as error:
            if not decision.optional:
                return self._reports.failed(uid, decision.claim, f"protecting {decision.source} failed: {error}")
            hold = replace(hold, forbidden=True)
            self._tell_unprotected(decision, error)
        except Unavailable as error:
            return self._reports.unreachable(uid, decision.claim, error)
        except (Conflict, NotFound):
            return self._reports.later(uid)
        except ApiError as error:
            return self._reports.failed(uid, decision.claim, f"protecting {decision.source} failed: {error}")
        self._table.learn(uid, replace(findings, source=replace(hold, just_written=not hold.forbidden)))
        return self._clock()

    def _tell_unprotected(self, decision: Protect, error: Forbidden) -> None:
        """Once in a process: what is missing is missing for every snapshot."""
        if not self._told:
            remedy = "grant update on volumesnapshots; until then nobody may delete a snapshot that is being restored"
            fields = {"claim": decision.claim.full_name, "err": str(error), "remedy": remedy}
            log.warning("Volumes are filled from snapshots without protection", extra={"fields": fields})
        self._told = True

    async def release(self, uid: str, claim: Claim) -> float | None:
        try:
            await self._writer.write(claim, _released)
        except NotFound:
            return None
        except ApiError as error:
            log.warning("Releasing the source of clones failed", extra={"fields": {"claim": claim.full_name, "err": str(error)}})
            return self._reports.later(uid)
        return None


def _released(whole: bytes) -> bytes:
    """As it was, if something else has taken the finalizer off; then the write changes nothing."""
    return without_finalizer(json.loads(whole), names.CLONE_FINALIZER) or whole
