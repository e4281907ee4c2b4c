"""Looks at claims, decides by `rules` and has the decision carried out: by the files in `effects`, one for each kind of effect.

Progress that outlives one look (a race, a creation that may still be running, a volume whose object is not stored yet)
is a value per claim, never a stack frame: a worker that is done with a look holds nothing.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, assert_never

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.losses import NO_LOSS, creation
from sidecar.csi.outcome import measure
from sidecar.engine.loop import WORK, NeedsWork
from sidecar.kube.api import CLAIMS
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.local.volume_location import lies_here
from sidecar.model import names
from sidecar.model.objects import Claim, Volume
from sidecar.model.standing import OPEN, Standing
from sidecar.ownership import rules as ownership
from sidecar.ownership.controller import Contenders
from sidecar.ownership.local_delay import LocalDelay
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.ownership.roster import Roster
from sidecar.provisioning.creations.confirming_io import Confirming
from sidecar.provisioning.creations.creation_record import CreationRecord, deletion_to_end
from sidecar.provisioning.creations.journal import Journal, NoJournal
from sidecar.provisioning.decisions import (
    Bid,
    ClaimDecision,
    CleanUp,
    Create,
    DeleteAgain,
    Fetch,
    Ignore,
    Leave,
    Measure,
    Protect,
    Refuse,
    Release,
    Reschedule,
    Store,
    Suspect,
    Tell,
    Wait,
)
from sidecar.provisioning.deletion_io import Deletion
from sidecar.provisioning.effects.bidding import Bidder
from sidecar.provisioning.effects.creation import Creator
from sidecar.provisioning.effects.creation_log import CreationLog
from sidecar.provisioning.effects.deleting import Deleter, RecordedDeletion
from sidecar.provisioning.effects.handback import HandBack
from sidecar.provisioning.effects.protecting import SourceProtector
from sidecar.provisioning.effects.reporting import ClaimReports
from sidecar.provisioning.effects.shared import Shared
from sidecar.provisioning.effects.storing import Storer
from sidecar.provisioning.effects.undoing import Undoer
from sidecar.provisioning.handle_holders_io import HandleHolders
from sidecar.provisioning.lookups import Lookups
from sidecar.provisioning.needs import CLAIM
from sidecar.provisioning.progress import Racing, Stored, competes, created_for, race_of, with_race
from sidecar.provisioning.progress_table import ProgressTable
from sidecar.provisioning.promises import Promises
from sidecar.provisioning.release_rules import next_turn
from sidecar.provisioning.removal import Removal
from sidecar.provisioning.rules import decide, is_try
from sidecar.provisioning.view import ClaimView
from sidecar.rights.rights import FinalizerWrites
from sidecar.tools import Tools

_ONCE_IN: Final = 1.0
"""Seconds."""


class Provisioner:
    """One instance per process. `handle_claim` is given to the loop; it returns when to look again. `removal` does that for volumes."""

    def __init__(
        self,
        tools: Tools,
        *,
        here: Callable[[], Here],
        caches: Caches,
        space: ReservedSpace,
        attachments_known: Callable[[], bool],
        table: ProgressTable,
        contenders: Contenders | None = None,
        hearing: Callable[[], bool] = lambda: True,
        watched: Callable[[], str] = lambda: "",
        journal: Journal | None = None,
        snapshot_protected: Callable[[], None] = lambda: None,
        standing: Callable[[], Standing] = lambda: OPEN,
        finalizers: Callable[[], FinalizerWrites] = lambda: FinalizerWrites.BY_PATCH,
        on_forbidden: Callable[[], None] = lambda: None,
    ) -> None:
        self._here = here
        self._driver = tools.driver
        self._kube = tools.kube
        self._caches = caches
        self._metrics = tools.metrics
        self._retry = tools.retry
        self._losses = tools.losses
        self._clock = tools.clock
        self._chance = tools.rng
        self._space = space
        self._dry_run = tools.dry_run
        self._table = table
        self._promises = Promises(here=here, caches=caches, table=table, space=space)
        self._contenders = contenders
        self._hearing = hearing
        self._delay = LocalDelay(watched=watched)
        self._has_begun = False
        self._woken: dict[str, float] = {}
        """By class: when claims that waited for room were last woken, or will be."""
        self._standing = standing
        self._finalizers = finalizers
        self._lookup = Lookups(tools.kube)
        self._reports = ClaimReports(tools)
        self.claim_attempts = self._reports.attempts
        self.creations = CreationLog(table=table, journal=journal or NoJournal(), losses=tools.losses)
        held = partial(caches.volumes.by_index, "handle")
        deletion = Deletion(here=here, kube=tools.kube, driver=tools.driver, clock=tools.clock, held=held)
        shared = Shared(
            tools=tools,
            here=here,
            caches=caches,
            space=space,
            table=table,
            creations=self.creations,
            confirming=Confirming(here=here, kube=tools.kube, on_damage=tools.metrics.journal_damage),
            holders=HandleHolders(kube=tools.kube, caches=caches, table=table, deletion=deletion, retry=tools.retry, clock=tools.clock),
            reports=self._reports,
            lookup=self._lookup,
            standing=standing,
            snapshot_protected=snapshot_protected,
        )
        self._bidder = Bidder(shared, delay=self._delay, promise=self._promises.of, contenders=contenders)
        self._protector = SourceProtector(shared)
        recorded = RecordedDeletion(deletion, self.creations, table)
        self._deleter = Deleter(shared, deletion=recorded)
        self._undoer = Undoer(shared, deletion=recorded)
        self._storer = Storer(shared, undoer=self._undoer)
        self._hand_back = HandBack(shared, view=self.claim_view)
        self._creator = Creator(shared, storer=self._storer, undoer=self._undoer, hand_back=self._hand_back)
        self.removal = Removal(
            tools,
            here=here,
            caches=caches,
            space=space,
            table=table,
            lookup=self._lookup,
            deletion=deletion,
            attachments_known=attachments_known,
            finalizers=finalizers,
            on_forbidden=on_forbidden,
        )

    def concerns(self, uid: str) -> bool:
        """Whether a claim must stay in the cache although another node has it, or a volume does: something here is under way."""
        return self._table.concerns(uid)

    def namespace_of(self, uid: str) -> str:
        """For the turns of namespaces: no tenant's claims make another wait for all of them, not even those that are gone."""
        claim = self._caches.claims.get(uid) or self._table.records.get(uid)
        return claim.namespace if claim is not None else ""

    def claim_view(self, uid: str) -> ClaimView:
        """The picture of one claim. Nothing here waits, so it is one consistent moment."""
        progress = self._table.progress(uid)
        now, here, cached = self._clock(), self._here(), self._caches.claims.get(uid)
        claim = cached or created_for(progress)
        record = self._table.records.get(uid) or self._begun_deletion(cached, here)
        name = record.request.name if record else here.volume_name(claim.uid) if claim else None
        return ClaimView(
            now=now,
            here=here,
            chance=self._chance(),
            claim=claim,
            gone=cached is None,
            class_=self._caches.classes.get(claim.class_name) if claim else None,
            volume=(self._volume_here(name) or self._volume_of(claim)) if name else None,
            progress=progress,
            findings=self._table.findings(uid),
            roster=self._roster(claim) if claim else None,
            local_delay=self._delay.now(now, claim.namespace if claim else ""),
            watch_down=not self._hearing(),
            record=record,
            volume_here=self._volume_here(claim.volume_name) if claim and claim.is_source else None,
            clones=self._clones(claim) if claim and claim.is_source and claim.deleting else (),
            source_here=self._source_here(claim) if claim else True,
            standing=self._standing(),
            loss=self._losses.of(record.call if record else creation(name)) if name else NO_LOSS,
            sent_until=self._undoer.sent_until(uid),
            pace=self.claim_attempts.pace(uid, now),
            finalizers=self._finalizers(),
        )

    def _begun_deletion(self, claim: Claim | None, here: Here) -> CreationRecord | None:
        """The claim waits here for a volume that was left to people when its deletion had been begun: flags for names have been taken back.
        It may still be deleted, so the claim is not given it before the driver has said how that ended."""
        if claim is None or claim.volume_name or claim.selected_node != here.node:
            return None
        return deletion_to_end(self._table.records.suspect(claim.uid, here.volume_name(claim.uid)))

    def _clones(self, claim: Claim) -> tuple[str, ...]:
        asked = self._caches.claims.by_index("source", claim.full_name)
        return tuple(sorted(other.full_name for other in asked if not other.volume_name))

    def _source_here(self, claim: Claim) -> bool:
        """A clone is made where its source is; whose volume that is, the local ones tell."""
        source = claim.source
        if source is None or source.kind != CLAIM or not self._here().with_topology:
            return True
        volumes = self._caches.volumes.by_index("claim", f"{source.namespace}/{source.name}")
        return any(lies_here(self._here(), volume) for volume in volumes)

    def _volume_here(self, name: str) -> Volume | None:
        """For drain decisions the cache also holds volumes that people made, of which this room cannot tell where they lie."""
        volume = self._caches.volumes.get(name)
        return volume if volume and lies_here(self._here(), volume) else None

    def _volume_of(self, claim: Claim | None) -> Volume | None:
        """The claim's own, whatever it is called: the flags for names may have changed since."""
        named = self._caches.volumes.by_index("claim", claim.full_name) if claim else ()
        own = (volume for volume in named if claim and volume.claim and volume.claim.uid == claim.uid)
        return next((volume for volume in own if lies_here(self._here(), volume)), None)

    def _roster(self, claim: Claim) -> Roster | None:
        return self._contenders.roster(claim.class_name, claim.uid, claim.label) if self._contenders else None

    def waiting(self) -> set[str]:
        """The namespaces of claims that found no room here."""
        return self._table.waiting.namespaces()

    def room_grew(self, classes: frozenset[str], answer: CapacityAnswer, promised: int) -> list[tuple[str, float]]:
        """The claims that found no room here, and would now, with when to look at them: the longest waiting ones, as many as would fit, and
        those of each class once a second at most. What is measured then may be growth too."""
        now, found = self._clock(), list[tuple[str, float]]()
        self._woken = {name: at for name, at in self._woken.items() if at > now - _ONCE_IN}
        soonest = {name: at if at > now else at + _ONCE_IN for name, at in self._woken.items()}
        fitting = self._table.waiting.fitting(classes, lambda size: not ownership.lacks_room(answer, size, promised))
        for uid, race in self._table.hindered_races(list(fitting)):
            claim = self._caches.claims.get(uid)
            if claim is None or claim.selected_node or claim.class_name not in classes:
                continue
            if ownership.lacks_room(answer, claim.requested or 0, promised):
                continue
            promised += claim.requested or 0
            at = self._woken[claim.class_name] = min(soonest.get(claim.class_name, now), max(race.bid_at, now))
            self._table.advance(uid, with_race(self._table.progress(uid), ownership.room_grew(race, at)))
            found.append((uid, at))
        return found

    def blind_races(self) -> list[str]:
        """The claims whose turn was drawn while the contenders were not known."""
        return self._table.blind_races()

    def volume_gone(self, uid: str) -> None:
        """A volume of this node, made for that claim, is no more."""
        if uid in self._caches.claims:
            self._table.doubt(uid)

    def volumes_listed(self) -> None:
        """Every PersistentVolume was listed anew. What this process stored and the list does not have is doubted soon."""
        self._table.doubt_stored(self._clock(), shown=self._is_shown)

    def doubtful(self) -> list[str]:
        """The claims whose PersistentVolume this process stored and no watch has shown. No event leads to one that nobody binds."""
        return self._table.doubtful(self._clock(), shown=self._is_shown)

    def _is_shown(self, uid: str) -> bool:
        volume = self._caches.volumes.get(self._here().volume_name(uid))
        return volume is not None and volume.claim is not None and volume.claim.uid == uid

    def glance_at_claim(self, uid: str) -> float | NeedsWork | None:
        """What `handle_claim` returns where there is nothing to be done, which is most often."""
        if self._table.doubts(uid) or self._promises.of(uid) is not None:
            return WORK
        view = self._view_in_time(uid)
        decision = decide(view)
        if not isinstance(decision, Ignore | Wait):
            return WORK
        with self._promises.told(uid):
            self._reports.note(uid, view.claim, decision)
            return self._let_be(uid, view, decision)

    async def handle_claim(self, uid: str) -> float | None:
        """One look at a claim and at most two effects."""
        with self._promises.told(uid):
            return await self._look_at_claim(uid)

    def _view_in_time(self, uid: str) -> ClaimView:
        """How late this look is tells how late things are. A bid that has failed is not late before the end of its pause."""
        race, now = race_of(self._table.progress(uid)), self._clock()
        if race is not None and (turn := max(race.bid_at, self.claim_attempts.pace(uid, now).due)) < now:
            self._delay.late(now - turn, now, self.namespace_of(uid))
        return self.claim_view(uid)

    async def _look_at_claim(self, uid: str) -> float | None:
        if self._table.doubts(uid) and not await self._is_still_open(uid):
            return self._reports.later(uid)
        view = self._view_in_time(uid)
        if view.findings.release_turn is not None and view.findings.release_turn <= view.now:
            # A turn is for one look, whatever comes of it: else all would try again together when an outage ends.
            self._table.learn(uid, replace(view.findings, release_turn=next_turn(view)))
        decision = decide(view)
        if is_try(decision):
            several = not isinstance(decision, CleanUp | DeleteAgain)
            if (pace := self.claim_attempts.begun(uid, view.now, ends_pause=several)) != view.pace:
                view = replace(view, pace=pace)
        was_asked = False
        while isinstance(decision, Measure | Fetch):
            self._reports.note(uid, view.claim, decision)
            try:
                view = await self._learnt(uid, view, decision)
            except Unavailable as error:
                return self._reports.waits(uid) if view.claim is None else self._reports.unreachable(uid, view.claim, error)
            measured, decision = isinstance(decision, Measure), decide(view)
            was_asked = was_asked or measured
            if measured and isinstance(decision, Wait) and not view.standing.closed:
                self._metrics.insufficient_capacity()
        self._reports.note(uid, view.claim, decision)
        if isinstance(decision, Ignore | Wait):
            return self._let_be(uid, view, decision, was_asked=was_asked)
        return None if self._dry_run else await self._perform(uid, view, decision)

    async def _learnt(self, uid: str, view: ClaimView, decision: Measure | Fetch) -> ClaimView:
        if isinstance(decision, Measure):
            return await self._measured(uid, view, decision)
        return replace(view, facts={**view.facts, **await self._lookup.fetch(decision.refs)})

    async def _measured(self, uid: str, view: ClaimView, decision: Measure) -> ClaimView:
        class_name, namespace = (view.claim.class_name, view.claim.namespace) if view.claim else ("", "")
        promised = 0
        with self._space.promises.moment() as asked:
            free = await measure(self._driver, decision.query)
            if isinstance(free, CapacityAnswer):
                self._space.bid_for(class_name, free)
                promised = self._space.promised(class_name, free, besides=uid, namespace=namespace, since=asked)
        return replace(view, free=free, promised=promised, standing=self._standing())

    def _let_be(self, uid: str, view: ClaimView, decision: Ignore | Wait, *, was_asked: bool = False) -> float | None:
        """`was_asked`: the driver, for its free space, at this look."""
        if isinstance(decision, Ignore):
            self._settle(uid, view)
            # What was begun stood before all else: now that it is settled, the claim itself is looked at.
            is_over = view.record is not None and uid not in self._table.records
            return self._clock() if is_over and uid in self._caches.claims else None
        if decision.race is not None:
            self._table.advance(uid, Racing(decision.race))
            if (was_asked or decision.race.hindered_since is not None) and math.isfinite(decision.race.bid_at):
                self.claim_attempts.paused(uid, view.now, decision.race.bid_at)
        elif decision.doubts_then and isinstance(stored := self._table.progress(uid), Stored):
            self._table.advance(uid, replace(stored, doubt_from=decision.until))
        if decision.release_turn:
            self._table.learn(uid, replace(self._table.findings(uid), release_turn=decision.until))
        return decision.until

    async def _perform(self, uid: str, view: ClaimView, decision: ClaimDecision) -> float | None:
        match decision:
            case Tell(claim, race, why):
                self._table.advance(uid, Racing(race))
                self._reports.tell(
                    claim, names.WARNING, names.NO_NODE_TAKES_IT, why, once=names.shared_event(claim.name, claim.uid, "waits")
                )
                return self._clock()
            case Bid():
                return await self._bidder.bid(uid, view, decision)
            case Refuse(claim, why, settles, rarely):
                self._creator.give_up_space(uid, claim)
                until = self._reports.failed(uid, claim, why, tell=not settles or self.claim_attempts.count(uid) > 0)
                return self._clock() + self._retry.cap if rarely else until
            case Protect():
                return await self._protector.protect(uid, decision)
            case Release(claim):
                return await self._protector.release(uid, claim)
            case Leave(claim, why):
                self._creator.give_up_space(uid, claim)
                self._reports.tell(claim, names.NORMAL, names.PROVISIONING, why)
                return None
            case Create(claim):
                if isinstance(view.progress, Stored):
                    view = replace(view, progress=view.progress.lost(claim))
                return await self._creator.create(uid, view, decision)
            case CleanUp(record):
                return await self._undoer.clean_up(uid, record)
            case Suspect(record, why):
                return await self._undoer.suspect(uid, record, why)
            case DeleteAgain():
                return await self._deleter.delete_again(uid, decision)
            case Store():
                return await self._storer.store(uid, decision)
            case Reschedule():
                return await self._hand_back.reschedule(uid, decision)
            case Measure() | Fetch() | Ignore() | Wait():
                raise AssertionError(f"{decision} is nothing that could be performed")
            case _:
                assert_never(decision)

    async def _is_still_open(self, uid: str) -> bool:
        """Asks the API server itself. A claim that the cache still shows, while its volume has come and gone, may be long gone too."""
        claim = self._caches.claims.get(uid)
        try:
            fresh = Claim.of(await self._kube.get(CLAIMS, claim.name, namespace=claim.namespace)) if claim else None
        except ApiError:
            return False
        if claim is not None and fresh != claim:
            return False
        self._table.settle_doubt(uid)
        return True

    async def take_over(self) -> list[str]:
        """The claims for which processes that are gone have begun a creation."""
        uids = await self.creations.take_over()
        # Upstream, which may have been here until a moment ago, leaves no record. What came after this process began is nobody else's.
        known, self._has_begun = () if self._has_begun else self._caches.claims.keys(), True
        for uid in (*known, *uids):
            self._undoer.was_sent(uid)
        for record in filter(None, map(self._table.records.get, uids)):
            if record.losses:
                self._losses.remember(record.call, record.losses, self._clock())
            if (volume := self._volume_here(record.request.name)) is not None:
                self._table.records.show(volume)
        return uids

    def _settle(self, uid: str, view: ClaimView) -> None:
        """Nothing is to be done. What was remembered goes, unless the cache has yet to show what this process did."""
        progress = self._table.progress(uid)
        if isinstance(progress, Stored) and view.claim is not None and not view.claim.volume_name:
            return
        self.creations.end(uid)
        if competes(progress) and view.claim is not None and view.claim.selected_node not in ("", view.here.node):
            self._metrics.race_lost()
        self.claim_attempts.leaves(uid, self._clock())
        self._delay.dropped(uid)
        self._table.forget(uid)
