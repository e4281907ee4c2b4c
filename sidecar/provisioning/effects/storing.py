"""Stores the PersistentVolume of a volume that exists."""

import asyncio
import logging
from dataclasses import replace

from sidecar.kube.api import VOLUMES
from sidecar.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, TooManyRequests, Unavailable
from sidecar.local.volume_location import lies_elsewhere
from sidecar.model import names
from sidecar.model.objects import Claim, Json, Volume
from sidecar.provisioning.decisions import Store
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.effects.undoing import Undoer
from sidecar.provisioning.progress import UNSTORED, Creating, Stored, refused
from sidecar.provisioning.requests import sources
from sidecar.provisioning.requests import volume as volumes
from sidecar.provisioning.requests.secrets import SecretRef, deletion_secret

log = logging.getLogger(__name__)


class Storer:
    """An object that is in the way is looked at: it may be the very one that was to be stored."""

    def __init__(self, shared: Shared, *, undoer: Undoer) -> None:
        self._kube = shared.tools.kube
        self._metrics = shared.tools.metrics
        self._clock = shared.tools.clock
        self._here = shared.here
        self._caches = shared.caches
        self._table = shared.table
        self._creations = shared.creations
        self._lookup = shared.lookup
        self._reports = shared.reports
        self._snapshot_protected = shared.snapshot_protected
        self._undoer = undoer

    async def store(self, uid: str, decision: Store) -> float | None:
        """The volume exists, so this is tried again until its object is stored, whatever the API server answers."""
        claim, body = decision.claim, decision.body
        name = body.name
        record = self._table.records.get(uid)
        if record is not None and record.deletion is not None:
            return self._clock()  # learnt while the driver was asked: the volume may be one that is being deleted
        try:
            await self._kube.create(VOLUMES, body)
        except asyncio.CancelledError:
            self._undoer.was_sent(uid)  # the look's deadline is over, and it may arrive all the same
            raise
        except AlreadyExists:
            if problem := await self._not_ours(uid, claim, body.unpacked()):
                return max(self._reports.failed(uid, claim, problem), self._undoer.next_turn(uid))
        except (Unavailable, TooManyRequests) as error:
            if isinstance(error, Unavailable):  # what was refused does not arrive later
                self._undoer.was_sent(uid)
            log.warning(
                "A volume waits for the API server", extra={"fields": {"claim": claim.full_name, "volume": name, "err": str(error)}}
            )
            return self._reports.waits(uid)
        except ApiError as error:
            if isinstance(error, Forbidden | Invalid | BadRequest):
                self._table.advance(uid, refused(self._table.progress(uid)))
            until = self._reports.failed(uid, claim, f"the volume was created, but storing PersistentVolume {name} failed: {error}")
            return min(until, self._clock() + UNSTORED)
        self._succeeded(uid, claim, name, body.handle)
        source = sources.to_release(claim)
        if source is not None and self._table.fills_from(source):
            self._snapshot_protected()  # another claim still needs the finalizer; if that one is given up, the sweep takes it off
        elif source is not None:
            await self._lookup.release(source)
        return None

    async def _not_ours(self, uid: str, claim: Claim, body: Json) -> str:
        """Why the PersistentVolume that has the name is not the one to store; empty when it is."""
        name = body["metadata"]["name"]
        try:
            found = Volume.of(await self._kube.get(VOLUMES, name))
        except ApiError as error:
            self._table.advance(uid, Creating(claim))
            return f"PersistentVolume {name} exists already and cannot be looked at: {error}"
        if volumes.is_ours(found, body):
            return ""
        if found.claim is not None and found.claim.uid == uid and lies_elsewhere(self._here(), found):
            why = f"PersistentVolume {name} was made for the claim on another node, so the volume made here is not needed"
            secret = deletion_secret(Volume.of(body), None)
            noted = secret if isinstance(secret, SecretRef) else None
            return await self._undoer.undo(uid, claim, body["spec"]["csi"]["volumeHandle"], secret=noted, why=why)
        # The next attempt asks the driver anew: what it answered now may belong to whoever has the name.
        self._table.advance(uid, Creating(claim))
        return f"PersistentVolume {name} exists already for another claim or volume; it must go before this one can be stored"

    def _succeeded(self, uid: str, claim: Claim, volume: str, handle: str) -> None:
        findings = self._table.findings(uid)
        self._table.advance(uid, Stored.at(self._clock(), handle))
        self._reports.attempts.succeeded(uid, self._clock())
        if volume not in self._caches.volumes:
            self._table.stored(volume, handle)
        if findings.source.source is not None:
            self._table.learn(uid, replace(findings, source=replace(findings.source, source=None)))
        record = self._table.records.get(uid)
        if record is not None and record.request.name == volume:
            self._creations.end(uid)
        if uid not in self._caches.claims:
            self._table.forget(uid)  # it was deleted meanwhile, so no event of it will come that could lead here
        seconds = self._clock() - findings.creating_since if findings.creating_since is not None else 0.0
        self._metrics.provisioned(claim.class_name, claim.source.kind if claim.source else "", seconds)
        self._reports.tell(claim, names.NORMAL, names.PROVISIONING_SUCCEEDED, f"Successfully provisioned volume {volume}")
        log.info("Claim provisioned", extra={"fields": {"claim": claim.full_name, "uid": uid, "volume": volume}})
