"""Performs what `rules` decided: the only file of this room that waits for the driver or the API server.

Progress that outlives one look (a race, a creation that may still be running, a volume whose object is not stored yet)
is a value per claim, never a stack frame: a worker that is done with a look holds nothing.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

from sidecar.csi.api import CapacityAnswer, Driver
from sidecar.csi.outcome import Done, DriverError, NeverSent, NoSpaceHere, Outcome, Refused, measure, of_failure
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.engine.loop import WORK, NeedsWork
from sidecar.kube.api import CLAIMS, VOLUMES, Change, KubeApi
from sidecar.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
    Withdrawn,
)
from sidecar.kube.recorder import ObjectRef, Recorder
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, Claim, Json, Volume
from sidecar.model.standing import OPEN, Standing
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.ownership import rules as ownership
from sidecar.ownership.controller import Contenders
from sidecar.ownership.lag import Lag
from sidecar.ownership.roster import Roster
from sidecar.ownership.rules import after_conflict
from sidecar.ownership.space import Promise, Space
from sidecar.provisioning import sources
from sidecar.provisioning import volume as volumes
from sidecar.provisioning.begun import Begun
from sidecar.provisioning.caches import UNSTORED, Caches
from sidecar.provisioning.journal import Journal, NoJournal
from sidecar.provisioning.leftovers import Again, Gone, Leftovers
from sidecar.provisioning.lookup import Lookup
from sidecar.provisioning.memory import Memory, Progress
from sidecar.provisioning.needs import CLAIM, SNAPSHOT
from sidecar.provisioning.removal import Removal
from sidecar.provisioning.rules import (
    Bid,
    ClaimDecision,
    CleanUp,
    Conclusion,
    Create,
    Fetch,
    Ignore,
    Leave,
    Measure,
    Protect,
    Refuse,
    Release,
    Remember,
    Reschedule,
    Retry,
    Store,
    Tell,
    Undo,
    Wait,
    conclude,
    decide,
    next_turn,
)
from sidecar.provisioning.secrets import SecretRef, deletion_secret
from sidecar.provisioning.view import ClaimView, Here, Infeasible
from sidecar.provisioning.volume_rules import lies_elsewhere, lies_here

log = logging.getLogger(__name__)

ROOM = "provisioning"


class Provisioner:
    """One instance per process. `handle_claim` is given to the loop; it returns when to look again. `removal` does that for volumes."""

    def __init__(
        self,
        *,
        here: Callable[[], Here],
        kube: KubeApi,
        driver: Driver,
        caches: Caches,
        recorder: Recorder,
        metrics: Metrics,
        narrator: Narrator,
        retry: Backoff,
        clock: Callable[[], float],
        chance: Callable[[], float],
        space: Space,
        attachments_known: Callable[[], bool],
        memory: Memory,
        contenders: Contenders | None = None,
        hearing: Callable[[], bool] = lambda: True,
        journal: Journal | None = None,
        snapshot_protected: Callable[[], None] = lambda: None,
        standing: Callable[[], Standing] = lambda: OPEN,
        dry_run: bool = False,
    ) -> None:
        self._here = here
        self._kube = kube
        self._driver = driver
        self._caches = caches
        self._recorder = recorder
        self._metrics = metrics
        self._narrator = narrator
        self._retry = retry
        self._clock = clock
        self._chance = chance
        self._space = space
        self._dry_run = dry_run
        self._memory = memory
        self._contenders = contenders
        self._hearing = hearing
        self._lag = Lag()
        self._journal: Journal = journal or NoJournal()
        self._snapshot_protected = snapshot_protected
        self._standing = standing
        self._lookup = Lookup(kube)
        self.removal = Removal(
            here=here,
            kube=kube,
            driver=driver,
            caches=caches,
            recorder=recorder,
            metrics=metrics,
            narrator=narrator,
            retry=retry,
            clock=clock,
            space=space,
            memory=memory,
            lookup=self._lookup,
            attachments_known=attachments_known,
            dry_run=dry_run,
        )
        self._leftovers = Leftovers(here=here, kube=kube, driver=driver, secrets=self._secret_for_clean_up)
        self.claim_attempts: Attempts[str] = Attempts()

    def concerns(self, uid: str) -> bool:
        """Whether a claim must stay in the cache although another node has it, or a volume does: something here is under way."""
        return self._memory.concerns(uid)

    def claim_view(self, uid: str) -> ClaimView:
        """The picture of one claim. Nothing here waits, so it is one consistent moment."""
        progress = self._memory.get(uid) or Progress()
        now, here, cached = self._clock(), self._here(), self._caches.claims.get(uid)
        claim, begun = cached or progress.remembered, self._memory.begun(uid)
        name = here.volume_name(claim.uid) if claim else begun.request.name if begun else None
        return ClaimView(
            now=now,
            here=here,
            chance=self._chance(),
            claim=claim,
            gone=cached is None,
            class_=self._caches.classes.get(claim.class_name) if claim else None,
            volume=self._volume_here(name) if name else None,
            race=progress.race,
            roster=self._roster(claim.class_name) if claim else None,
            lag=self._lag.now(now),
            deaf=not self._hearing(),
            begun=begun,
            remembered=progress.remembered is not None,
            unsaved=progress.unsaved,
            refusals=progress.refusals,
            volume_here=self._volume_here(claim.volume_name) if claim and claim.is_source else None,
            clones=self._clones(claim) if claim and claim.is_source and claim.deleting else (),
            stands_by=progress.stands_by,
            source_here=self._source_here(claim) if claim else True,
            unprotected=progress.unprotected,
            infeasible=progress.infeasible,
            stored=progress.stored,
            returning=progress.returning,
            standing=self._standing(),
            kept=progress.kept,
        )

    def promises(self) -> dict[str, Promise]:
        """By claim, what this node's claims will take that is not taken yet: selected, being bid for, or perhaps in creation."""
        mine = {claim.uid: claim for claim in self._caches.claims.by_index("node", self._here().node) if not claim.volume_name}
        claims = {**self._memory.pending(), **mine}
        return {uid: promise for uid, claim in claims.items() if (promise := self._promised(claim)) is not None}

    def _promise(self, uid: str) -> Promise | None:
        cached = self._caches.claims.get(uid)
        mine = cached is not None and cached.selected_node == self._here().node and not cached.volume_name
        claim = cached if mine else self._memory.pending_of(uid)
        return None if claim is None else self._promised(claim)

    def _promised(self, claim: Claim) -> Promise | None:
        if not claim.requested or claim.requested < 0 or not self._memory.takes_space(claim.uid):
            return None
        return None if self._here().volume_name(claim.uid) in self._caches.volumes else Promise(claim.class_name, claim.requested)

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

    def _roster(self, class_name: str) -> Roster | None:
        return self._contenders.roster(class_name) if self._contenders else None

    def room_grew(self, classes: frozenset[str], free: int) -> list[str]:
        """The claims that found no room here, may now, and are to be looked at: the longest waiting ones, as many as would fit."""
        found: list[str] = []
        for uid, progress in self._memory.races():
            claim = self._caches.claims.get(uid)
            if claim is None or claim.selected_node or claim.class_name not in classes or (claim.requested or 0) > free:
                continue
            free -= claim.requested or 0
            progress.race = ownership.room_grew(progress.race, self._clock()) if progress.race else None
            found.append(uid)
        return found

    def blind_races(self) -> list[str]:
        """The claims whose turn was drawn while the contenders were not known."""
        return self._memory.blind_races()

    def volume_gone(self, uid: str) -> None:
        """A volume of this node, made for that claim, is no more."""
        if uid in self._caches.claims:
            self._memory.doubt(uid)

    def glance_at_claim(self, uid: str) -> float | NeedsWork | None:
        """What `handle_claim` returns where there is nothing to be done, which is most often."""
        if self._memory.doubts(uid) or self._promise(uid) is not None:
            return WORK
        view = self._view_in_time(uid)
        decision = decide(view)
        if not isinstance(decision, Ignore | Wait):
            return WORK
        with self._promising(uid):
            self._note(uid, view.claim, decision)
            return self._let_be(uid, view, decision)

    async def handle_claim(self, uid: str) -> float | None:
        """One look at a claim and at most two effects."""
        with self._promising(uid):
            return await self._look_at_claim(uid)

    def _view_in_time(self, uid: str) -> ClaimView:
        """How late this look is tells how late things are."""
        progress, now = self._memory.get(uid), self._clock()
        if progress is not None and progress.race is not None and progress.race.bid_at < now:
            self._lag.late(now - progress.race.bid_at, now)
        return self.claim_view(uid)

    @contextmanager
    def _promising(self, uid: str) -> Iterator[None]:
        """What a look changes about the bytes this node owes, whoever publishes hears."""
        before = self._promise(uid)
        try:
            yield
        finally:
            after = self._promise(uid)
            if (promise := before or after) and before != after:
                self._space.promise_changed(promise.class_name)

    async def _look_at_claim(self, uid: str) -> float | None:
        if self._memory.doubts(uid) and not await self._is_still_open(uid):
            return self._later(uid)
        view = self._view_in_time(uid)
        if view.stands_by is not None and view.stands_by <= view.now:
            # A turn is for one look, whatever comes of it: else all would try again together when an outage ends.
            self._memory.of(uid).stands_by = next_turn(view)
        decision = decide(view)
        if isinstance(decision, Measure):
            self._note(uid, view.claim, decision)
            view = await self._measured(uid, view, decision)
            decision = decide(view)
            if isinstance(decision, Wait) and not view.standing.closed:
                self._metrics.insufficient_capacity()
        while isinstance(decision, Fetch):
            self._note(uid, view.claim, decision)
            try:
                view = replace(view, facts={**view.facts, **await self._lookup.fetch(decision.refs)})
            except Unavailable as error:
                return self._later(uid) if view.claim is None else self._unreachable(uid, view.claim, error)
            decision = decide(view)
        self._note(uid, view.claim, decision)
        if isinstance(decision, Ignore | Wait):
            return self._let_be(uid, view, decision)
        return None if self._dry_run else await self._perform(uid, view, decision)

    async def _measured(self, uid: str, view: ClaimView, decision: Measure) -> ClaimView:
        before = self._space.promises()
        free = await measure(self._driver, decision.query)
        class_name = view.claim.class_name if view.claim else ""
        if isinstance(free, CapacityAnswer):
            self._space.bid_for(class_name, free)
        promised = self._space.promised(class_name, besides=uid, before=before)
        return replace(view, free=free, promised=promised, standing=self._standing())

    def _let_be(self, uid: str, view: ClaimView, decision: Ignore | Wait) -> float | None:
        if isinstance(decision, Ignore):
            self._settle(uid, view)
            # What was begun stood before all else: now that it is settled, the claim itself is looked at.
            return self._clock() if view.begun is not None and self._memory.begun(uid) is None and uid in self._caches.claims else None
        if decision.race is not None:
            self._memory.of(uid).race = decision.race
        if decision.stands_by:
            self._memory.of(uid).stands_by = decision.until
        return decision.until

    async def _perform(self, uid: str, view: ClaimView, decision: ClaimDecision) -> float | None:
        match decision:
            case Tell(claim, race, why):
                self._memory.of(uid).race = race
                self._tell(claim, "Warning", names.NO_NODE_TAKES_IT, why, once=f"{claim.name}.{claim.uid[:8]}.waits")
                return self._clock()
            case Bid():
                return await self._bid(uid, view, decision)
            case Refuse(claim, why, settles, rarely):
                self._give_up_space(uid, claim)
                until = self._failed(uid, claim, why, tell=not settles or self.claim_attempts.count(uid) > 0)
                return self._clock() + self._retry.cap if rarely else until
            case Protect():
                return await self._protect(uid, decision)
            case Release(claim, body):
                return await self._release(uid, claim, body)
            case Leave(claim, why):
                self._give_up_space(uid, claim)
                self._tell(claim, "Normal", names.PROVISIONING, why)
                return None
            case Create():
                return await self._create(uid, view, decision)
            case CleanUp(begun):
                return await self._clean_up(uid, begun)
            case Store():
                return await self._store(uid, decision)
            case Reschedule():
                return await self._reschedule(uid, decision)
            case Measure() | Fetch() | Ignore() | Wait():
                raise AssertionError(f"{decision} is nothing that could be performed")
            case _:
                assert_never(decision)

    async def _protect(self, uid: str, decision: Protect) -> float | None:
        """The next look reads the source anew: whatever else has changed about it counts too."""
        progress = self._memory.of(uid)
        if progress.protected:
            progress.protected = False
            why = f"our finalizer does not stay on {decision.source}: something takes it off again"
            # Once may have been the sidecar of another node, which was done with the same source.
            return self._failed(uid, decision.claim, why, tell=self.claim_attempts.count(uid) > 0)
        progress.source = decision.source  # before the write: another claim may be done with it at that very moment
        try:
            if decision.source.kind == SNAPSHOT:
                self._snapshot_protected()
            await self._lookup.protect(decision.source, decision.body)
        except Forbidden as error:
            if not decision.optional:
                return self._failed(uid, decision.claim, f"protecting {decision.source} failed: {error}")
            self._memory.of(uid).unprotected = True
        except Unavailable as error:
            return self._unreachable(uid, decision.claim, error)
        except (Conflict, NotFound):
            return self._later(uid)
        except ApiError as error:
            return self._failed(uid, decision.claim, f"protecting {decision.source} failed: {error}")
        progress.protected = not progress.unprotected
        return self._clock()

    async def _release(self, uid: str, claim: Claim, body: bytes) -> float | None:
        try:
            await self._kube.replace(CLAIMS, body, name=claim.name, namespace=claim.namespace)
        except NotFound:
            return None
        except ApiError as error:
            log.warning("Releasing the source of clones failed", extra={"fields": {"claim": claim.full_name, "err": str(error)}})
            return self._later(uid)
        return None

    async def _is_still_open(self, uid: str) -> bool:
        """Asks the API server itself. A claim that the cache still shows, while its volume has come and gone, may be long gone too."""
        claim = self._caches.claims.get(uid)
        try:
            fresh = Claim.of(await self._kube.get(CLAIMS, claim.name, namespace=claim.namespace)) if claim else None
        except ApiError:
            return False
        if claim is not None and fresh != claim:
            return False
        self._memory.settle_doubt(uid)
        return True

    async def _bid(self, uid: str, view: ClaimView, bid: Bid) -> float | None:
        self._metrics.race_bid()
        progress = self._memory.of(uid)
        # From here on it counts as promised: whoever asks for room next may not be told of the same bytes.
        progress.bidding = bid.claim
        self._lag.began(uid, self._clock())
        try:
            if bid.out_of_turn and not await self._is_unchanged(bid.claim):
                return self._clock()
            written = await self._kube.replace(
                CLAIMS, bid.body, name=bid.claim.name, namespace=bid.claim.namespace, still=lambda: self._still_wants(bid.claim)
            )
            self._write_through(bid.claim, written)
        except Withdrawn:
            return self._clock()
        except Conflict:
            wait = after_conflict(view.race_view(bid.claim))
            self._note(uid, bid.claim, wait)
            self._memory.of(uid).race = wait.race
            return wait.until
        except NotFound:
            self._memory.forget(uid)
            return None
        except (Unavailable, TooManyRequests) as error:
            return self._unreachable(uid, bid.claim, error)
        except ApiError as error:
            return self._failed(uid, bid.claim, f"selecting node {view.here.node} for the claim failed: {error}")
        finally:
            progress.bidding = None
            self._lag.ended(uid, self._clock())
            if self._promise(uid) is None:
                self._space.promise_changed(bid.claim.class_name)  # it was promised for as long as the bid was on its way
        self._doubt_order(view, bid.claim)
        self._memory.of(uid).race = None
        # It is known to be ours before the watch says so, which then wakes nobody.
        return self._clock()

    async def _is_unchanged(self, claim: Claim) -> bool:
        """Asks the API server; what it answers is known from then on. A claim made anew under that name is another one."""
        fresh = await self._kube.get(CLAIMS, claim.name, namespace=claim.namespace)
        if fresh["metadata"].get("uid") != claim.uid:
            raise NotFound(f"claim {claim.full_name} with uid {claim.uid} is gone", status=404)
        self._write_through(claim, fresh)
        return bool(fresh["metadata"].get("resourceVersion") == claim.resource_version)

    def _still_wants(self, claim: Claim) -> bool:
        """Whether a bid on this picture of it can succeed, as far as the watch has told, and the node has not been closed meanwhile."""
        held = self._caches.claims.get(claim.uid)
        return held is not None and held.resource_version == claim.resource_version and not self._standing().closed

    def _doubt_order(self, view: ClaimView, claim: Claim) -> None:
        """Two others should have come before: either they are gone, or what is known of them is old."""
        if self._contenders and view.roster and view.roster.rank(view.here.node, claim.uid, claim.requested or 0, exact=2) >= 2:
            self._contenders.doubt()

    async def _create(self, uid: str, view: ClaimView, attempt: Create) -> float | None:
        progress = self._memory.of(uid)
        progress.source = sources.to_release(attempt.claim)
        try:
            secrets = await self._lookup.secret(attempt.refs.provisioner)
        except Unavailable as error:
            return self._unreachable(uid, attempt.claim, error)
        except ApiError as error:
            if view.gone and view.begun is not None:
                decision = CleanUp(view.begun, f"the claim is gone, and its secret with it: {error}")
                self._note(uid, attempt.claim, decision)
                return await self._clean_up(uid, decision.begun)
            return self._failed(uid, attempt.claim, str(error))
        progress.began = self._clock()
        progress.race, progress.in_hand, progress.hopeless, progress.protected = None, True, False, False
        # Before anything is known: should this look end in a way nobody foresaw, the next one must know of it.
        progress.remembered = attempt.claim
        if view.begun is not None and view.begun.inherited and not view.gone:
            self._memory.began(replace(view.begun, inherited=False))  # the claim shows that it has never had the volume
        first = await self._begin(attempt)
        outcome: Outcome | None = None
        try:
            although = f" ({attempt.why})" if view.standing.closed else ""
            self._tell(attempt.claim, "Normal", names.PROVISIONING, _is_provisioning(attempt.claim) + although)
            outcome = await self._ask_driver(view, attempt, secrets)
            if isinstance(outcome, NoSpaceHere | Refused) or (first and isinstance(outcome, NeverSent)):
                self._concluded(attempt, outcome)
            conclusion = conclude(view, attempt, outcome)
            self._note(uid, attempt.claim, conclusion)
            progress.remembered = None
            return await self._follow(uid, attempt, conclusion)
        finally:
            progress.in_hand = False
            if not isinstance(outcome, NeverSent):
                self._space.changed(attempt.claim.class_name, placed=isinstance(outcome, Done) and view.here.with_topology)

    async def _begin(self, attempt: Create) -> bool:
        """From here on a volume may exist, whatever becomes of this process. Whether this is the first attempt that leaves a trace."""
        claim = attempt.claim
        if self._memory.begun(claim.uid) is not None:
            return False
        secret = attempt.refs.provisioner
        whose = (secret.namespace, secret.name) if secret else None
        policy = attempt.class_.reclaim_policy
        begun = Begun(claim.uid, claim.namespace, claim.name, claim.class_name, attempt.request, whose, reclaim_policy=policy)
        self._memory.began(begun)
        await self._journal.begin(begun)
        return True

    def _concluded(self, attempt: Create, outcome: Outcome) -> None:
        """The driver has said that there is no volume. If it gives no reason, or was asked for another one than at first (the class
        has changed), it is asked once more when the claim has gone."""
        begun = self._memory.begun(attempt.claim.uid)
        same = begun is not None and begun.request == attempt.request
        if same and not (isinstance(outcome, Refused) and outcome.doubtful):
            self._end(attempt.claim.uid)

    def _end(self, uid: str) -> None:
        if self._memory.ended(uid):
            self._journal.end(uid)

    async def take_over(self) -> list[str]:
        """The claims for which processes that are gone have begun a creation."""
        found = await self._journal.take_over()
        for begun in found:
            if self._memory.begun(begun.uid) is None:
                self._memory.began(replace(begun, inherited=True))
        return [begun.uid for begun in found]

    async def _clean_up(self, uid: str, begun: Begun) -> float | None:
        fields = {"claim": begun.full_name, "uid": uid, "volume": begun.request.name}
        found = await self._leftovers.clear(begun)
        self._space.changed(begun.class_name, placed=self._here().with_topology)
        match found:
            case Gone(why, suspected):
                log.log(logging.WARNING if suspected else logging.INFO, "A creation is settled", extra={"fields": fields | {"why": why}})
                if suspected:
                    self._metrics.leak_suspected()
                self._end(uid)
                self._memory.forget(uid)
                self.claim_attempts.forget(uid)
                return self._clock() if uid in self._caches.claims else None
            case Again(why, denied):
                log.warning("Whether a creation has left a volume is not known yet", extra={"fields": fields | {"err": why}})
                if denied:
                    self._memory.began(replace(begun, denials=begun.denials + 1))
                return self._later(uid)

    async def _ask_driver(self, view: ClaimView, attempt: Create, secrets: Mapping[str, str]) -> Outcome:
        try:
            return Done(await self._driver.create_volume(attempt.request, secrets=secrets))
        except DriverError as error:
            return of_failure(error, may_reschedule=view.here.with_topology and bool(attempt.claim.selected_node))

    async def _follow(self, uid: str, attempt: Create, conclusion: Conclusion) -> float | None:
        match conclusion:
            case Store(claim, body):
                self._memory.of(uid).unsaved, self._memory.of(uid).remembered = body, claim
                return await self._store(uid, conclusion)
            case Undo(claim, volume_id, secret, why, elsewhere):
                return self._failed(uid, claim, await self._undo(uid, claim, volume_id, secret=secret, why=why, elsewhere=elsewhere))
            case Retry(claim, why, infeasible):
                if not infeasible:
                    return self._failed(uid, claim, why)
                self._give_up_space(uid, claim)
                self._failed(uid, claim, f"Volume provisioning is infeasible with these arguments, retries will be delayed: {why}")
                held = self._memory.of(uid).infeasible = Infeasible(self._clock() + self._retry.cap, attempt.class_.uid)
                return held.until
            case Remember(claim, why):
                self._memory.of(uid).remembered = claim
                return self._failed(uid, claim, why)
            case Reschedule():
                return await self._reschedule(uid, conclusion)
            case _:
                assert_never(conclusion)

    async def _undo(self, uid: str, claim: Claim, volume_id: str, *, secret: SecretRef | None, why: str, elsewhere: bool = False) -> str:
        try:
            if user := await self._leftovers.user_of(volume_id, elsewhere=elsewhere):
                self._end(uid)
                return f"{why}; it is left alone: {user}"
            await self._driver.delete_volume(volume_id, secrets=await self._lookup.secret_if_any(secret, about=claim.full_name))
        except (DriverError, ApiError) as error:
            self._memory.of(uid).remembered = claim
            return f"{why}; deleting it failed, so it is left behind for now: {error}"
        self._end(uid)
        self._space.changed(claim.class_name, placed=self._here().with_topology)
        return f"{why}; it was deleted again"

    async def _reschedule(self, uid: str, decision: Reschedule) -> float | None:
        claim = decision.claim
        until = self._later(uid) if decision.closed else self._failed(uid, claim, decision.why)
        try:
            self._write_through(claim, await self._kube.replace(CLAIMS, decision.body, name=claim.name, namespace=claim.namespace))
        except NotFound:
            pass
        except ApiError as error:
            progress = self._memory.of(uid)
            if isinstance(error, Unavailable):
                progress.returning = claim.resource_version
            elif decision.closed and isinstance(error, Forbidden | Invalid | BadRequest):
                progress.kept = f"it cannot be handed back: {error}"
            log.warning("Giving a claim back failed", extra={"fields": {"claim": claim.full_name, "uid": uid, "err": str(error)}})
            return until
        if decision.closed:
            self.claim_attempts.forget(uid)
            self._tell(claim, "Normal", names.PROVISIONING, f"{decision.why}; the claim is handed back, so that another node is chosen")
            log.info("A claim is handed back", extra={"fields": {"claim": claim.full_name, "uid": uid, "why": decision.why}})
        self._memory.forget(uid)
        fresh = self.claim_view(uid)
        if fresh.class_ is not None and fresh.class_.binding_mode == IMMEDIATE:
            # The others come first now: here it did not fit, whatever the driver says of free space.
            self._memory.of(uid).race = ownership.step_back(fresh.race_view(claim))
        # The cache knows already what the watch will bring, so that will wake nobody: this node is in the race again too.
        return self._clock()

    async def _store(self, uid: str, decision: Store) -> float | None:
        """The volume exists from here on, so this is retried until the object is stored, whatever the answer."""
        claim, body, name = decision.claim, decision.body, decision.body["metadata"]["name"]
        try:
            await self._kube.create(VOLUMES, body)
        except AlreadyExists:
            if problem := await self._not_ours(uid, claim, body):
                # The driver is asked anew then: what it answered belongs to whoever has the name now.
                self._memory.of(uid).unsaved = None
                return self._failed(uid, claim, problem)
        except Unavailable as error:
            log.warning(
                "A volume waits for the API server", extra={"fields": {"claim": claim.full_name, "volume": name, "err": str(error)}}
            )
            return min(self._later(uid), self._clock() + UNSTORED)
        except ApiError as error:
            if isinstance(error, Forbidden | Invalid | BadRequest):
                self._memory.of(uid).refusals += 1
            until = self._failed(uid, claim, f"the volume was created, but storing PersistentVolume {name} failed: {error}")
            return min(until, self._clock() + UNSTORED)
        self._succeeded(uid, claim, name)
        source = sources.to_release(claim)
        if source is not None and self._memory.fills_from(source):
            self._snapshot_protected()  # should none of the others come so far
        elif source is not None:
            await self._lookup.release(source)
        return None

    async def _not_ours(self, uid: str, claim: Claim, body: Json) -> str:
        """Why the PersistentVolume that has the name is not the one to store; empty when it is."""
        name = body["metadata"]["name"]
        try:
            found = Volume.of(await self._kube.get(VOLUMES, name))
        except ApiError as error:
            return f"PersistentVolume {name} exists already and cannot be looked at: {error}"
        if volumes.is_ours(found, body):
            return ""
        if found.claim is not None and found.claim.uid == uid and lies_elsewhere(self._here(), found):
            why = f"PersistentVolume {name} was made for the claim on another node, so the volume made here is not needed"
            secret = deletion_secret(Volume.of(body), None)
            noted = secret if isinstance(secret, SecretRef) else None
            return await self._undo(uid, claim, body["spec"]["csi"]["volumeHandle"], secret=noted, why=why)
        return f"PersistentVolume {name} exists already for another claim or volume; it must go before this one can be stored"

    async def _secret_for_clean_up(self, ref: SecretRef | None) -> Mapping[str, str]:
        return await self._lookup.secret_if_any(ref, about="a creation that has lost its claim")

    def _give_up_space(self, uid: str, claim: Claim) -> None:
        """Until somebody changes something it will not be created, and must not keep others from the room it would take."""
        progress = self._memory.of(uid)
        progress.hopeless = progress.remembered is None  # else the driver may still be taking it
        self._space.promise_changed(claim.class_name)

    def _settle(self, uid: str, view: ClaimView) -> None:
        """Nothing is to be done. What was remembered goes, unless the cache has yet to show what this process did."""
        progress = self._memory.get(uid)
        if progress is not None and progress.stored and view.claim is not None and not view.claim.volume_name:
            return
        self._end(uid)
        if progress is None:
            return
        if progress.races and view.claim is not None and view.claim.selected_node not in ("", view.here.node):
            self._metrics.race_lost()
        self._memory.forget(uid)

    def _succeeded(self, uid: str, claim: Claim, volume: str) -> None:
        progress = self._memory.of(uid)
        progress.unsaved, progress.remembered, progress.source, progress.stored = None, None, None, True
        self._end(uid)
        if uid not in self._caches.claims:
            self._memory.forget(uid)  # it was deleted meanwhile: no event of it will come
        seconds = self._clock() - progress.began if progress.began is not None else 0.0
        self._metrics.provisioned(claim.class_name, claim.source.kind if claim.source else "", seconds)
        self._tell(claim, "Normal", names.PROVISIONING_SUCCEEDED, f"Successfully provisioned volume {volume}")
        log.info("Claim provisioned", extra={"fields": {"claim": claim.full_name, "uid": uid, "volume": volume}})

    def _failed(self, uid: str, claim: Claim, why: str, *, tell: bool = True) -> float:
        self._metrics.provision_failed(claim.class_name, claim.source.kind if claim.source else "")
        if tell:
            self._tell(claim, "Warning", names.PROVISIONING_FAILED, why)
        log.warning("Provisioning failed", extra={"fields": {"claim": claim.full_name, "uid": uid, "err": why}})
        return self._later(uid)

    def _write_through(self, before: Claim, written: Json) -> None:
        """What the API server answered is newer than the cache, unless the watch was faster; nobody may act on the old one."""
        held = self._caches.claims.get(before.uid)
        if written and held is not None and held.resource_version == before.resource_version:
            self._caches.claims.apply(Change(before.uid, held, Claim.of(written, keep_whole=True)))

    def _unreachable(self, uid: str, claim: Claim, error: ApiError) -> float:
        """No event: it could not be written now either, and would be stale when it could."""
        log.warning("A claim waits for the API server", extra={"fields": {"claim": claim.full_name, "uid": uid, "err": str(error)}})
        return min(self._later(uid), self._clock() + UNSTORED)

    def _later(self, uid: str) -> float:
        return self._clock() + self._retry.delay(self.claim_attempts.next(uid))

    def _note(self, uid: str, claim: Claim | None, decision: ClaimDecision | Conclusion | ownership.Wait) -> None:
        self._narrator.note(ROOM, uid, claim.full_name if claim else uid, decision)

    def _tell(self, claim: Claim, type_: str, reason: str, message: str, *, once: str = "") -> None:
        ref = ObjectRef("v1", "PersistentVolumeClaim", claim.namespace, claim.name, claim.uid, claim.resource_version)
        self._recorder.record(ref, type_, reason, message, once=once)


def _is_provisioning(claim: Claim) -> str:
    return f'External provisioner is provisioning volume for claim "{claim.full_name}"'
