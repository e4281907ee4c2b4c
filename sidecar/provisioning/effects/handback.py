"""Gives a claim back, so that another node is chosen. When and why: `provisioning.rules`."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from sidecar.kube.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE
from sidecar.ownership import rules as ownership
from sidecar.provisioning.decisions import Reschedule
from sidecar.provisioning.effects.claim_writing import ClaimWriter
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.progress import Racing, after_unanswered_hand_back
from sidecar.provisioning.view import ClaimView

log = logging.getLogger(__name__)


class HandBack:
    """`view` makes a fresh picture of a claim."""

    def __init__(self, shared: Shared, *, view: Callable[[str], ClaimView]) -> None:
        self._writer = ClaimWriter(shared.tools.kube, shared.caches)
        self._clock = shared.tools.clock
        self._table = shared.table
        self._reports = shared.reports
        self._view = view

    async def reschedule(self, uid: str, decision: Reschedule) -> float | None:
        claim = decision.claim
        until = self._reports.later(uid) if decision.closed else self._reports.failed(uid, claim, decision.why)
        try:
            await self._writer.write(claim, decision.edit)
        except asyncio.CancelledError:
            self._table.advance(uid, after_unanswered_hand_back(self._table.progress(uid), claim.resource_version))
            raise
        except NotFound:
            pass
        except ApiError as error:
            if isinstance(error, Unavailable):
                self._table.advance(uid, after_unanswered_hand_back(self._table.progress(uid), claim.resource_version))
            elif decision.closed and isinstance(error, Forbidden | Invalid | BadRequest):
                refused = f"it cannot be handed back: {error}"
                self._table.learn(uid, replace(self._table.findings(uid), hand_back_refused=refused))
            log.warning("Giving a claim back failed", extra={"fields": {"claim": claim.full_name, "uid": uid, "err": str(error)}})
            return until
        if decision.closed:
            self._reports.attempts.forget(uid)
            self._reports.tell(
                claim, names.NORMAL, names.PROVISIONING, f"{decision.why}; the claim is handed back, so that another node is chosen"
            )
            log.info("A claim is handed back", extra={"fields": {"claim": claim.full_name, "uid": uid, "why": decision.why}})
        self._table.forget(uid)
        fresh = self._view(uid)
        if fresh.class_ is not None and fresh.class_.binding_mode == IMMEDIATE:
            # The others come first now: here it did not fit, whatever the driver says of free space.
            self._table.advance(uid, Racing(ownership.step_back(fresh.race_view(fresh.claim or claim))))
        # The cache has it already, so the watch event will wake nobody, and this node is in the race again too.
        return self._clock()
