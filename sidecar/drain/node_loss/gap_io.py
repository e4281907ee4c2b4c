"""Renews the Lease that says until when somebody has looked for gone nodes, and reads in it when nobody did (`gap`)."""

import logging
from collections.abc import Callable
from typing import Final

from sidecar.drain.lease_io import LeaseWriter, Written
from sidecar.drain.leases import Lease, Take
from sidecar.drain.node_loss import gap
from sidecar.model import names

log = logging.getLogger(__name__)

_WHY: Final = "this process looks for gone nodes now"


class Gaps:
    """For whoever has the turn. Raises ApiError."""

    def __init__(self, writer: LeaseWriter, *, driver: str, namespace: str, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._writer, self._driver, self._namespace = writer, driver, namespace
        self._clock, self._wall = clock, wall
        self._written: Lease | None = None
        """As this process has written it in this turn."""
        self._due_at = 0.0
        self._seen = ""
        """The latest version that this process has written."""

    def begin(self) -> None:
        """A turn: others may have had it meanwhile."""
        self._written = None

    async def latest(self, holder: str) -> str | None:
        """As `gap.ended`; None: another one writes it, so this process has not the turn after all."""
        if (self._written is None or self._clock() >= self._due_at) and not await self._renew(holder):
            self._written = None
            return None
        return self._written.annotations.get(names.UNWATCHED_UNTIL, "") if self._written is not None else None

    async def _renew(self, holder: str) -> bool:
        name, now = names.node_loss_watched(self._driver), self._wall()
        stored = self._written or await self._writer.find(name)
        over = gap.ended(stored, before=self._seen, now=now)
        version = stored.resource_version if stored is not None else ""
        body = gap.body(self._driver, namespace=self._namespace, holder=holder, gap=over, now=now, resource_version=version)
        match await self._writer.perform(Take(name, body, replaces=stored is not None, why=_WHY)):
            case Written(Lease() as written):
                before = stored.annotations.get(names.UNWATCHED_UNTIL, "") if stored is not None else ""
                if over != before:
                    fields = {"since": stored.renewed if stored is not None else None, "until": over}
                    log.warning(
                        "Nobody has looked for gone nodes for a while, as after the API server was restored from a backup:"
                        " what is missed now is cleared away only once its report is acknowledged",
                        extra={"fields": fields},
                    )
                self._written, self._seen, self._due_at = written, written.resource_version, self._clock() + gap.RENEWED_EVERY
                return True
            case _:
                return False
