"""Writes what others see of a judgement: the report (`report`), and our marks and conditions on the Node (`on_node`).

New is compared with what is stored, not with what was written last: others may have edited it. So it is read at the start, at every
heartbeat and after every write that failed.

A write that was not answered may still arrive, after later ones. So each one of a verdict names the version that it was based on, and
after one that failed another follows even where it says what is stored: what comes then is refused.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.evacuation.controller import EvacuationEvents
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import events, on_node, overtaken, report, stored
from sidecar.drain.publish.on_node import needs_protection, summary_mark
from sidecar.drain.publish.own_node_io import OwnNode
from sidecar.drain.publish.report import HEARTBEAT, ReportContext
from sidecar.drain.publish.stored import NOTHING_HELD
from sidecar.drain.refusals_io import URGENT, Refusals
from sidecar.drain.settings import Settings
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MERGE_PATCH, NODES, STRATEGIC_MERGE_PATCH, KubeApi, find
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable
from sidecar.kube.events.recorder import Recorder
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

# Seconds after the start in which an Unknown is no news: what it lacks may only not be listed yet.
_SETTLES_WITHIN: Final = 60.0
# Seconds until another look, once acknowledgements can be remembered.
_PACE: Final = 1.0
# Of a write to the Node, which the kubelet and others write too: what they write in between is no failure. After a slow answer it is
# left to the next look, because the rest of this one waits.
_ATTEMPTS: Final = 3
_QUICK: Final = 1.0
CONDITIONS: Final = "the node's conditions"
_INSTALL: Final = "install the CustomResourceDefinition of deploy/components/drain/crd.yaml"
_MISSING: Final = f"NodeDrainReports are not served: {_INSTALL}"
_NO_STATUS: Final = f"NodeDrainReports are served, but have no status of their own: {_INSTALL}"


class ReportWriter:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._writing = asyncio.Lock()
        """What is held is written at any moment, and must not be overtaken by a report that was made before."""
        self.held = NOTHING_HELD
        """As of now, for whatever is written next."""
        self._stored: Json | None = None
        self._made: Json | None = None
        self._shown: Json | None = None
        """The stored report as it was last seen: a write that failed may have left it as it was."""
        self._unsaved = False
        """The last report that was made could not be stored, so the stored one is out of date."""
        self._version = ""
        """Of the stored report; empty: not known."""
        self._may_arrive: list[Json] = []
        """Reports that were sent and not answered, since the last one that was stored."""
        self._report_read_at: float | None = None
        self._conditions: list[Json] = []
        self._conditions_may_arrive: list[Json] = []
        self._conditions_written_at: float | None = None
        self._node_uid = ""
        self.recalled = False
        """The stored report has been read, or there is none. Before that earlier events are not known, and none is written."""
        self.remembers = False
        """What was read, or stored, has room for acknowledgements. A type of an earlier release drops them without a word."""

    @property
    def previous(self) -> Json | None:
        """The stored report, or the last one made if it could not be stored."""
        return self._made if self._unsaved else self._stored or self._made

    async def recall(self, node: Node) -> None:
        """Read what an earlier process, or anybody else, has stored. Raises ApiError."""
        if node.uid != self._node_uid:
            self._stored = self._made = self._shown = self._report_read_at = self._conditions_written_at = None
            self._conditions, self._node_uid, self._unsaved, self.recalled = [], node.uid, False, False
            self._may_arrive, self._conditions_may_arrive = [], []
            self.remembers = self._settings.dry_run
        async with self._writing:
            await self._recall(node)

    async def _recall(self, node: Node) -> None:
        if self._is_due(self._report_read_at):
            self._stored = await find(self._kube, DRAIN_REPORTS, names.drain_report(node.name, self._settings.driver))
            self._report_read_at, self.recalled = self._clock(), True
            self._shown, self._version = self._stored, _version(self._stored)
            self._notice(self._stored)

    async def write_report(self, assessment: Assessment, context: ReportContext, *, now: float) -> None:
        """Raises ApiError if it could not be stored; what was made is remembered all the same."""
        async with self._writing:
            await self._write_report(assessment, replace(context, held=self.held), now=now)

    async def _write_report(self, assessment: Assessment, context: ReportContext, *, now: float) -> None:
        new = report.body(assessment, previous=self.previous, agent=self._settings.agent, context=context)
        self._made = new
        if self._settings.dry_run:
            return
        is_right = self._stored is not None and not report.differs(self._stored, new) and not report.is_stale(self._stored, now=now)
        if is_right and not self._unsaved:
            return
        old, self._stored, self._unsaved = self._stored, None, True
        try:
            served = await self._store(old, new)
        except ApiError as error:
            self._report_read_at = None
            self._may_arrive += [new] if isinstance(error, Unavailable) else []
            raise
        self._notice(served)
        self._stored, self._shown, self._unsaved, self._may_arrive = new, new, False, []
        self._version = _version(served)

    async def write_held(self) -> None:
        """Into the report that is stored, and nothing else. Raises ApiError; then the next look writes the whole report."""
        async with self._writing:
            old, held = self._stored, self.held
            if old is None or self._unsaved or self._settings.dry_run or not stored.of_this_node(stored.status_of(old), self._node_uid):
                return  # the next look writes the whole report
            new = {**old, "status": {**stored.status_of(old), **held.as_json()}}
            if new == old:
                return
            # Of a write that gets no answer it is not known what is stored: the next look reads it, and writes it anew.
            self._made, self._unsaved, read_at, self._report_read_at = new, True, self._report_read_at, None
            name, patch = old["metadata"]["name"], report.held_patch(held, resource_version=self._version)
            served = await self._kube.patch(DRAIN_REPORTS, name, patch, content_type=JSON_PATCH, subresource="status")
            self._stored, self._shown, self._version = new, new, _version(served)
            self._unsaved, self._report_read_at = False, read_at

    async def write_conditions(self, assessment: Assessment) -> None:
        """Raises ApiError if they could not be stored."""
        wanted = on_node.conditions(assessment, self._conditions)
        if not on_node.conditions_differ(self._conditions, wanted) and not self._is_due(self._conditions_written_at):
            return
        self._conditions_written_at, began = None, self._clock()
        for attempt in range(_ATTEMPTS):
            try:
                wanted = await self._write_conditions(assessment)
                break
            except Conflict:
                if attempt == _ATTEMPTS - 1 or self._clock() - began > _QUICK:
                    raise
        ours = {condition["type"] for condition in wanted}
        self._conditions = [condition for condition in self._conditions if condition.get("type") not in ours] + wanted
        self._conditions_written_at, self._conditions_may_arrive = self._clock(), []

    async def _write_conditions(self, assessment: Assessment) -> list[Json]:
        """As they are written, on condition that the Node is as it has just been read."""
        node = await self._kube.get(NODES, assessment.node)
        self._conditions = list((node.get("status") or {}).get("conditions") or ())
        wanted = on_node.conditions(assessment, self._conditions)
        if not self._settings.dry_run:
            patch = on_node.conditions_patch(wanted, node_uid=assessment.node_uid, resource_version=_version(node))
            try:
                await self._kube.patch(NODES, assessment.node, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
            except Unavailable:
                self._conditions_may_arrive += wanted
                raise
        return wanted

    def _notice(self, served: Json | None) -> None:
        """How the API server keeps a report, of which it serves no more than its type knows."""
        if status := stored.of_this_node(stored.status_of(served), self._node_uid):
            self.remembers = self._settings.dry_run or stored.has_memory(status)

    def is_overtaken(self, assessment: Assessment) -> bool:
        """The conditions or the report say True, or may do so in a moment, where this assessment does not."""
        reports = (self._shown, *self._may_arrive)
        return overtaken.conditions([*self._conditions, *self._conditions_may_arrive], assessment) or any(
            overtaken.report(stored.status_of(each), assessment) for each in reports
        )

    async def _store(self, old: Json | None, new: Json) -> Json:
        """As it is served then."""
        name, version = new["metadata"]["name"], self._version
        if old is None:
            version = _version(await self._create(new))
        elif report.owner_differs(old, new):
            version = _version(await self._kube.patch(DRAIN_REPORTS, name, report.owner_patch(new), content_type=MERGE_PATCH))
        patch = report.status_patch(new, resource_version=version)
        try:
            return await self._kube.patch(DRAIN_REPORTS, name, patch, content_type=JSON_PATCH, subresource="status")
        except NotFound as error:
            if old is None:
                raise NotFound(_NO_STATUS, status=404) from error
            raise

    async def _create(self, new: Json) -> Json:
        """The one that is there is as good. It says nothing yet: where the type has no status of its own nobody could take that back."""
        try:
            return await self._kube.create(DRAIN_REPORTS, {key: value for key, value in new.items() if key != "status"})
        except AlreadyExists:
            return await self._kube.get(DRAIN_REPORTS, new["metadata"]["name"])
        except NotFound as error:
            self.remembers = False
            raise NotFound(_MISSING, status=404) from error

    def _is_due(self, at: float | None) -> bool:
        return at is None or self._clock() - at >= HEARTBEAT


def _version(obj: Json | None) -> str:
    return str(((obj or {}).get("metadata") or {}).get("resourceVersion") or "")


class MarksDuty:
    """Writes our marks on the Node as this look has decided them, then the event about it: no event without its mark."""

    def __init__(self, settings: Settings, own_node: OwnNode, evacuation_events: EvacuationEvents, *, wall: Callable[[], float]) -> None:
        self._settings = settings
        self._own_node = own_node
        self._evacuation_events = evacuation_events
        self._wall = wall

    async def perform(self, picture: Picture) -> Outcome:
        settings, judged = self._settings, picture.assessment
        marks = on_node.wanted(picture.signals, settings.driver, standing=picture.standing, decision=picture.evacuation)
        if judged is None:
            await self._own_node.mark(picture.node, marks, protect=False)
            return Outcome(picture)
        protect = needs_protection(enabled=settings.protects, retire=judged.retire.status, overridden=picture.overridden)
        if await self._own_node.mark(picture.node, marks | summary_mark(judged, picture.node.annotations), protect=protect) is not None:
            self._evacuation_events.tell(picture.node, picture.evacuation)
            return Outcome(picture)
        said = picture.node.annotations.get(names.of_driver(settings.driver, names.DRAIN_SUMMARY))
        return Outcome(picture, until=self._wall() + URGENT if overtaken.summary(said, judged) else None)


class ReportDuty:
    """Shows the assessment to everybody: the Node's conditions, events and the report.

    Events come before the report that remembers they were told. They are written in the background, so a process that is killed in
    between may omit one.
    """

    def __init__(
        self,
        settings: Settings,
        reports: ReportWriter,
        *,
        recorder: Recorder,
        refusals: Refusals,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._settled_at = clock() + _SETTLES_WITHIN
        self._settings = settings
        self._reports = reports
        self._recorder = recorder
        self._refusals = refusals
        self._wall = wall

    async def perform(self, picture: Picture) -> Outcome:
        assessment, signals = picture.assessment, picture.signals
        assert assessment is not None
        await self._refusals.attempt(CONDITIONS, self._reports.write_conditions(assessment))
        if not self._reports.recalled:
            # Which events were written is not known, and the report that knows must not be overwritten.
            return Outcome(picture, until=self._again(assessment))
        before, settling = stored.status_of(self._reports.previous) or None, self._clock() < self._settled_at
        if not self._settings.dry_run:
            for event in events.events(before, assessment, observed=signals.observed, intent=signals.purpose, settling=settling):
                self._recorder.record(event.ref, event.type_, event.reason, event.message)
        source = str(signals.source) if signals.intent else ""
        context = replace(
            picture.notes,
            observed=signals.observed,
            intent=signals.intent,
            intent_source=source,
            purpose=signals.purpose,
            settling=settling,
        )
        remembered = self._reports.remembers
        await self._refusals.attempt("the report", self._reports.write_report(assessment, context, now=self._wall()))
        # Acknowledgements count from the moment on at which they can be remembered: another look finds them.
        begins_to_count = self._reports.remembers and not remembered
        return Outcome(picture, until=self._wall() + _PACE if begins_to_count else self._again(assessment))

    def _again(self, assessment: Assessment) -> float | None:
        """A True that could not be taken back does not wait for as long as the rest of what was refused."""
        wrong = not self._settings.dry_run and self._reports.is_overtaken(assessment)
        return self._wall() + URGENT if wrong else None
