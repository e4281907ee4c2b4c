"""Judges the node in each look: asks for what has to be known, and for what an earlier process has stored; the rules: `assess`."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.assembly import assemble
from sidecar.drain.facts.lookups import Lookups
from sidecar.drain.facts.never_used import NeverUsed
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.facts.untracked import Untracked
from sidecar.drain.judgement.acknowledged import FORGOTTEN, NOT_KNOWN_YET, NOT_REMEMBERED, is_acknowledged
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.judgement.new_uses import NewUses
from sidecar.drain.publish import stored
from sidecar.drain.publish.controller import ReportWriter
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Intent, Status
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Volume


class JudgementDuty:
    """What cannot be learnt makes verdicts Unknown; it is not a failure of the look. What may not be read is told all the same."""

    def __init__(
        self,
        settings: Settings,
        lookups: Lookups,
        *,
        reports: ReportWriter,
        never_used: NeverUsed,
        untracked: Untracked,
        new_uses: NewUses,
        absence: Absence,
        put_back: Callable[[Iterable[Pod]], frozenset[str]],
        refusals: Refusals,
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._lookups = lookups
        self._reports = reports
        self._never_used = never_used
        self._untracked = untracked
        self._new_uses = new_uses
        self._absence = absence
        self._put_back = put_back
        self._refusals = refusals
        self._wall = wall
        self._recalled_for = ""
        """The uid of the node of which it is known what an earlier process found there."""
        self._opened: frozenset[Intent] = frozenset()
        """What the last look found True for whoever empties the node."""

    async def perform(self, picture: Picture) -> Outcome:
        # The stored report comes first: what was acknowledged is known from it alone.
        await self._refusals.attempt("the report", self._reports.recall(picture.node))
        self._recall(picture.node)
        snapshot, assessment = await self._assess(picture.node, picture.signals)
        if self._is_news(assessment, picture.signals):
            # A word may have been taken back, or a pod made again, since the API server was asked.
            snapshot, assessment = await self._assess(picture.node, picture.signals, anew=True)
        self._opened = _opening(assessment, picture.signals, self._settings)
        self._refusals.left_unread(self._lookups.forbidden)
        changes_in = self._lookups.changes_in
        return Outcome(
            replace(picture, snapshot=snapshot, assessment=assessment), until=None if changes_in is None else self._wall() + changes_in
        )

    def _recall(self, node: Node) -> None:
        """Once: from then on this process sees for itself which volumes are here."""
        if self._reports.recalled and self._recalled_for != node.uid:
            self._recalled_for = node.uid
            hidden = stored.hidden(self._reports.previous, node_uid=node.uid)
            if hidden is None:
                self._lookups.recall(stored.blocking_volumes(self._reports.previous, node_uid=node.uid), hidden=False)
            else:
                # What the driver lists it says again; where it does not any more, the volume is gone from here.
                self._lookups.recall((item.volume for item in hidden if not item.listed), hidden=True)

    def _is_news(self, assessment: Assessment, signals: Signals) -> bool:
        """From now on something may happen to the node that could not before: its gate opens, or its evacuation succeeds."""
        return not _opening(assessment, signals, self._settings) <= self._opened

    async def _assess(self, node: Node, signals: Signals, *, anew: bool = False) -> tuple[Snapshot, Assessment]:
        """Where volumes could go is looked at only if some are to go elsewhere, and somebody empties the node."""
        facts, now = await self._lookups.facts(node, observed=signals.observed, anew=anew), self._wall()
        assembled = assemble(facts, now=now, default_policy=self._settings.default_policy)
        new = self._used_again(node, facts.volumes)
        void = stored.void_acknowledgements(self._reports.previous, facts.volumes, node_uid=node.uid, now=now)
        snapshot = replace(
            assembled,
            ignorance=(*assembled.ignorance, *self._forgotten(facts.volumes)),
            not_remembered=self._not_remembered(facts.volumes),
            untracked=self._untracked.handles,
            untracked_unknown=self._untracked.unknown,
            untracked_blocks=self._settings.untracked_blocks,
            put_back=self._put_back(facts.pods),
            reprovisions=self._settings.reprovisions,
            never_used=self._never_used.names(),
            void_acknowledgements=void | new,
            pods_seen=self._absence.seen_up_to,
            node_policy=self._settings.policy,
        )
        assessment = assess(snapshot)
        if not signals.observed or not assessment.asks_for_places:
            return snapshot, assessment
        before = len(self._lookups.ignorance)
        surroundings = await self._lookups.surroundings()
        ignorance = (*self._lookups.ignorance[before:], *snapshot.ignorance)
        snapshot = replace(snapshot, surroundings=surroundings, ignorance=ignorance)
        return snapshot, assess(snapshot)

    def _used_again(self, node: Node, volumes: Iterable[Volume]) -> frozenset[str]:
        """As `Snapshot.void_acknowledgements`. What pods did while nobody watched is asked for where a use would make a difference."""
        if not self._reports.recalled:
            return frozenset()
        remembered = stored.remembered(self._reports.previous, node_uid=node.uid)
        if any(item.may_be_used for item in remembered):
            self._absence.ask(stored.pods_seen(self._reports.previous, node_uid=node.uid))
        else:
            self._absence.forget()
        if (missed := self._absence.take()) is not None:
            self._new_uses.begun.missed(missed)
        return self._new_uses.void(remembered, volumes)

    def _forgotten(self, volumes: Iterable[Volume]) -> tuple[str, ...]:
        """The report is the memory of acknowledgements. Without it none may be believed."""
        return (FORGOTTEN,) if not self._reports.recalled and _any_acknowledged(volumes) else ()

    def _not_remembered(self, volumes: Iterable[Volume]) -> str:
        """What is not stored is forgotten at the next restart; and what happened before this one has to be known."""
        if not self._reports.recalled or not _any_acknowledged(volumes):
            return ""
        return NOT_REMEMBERED if not self._reports.remembers else "" if self._absence.seen_up_to else NOT_KNOWN_YET


def _any_acknowledged(volumes: Iterable[Volume]) -> bool:
    return any(is_acknowledged(volume.notes) for volume in volumes)


def _opening(assessment: Assessment, signals: Signals, settings: Settings) -> frozenset[Intent]:
    """The verdicts that are True and let somebody act who empties the node now."""
    if not signals.observed:
        return frozenset()
    asked = {Intent.RETIRE, signals.intent or settings.gate_assumes}
    return frozenset(intent for intent in asked if assessment.verdict(intent).status is Status.TRUE)
