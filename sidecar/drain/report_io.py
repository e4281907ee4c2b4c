"""Writes the report, and which pods are held as soon as a drain begins; takes back at the start what an earlier process has said.

What is stored is read at the start, at every heartbeat and after every write that failed: then another one follows, on what was read, so
that a write which was not answered and arrives late is refused.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from sidecar.drain import report
from sidecar.drain.assess import Verdict
from sidecar.drain.gate import HeldPods
from sidecar.drain.node_io import HEARTBEAT, unsay, version_of
from sidecar.drain.settings import Settings
from sidecar.drain.words import Reason, Status
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MERGE_PATCH, NODES, KubeApi, find
from sidecar.kube.errors import AlreadyExists, NotFound
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

_INSTALL: Final = "install the CustomResourceDefinition of deploy/components/drain"
JUST_STARTED: Final = Verdict(
    Status.UNKNOWN, Reason.NOT_KNOWN, "the sidecar has just started: it judges the node when its driver answers and everything is listed"
)
NOT_JUDGED: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "the node is not judged any more: --drain-report is switched off")


class ReportWriter:
    """One per process. Raises ApiError."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float]) -> None:
        self._kube, self._settings, self._clock = kube, settings, clock
        self._name = names.drain_report(settings.node, settings.driver)
        self._writing = asyncio.Lock()  # what is held is written at any moment, and must not be overtaken by a report that was made before
        self.stored: Json | None = None  # as this process has read or written it last; None: there is none, or it is not known
        self._read_at: float | None = None
        self._may_arrive = False  # a write was not answered: until another one has been, it may be carried out

    async def recall(self) -> None:
        """Read what an earlier process, or anybody else, has stored, if that is due."""
        if self._read_at is None or self._clock() - self._read_at >= HEARTBEAT:
            async with self._writing:
                self.stored = await find(self._kube, DRAIN_REPORTS, self._name)
                self._read_at = self._clock()

    async def write(self, new: Json, *, held: Callable[[], HeldPods]) -> None:
        """Where it says something else, or at the latest after a heartbeat. `held`: as it is at that moment, which may be later than the
        report was made."""
        async with self._writing:
            stored = self.stored
            new = {**new, "status": {**new["status"], **held().as_json()}}
            seen = timestamps.to_seconds(str(((stored or {}).get("status") or {}).get("observedAt") or ""))
            now = timestamps.to_seconds(new["status"]["observedAt"])
            fresh = seen is not None and now is not None and 0 <= now - seen < HEARTBEAT and not self._may_arrive
            if stored is not None and fresh and not report.differs(stored, new["status"]) and report.head_patch(stored, new) is None:
                return
            self.stored, self._read_at, self._may_arrive = None, None, True
            if stored is None:
                stored = await self._create(new)
            if (patch := report.head_patch(stored, new)) is not None:
                stored = await self._kube.patch(DRAIN_REPORTS, self._name, patch, content_type=MERGE_PATCH)
            await self._write_status(stored, {**new["status"], **held().as_json()})

    async def write_held(self, held: Callable[[], HeldPods]) -> None:
        """Into the report that is stored, at once: the drainer evicts a moment after its cordon. Where none is stored the next look does
        it."""
        async with self._writing:
            stored = self.stored
            if stored is None or self._settings.dry_run:
                return
            status = {**(stored.get("status") or {}), **held().as_json()}
            if status != stored.get("status"):
                await self._write_status(stored, status)

    async def _create(self, new: Json) -> Json:
        """The one that is there is as good. Without status: where the type has no status of its own, nobody could take that back."""
        head = {key: value for key, value in new.items() if key != "status"}
        try:
            return await self._kube.create(DRAIN_REPORTS, head)
        except AlreadyExists:
            return await self._kube.get(DRAIN_REPORTS, self._name)
        except NotFound as error:
            raise NotFound(f"NodeDrainReports are not served: {_INSTALL}", status=404) from error

    async def _write_status(self, stored: Json, status: Json) -> None:
        """Until it is answered nothing is known of what is stored; the answer says all of it."""
        self.stored, self._read_at, self._may_arrive = None, None, True
        try:
            self.stored = await put_status(self._kube, stored, status)
        except NotFound as error:
            raise NotFound(f"the report is gone, or NodeDrainReports have no status of their own: {_INSTALL}", status=404) from error
        self._read_at, self._may_arrive = self._clock(), False


async def put_status(kube: KubeApi, stored: Json, status: Json) -> Json:
    """On condition of the version. Raises ApiError."""
    name, patch = stored["metadata"]["name"], report.status_patch(status, version=version_of(stored))
    return await kube.patch(DRAIN_REPORTS, name, patch, content_type=JSON_PATCH, subresource="status")


async def take_back(kube: KubeApi, settings: Settings, *, wall: Callable[[], float]) -> None:
    """At the start, before anything is listed: until this process has judged the node, both verdicts are Unknown. Raises ApiError."""
    said, now = JUST_STARTED if settings.judges else NOT_JUDGED, wall()
    node = await find(kube, NODES, settings.node)
    if node is not None:
        await unsay(kube, node, settings.driver, said, now=now)
    stored = await find(kube, DRAIN_REPORTS, names.drain_report(settings.node, settings.driver))
    status = (stored or {}).get("status") or {}
    before = status.get("verdicts")
    if stored is None or node is None or status.get("nodeUID") != node["metadata"]["uid"] or not before:
        return
    if any((before.get(key) or {}).get("status") != Status.UNKNOWN for key in ("drain", "retire")):
        await put_status(kube, stored, status | report.verdicts(said, said, before={}, at=timestamps.to_text(now)))
