"""Tells what has become of a claim: to its user as events, to metrics and log, and to the back-off."""

import logging
from typing import Final

from sidecar.kube.errors import ApiError
from sidecar.kube.events.recorder import ObjectRef
from sidecar.model import names
from sidecar.model.objects import Claim
from sidecar.ownership import rules as ownership
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.decisions import ClaimDecision, Conclusion
from sidecar.provisioning.pace import PacedAttempts
from sidecar.tools import Tools

log = logging.getLogger(__name__)

ROOM = "provisioning"

_LISTED: Final = "`csi-node-sidecar leftovers` lists it, and deletes it if a person says so"
NOT_LISTED: Final = "so many are on record already that this one is not"


class ClaimReports:
    """What is called after a failure returns when to look at the claim again."""

    def __init__(self, tools: Tools) -> None:
        self._recorder = tools.recorder
        self._metrics = tools.metrics
        self._narrator = tools.narrator
        self._retry = tools.retry
        self._clock = tools.clock
        self.attempts = PacedAttempts()

    def failed(self, uid: str, claim: Claim, why: str, *, tell: bool = True) -> float:
        self._metrics.provision_failed(claim.class_name, claim.source.kind if claim.source else "")
        if tell:
            self.tell(claim, names.WARNING, names.PROVISIONING_FAILED, why)
        log.warning("Provisioning failed", extra={"fields": {"claim": claim.full_name, "uid": uid, "err": why}})
        return self.later(uid)

    def unreachable(self, uid: str, claim: Claim, error: ApiError) -> float:
        """Writes no event: the API server could not take that either, and by the time it can the event would be out of date."""
        log.warning("A claim waits for the API server", extra={"fields": {"claim": claim.full_name, "uid": uid, "err": str(error)}})
        return self.waits(uid)

    def waits(self, uid: str) -> float:
        """For the API server."""
        return self.attempts.waits(uid, self._clock(), self._retry)

    def later(self, uid: str) -> float:
        """With back-off, which grows until the claim has its volume, and outlives a while elsewhere."""
        return self.attempts.failed(uid, self._clock(), self._retry)

    def note(self, uid: str, claim: Claim | None, decision: ClaimDecision | Conclusion | ownership.Wait) -> None:
        self._narrator.note(ROOM, uid, claim.full_name if claim else uid, decision)

    def tell_leak(self, suspect: CreationRecord, *, kept: bool) -> None:
        """To those of the claim, in the log, and as a metric that has an alert. The claim may be gone; its events stay for a while all the
        same. `kept`: it is on record."""
        said = f"{suspect.leftover}; {_LISTED if kept else NOT_LISTED}"
        fields = {"claim": suspect.full_name, "uid": suspect.uid, "volume": suspect.request.name, "why": suspect.suspect}
        log.warning(said, extra={"fields": fields})
        self._metrics.leak_suspected()
        ref = ObjectRef("v1", names.CLAIM, suspect.namespace, suspect.name, suspect.uid)
        self._recorder.record(ref, names.WARNING, names.LEAK_SUSPECTED, said)

    def tell(self, claim: Claim, type_: str, reason: str, message: str, *, once: str = "") -> None:
        ref = ObjectRef("v1", names.CLAIM, claim.namespace, claim.name, claim.uid, claim.resource_version)
        self._recorder.record(ref, type_, reason, message, once=once)
