"""Makes replicas anew on other nodes, one at a time: carries out what `steps` decides, and begins with another one when none is under way.

Nothing is remembered that matters: how far a replica is stands in the Lease of its workload, and everything is read anew before each step.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sidecar.drain import leases
from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.emptying.controller import is_under_way
from sidecar.drain.emptying.rules import keeping_off, users_of
from sidecar.drain.evacuation import undone_io
from sidecar.drain.evacuation.undone_io import Undone
from sidecar.drain.lease_io import LeaseWriter, Written
from sidecar.drain.leases import Lease
from sidecar.drain.machine_mark import Machine, text
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.reprovision import candidates, effects_io, locks, record, steps
from sidecar.drain.reprovision.candidates import Candidate
from sidecar.drain.reprovision.facts import Facts, FoundClaim
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.kept import KeptPods
from sidecar.drain.reprovision.locks import Lock, LocksView, Refusal
from sidecar.drain.reprovision.outlook import Looked
from sidecar.drain.reprovision.patience import Conflicts, Leavers, Turns
from sidecar.drain.reprovision.record import Record, Stage, Target
from sidecar.drain.reprovision.steps import Hold, StepView
from sidecar.drain.rest import Rest
from sidecar.drain.seen_leases import SeenLeases
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Hindrance
from sidecar.engine.backoff import jittered
from sidecar.eviction.answers import NEXT_PASS, Result
from sidecar.eviction.attempt_io import LONGEST_PASS, Evictor
from sidecar.frozen import frozen
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.tools import Tools

_ROOM: Final = "reprovision"
_WHAT: Final = "a replica that is made anew"
_AT_ONCE: Final = 0.0
_SOON: Final = 0.1
# Seconds between two looks at a pod that leaves or becomes ready: nothing wakes this room for pods of other nodes.
_POLL: Final = 5.0
_SPREAD: Final = 0.2
_STRIPPED: Final = "the mark that was written on its claim is not there: a webhook takes it off"
# That one pass looks at: each costs some ten requests.
_MOST_CANDIDATES: Final = 3
_MOST_PASSED: Final = 2
_MOST_STRAY: Final = 3


@frozen
class Taken:
    """The Lease of a workload was taken, and all locks of this replica were open. They are looked at again before anything is done."""

    why: str


@frozen
class Would:
    """All locks are open, and this is a dry run."""

    why: str


Told = steps.Decision | Taken | Would | Undone | Rest


class ReprovisionDuty:
    """Before `EmptyingDuty`, which evicts nobody while a replica is on its way: one pod at a time, whichever of the two sends it away."""

    def __init__(self, settings: Settings, tools: Tools, refusals: Refusals, *, evictor: Evictor) -> None:
        self._settings = settings
        self._kube = tools.kube
        self._recorder = tools.recorder
        self._metrics = tools.metrics
        self._refusals = refusals
        self._clock, self._wall, self._rng = tools.clock, tools.wall, tools.rng
        self._evictor = evictor
        self._reading = Reading(tools.kube, settings.node, settings.driver)
        self._writer = LeaseWriter(tools.kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self._seen = SeenLeases()
        self._own: Mapping[str, Record | None] | None = None
        """By name of a Lease that this node holds; None: not known, for an earlier process may have taken one."""
        self._deleted: set[str] = set()
        """Names of such Leases all of whose claims are known to be gone."""
        self._passed: set[str] = set()
        """Names of such Leases that keep no others waiting any more: what is in their way has lasted long, or is somebody's refusal."""
        self._words: dict[str, Facts] = {}
        """By name of the Lease that was taken last: what its locks were looked at with, for the look right after that."""
        self._late: set[str] = set()
        """Those among them whose replica was told to be late."""
        self._ready_since: dict[str, float] = {}
        """By uid of a replacement: since when it has been seen Ready, by the monotonic clock."""
        self._kept = KeptPods()
        self._returned: set[str] = set()
        """Uids of workloads whose replacement came back to this node."""
        self._candidates, self._last, self._others, self._marks = Turns(), Turns(), Turns(), Turns()
        """Of candidates, of those that come last, of Leases that were passed, and of marks without a record."""
        self._leavers = Leavers()
        self._conflicts = Conflicts()
        self._again = float("-inf")
        self._situation: object = None
        self._failure = ""
        """What the last pass was refused."""
        self._told: Told = Rest("no replica is made anew")
        self._looked: Looked | None = None

    def under_way(self) -> str:
        """What keeps the evacuation from being over; empty: nothing. A replica that is late keeps nobody waiting."""
        if self._own is None:
            return "whether a replica is being made anew is not known yet"
        return next((self._about(name) for name in sorted(self._own) if name not in self._passed), "")

    def _about(self, lease: str) -> str:
        found = self._own.get(lease) if self._own else None
        return f"replica {found.target.full_name} is made anew" if found else f"the record in Lease {lease} cannot be read"

    async def perform(self, picture: Picture) -> Outcome:
        goes_on = is_under_way(picture.signals, picture)
        if picture.snapshot is None or (self._own is not None and not self._own and not goes_on and not self._stray(picture)):
            self._told, self._looked = Rest("no replica is made anew"), None
            return Outcome(picture)
        situation = goes_on, picture.node.uid, self._pods_left(picture)
        if self._clock() < self._again and situation == self._situation:
            if self._failure:
                self._refusals.note(_WHAT, self._failure)
            return self._outcome(picture)
        self._situation, self._failure = situation, ""
        rest = NEXT_PASS
        try:
            async with asyncio.timeout(LONGEST_PASS):
                self._told, rest = await self._pass(picture, goes_on)
            self._conflicts.none()
        except TimeoutError:
            self._failed(f"no answer within {LONGEST_PASS:g} s")
        except Conflict:
            # What was judged has changed since, so it is judged again.
            rest = _AT_ONCE if self._conflicts.one_more() else NEXT_PASS
        except ApiError as error:
            self._failed(str(error))
        self._again = self._clock() + (jittered(rest, self._rng, spread=_SPREAD) if rest >= NEXT_PASS else rest)
        return self._outcome(picture)

    def _failed(self, why: str) -> None:
        self._failure = why
        self._refusals.note(_WHAT, why)

    def _outcome(self, picture: Picture) -> Outcome:
        judged = picture.assessment
        if self._looked is not None and judged is not None:
            judged = replace(judged, notes=(*judged.notes, *self._looked.in_words()))
        picture = replace(picture, away=self.under_way(), assessment=judged)
        return Outcome(picture, self._told, about=_ROOM, until=self._wall() + max(_SOON, self._again - self._clock()))

    def _pods_left(self, picture: Picture) -> frozenset[str]:
        there = {pod.uid for pod in picture.snapshot.pods} if picture.snapshot else set()
        wanted = {found.target.pod_uid for found in (self._own or {}).values() if found is not None}
        return frozenset(wanted - there)

    # --- one pass -----------------------------------------------------------------------------------------------------

    async def _pass(self, picture: Picture, goes_on: bool) -> tuple[Told, float]:
        """What was decided, and the seconds until the next pass."""
        stored = {lease.name: lease for lease in await self._writer.all(record.selector(self._settings.driver))}
        self._seen.see(stored.values(), now=self._clock())
        me = leases.identity(picture.node.uid, self._settings.driver)
        own = {name: lease for name, lease in stored.items() if lease.holder == me}
        self._own = {name: record.of(lease, driver=self._settings.driver) for name, lease in own.items()}
        self._passed &= set(own)
        self._late &= set(own)
        self._deleted &= set(own)
        self._kept.see({pod.uid for pod in picture.snapshot.pods} if picture.snapshot else frozenset())
        if self._settings.dry_run:
            return await self._begin(picture, stored) if goes_on else (Rest("nobody asks for it"), NEXT_PASS)
        undone = "" if goes_on else "the evacuation was undone, or has ended"
        if undone:
            self._returned.clear()
        self._passed |= {name for name, found in self._own.items() if found is None or self._is_overdue(found)}
        told: list[tuple[Told, float]] = []
        for name in sorted(own.keys() - self._passed):
            told.append(await self._step(picture, own[name], undone))
            if name not in self._passed:
                return told[-1]
        for name in self._others.of(sorted(own.keys() & self._passed), _MOST_PASSED):
            with self._by_itself(name):
                told.append(await self._step(picture, own[name], undone))
        await self._sweep(picture)
        if goes_on:
            told.append(await self._begin(picture, stored))
        return told[-1] if told else (Rest("no replica is made anew"), NEXT_PASS)

    def _is_overdue(self, found: Record) -> bool:
        return steps.is_overdue(found, now=self._wall(), timeout=self._settings.ready_timeout)

    @contextlib.contextmanager
    def _by_itself(self, whose: str) -> Iterator[None]:
        """What fails keeps nobody else waiting."""
        try:
            yield
        except Conflict:
            pass  # what was judged has changed since, and is judged in a later pass
        except ApiError as error:
            self._failed(f"{whose}: {error}")

    async def _step(self, picture: Picture, lease: Lease, undone: str) -> tuple[Told, float]:
        assert self._own is not None
        found = self._own[lease.name]
        if found is None:
            if undone:
                await self._writer.perform(leases.release(lease, undone))
                self._forget(lease.name)
                return Rest(undone), _AT_ONCE
            return Hold(Hindrance.MARK_NOT_UNDERSTOOD, lease.name, f"the record in Lease {lease.name} cannot be read"), NEXT_PASS
        if not lease.is_fresh(self._wall()):
            lease = await self._record(picture, lease, found)
        facts, looked = await self._look(picture, lease.name, found)
        decision = steps.decide(self._view(picture, found, facts, looked, undone))
        if isinstance(decision, steps.Mark):
            # Whoever hears of the mark may have changed the claim.
            facts = await self._mark(picture, decision, facts)
            looked = self._locks_of(picture, found, facts)
            decision = steps.decide(self._view(picture, found, facts, looked, undone))
            if isinstance(decision, steps.Mark):
                return self._refused(lease, found, Refusal(Hindrance.MARK_NOT_UNDERSTOOD, _STRIPPED))
        irrevocable = isinstance(decision, steps.Await | steps.Finish)
        self._looked = Looked(found.target.full_name, decision.why, () if irrevocable else looked)
        return await self._perform(picture, lease, found, decision)

    async def _look(self, picture: Picture, name: str, found: Record) -> tuple[Facts, tuple[Lock, ...]]:
        if name in self._deleted:
            return await self._reading.replacement(found.target), ()
        facts = await self._facts(picture, found.target, words=self._words.pop(name, None) if found.stage is Stage.TAKEN else None)
        return facts, self._locks_of(picture, found, facts)

    def _locks_of(self, picture: Picture, found: Record, facts: Facts) -> tuple[Lock, ...]:
        left = steps.left_of(found, facts)
        deleted = frozenset(claim.name for claim in found.target.claims) - {claim.name for claim in left.claims}
        return locks.look(self._locks(picture, left, facts, deleted=deleted))

    async def _facts(self, picture: Picture, target: Target, *, words: Facts | None = None, rivals_matter: bool = True) -> Facts:
        assert picture.snapshot is not None
        users = frozenset(pod.uid for pod, _ in users_of(picture.snapshot))
        found = await self._reading.facts(target, users=users, words=words, rivals_matter=rivals_matter)
        self._leavers.see(found.leaving, now=self._clock())
        return found

    def _locks(
        self, picture: Picture, target: Target, facts: Facts, *, deleted: frozenset[str] = frozenset(), alone: bool = False
    ) -> LocksView:
        assert picture.snapshot is not None
        found = picture.assessment.places if picture.assessment else ()
        places = MappingProxyType({volume: place for place in found for volume in place.volumes})
        slow = self._leavers.slow(now=self._clock(), patience=picture.snapshot.terminating_too_long)
        machine = self._machine(picture)
        return LocksView(self._settings.reprovisions, machine, picture.snapshot, places, target, facts, deleted, slow, alone)

    def _machine(self, picture: Picture) -> Machine:
        return Machine(picture.node.name, picture.node.uid)

    def _view(self, picture: Picture, found: Record, facts: Facts, looked: tuple[Lock, ...], undone: str) -> StepView:
        pod = facts.pod(found.target.pod)
        if pod is not None and pod.ready:
            self._ready_since.setdefault(pod.uid, self._clock())
        elif pod is not None:
            self._ready_since.pop(pod.uid, None)
        since = self._ready_since.get(pod.uid) if pod is not None else None
        return StepView(
            found,
            facts,
            looked,
            node=picture.node.name,
            undone=undone,
            now=self._wall(),
            ready_for=0.0 if since is None else self._clock() - since,
            timeout=self._settings.ready_timeout,
            kept=self._kept.why(found.target.pod_uid, now=self._clock()),
            ours=self._settings.own_pods,
        )

    # --- what a step does ---------------------------------------------------------------------------------------------

    async def _mark(self, picture: Picture, decision: steps.Mark, facts: Facts) -> Facts:
        marked = {found.claim.name: await effects_io.mark(self._kube, found, self._machine(picture)) for found in decision.claims}
        return replace(facts, claims=MappingProxyType({**facts.claims, **marked}))

    async def _perform(self, picture: Picture, lease: Lease, found: Record, decision: steps.Decision) -> tuple[Told, float]:
        match decision:
            case steps.Evict():
                return await self._evict(picture, lease, found, decision)
            case steps.DeleteClaims():
                return await self._delete(picture, lease, found, decision)
            case steps.TakeBack(claims=claims):
                await self._unmark(claims)
                await self._give_back(lease, found, steps.Result.UNDONE, decision.why)
                return decision, NEXT_PASS
            case steps.Unmark(claims=claims):
                await self._unmark(claims)
                return decision, _AT_ONCE
            case steps.Await(replacement=waits):
                if waits:
                    self._deleted.add(lease.name)
                return decision, _POLL
            case steps.Finish(result=result, pod=pod):
                await self._give_back(lease, found, result, decision.why)
                if pod is not None:
                    self._tell(names.POD, pod.namespace, pod.name, pod.uid, names.REPLICA_READY, decision.why)
                    if pod.node == picture.node.name:
                        self._returned.add(found.target.workload_uid)
                return decision, _AT_ONCE
            case Hold():
                return self._hold(lease, decision)
            case steps.Mark():
                return decision, _AT_ONCE

    def _hold(self, lease: Lease, decision: Hold) -> tuple[Told, float]:
        if decision.is_overdue and lease.name not in self._late:
            self._passed.add(lease.name)
            self._late.add(lease.name)
            self._metrics.reprovisioned(str(steps.Result.NOT_READY))
        self._metrics.replacements_late(len(self._late))
        return decision, NEXT_PASS

    async def _evict(self, picture: Picture, lease: Lease, found: Record, decision: steps.Evict) -> tuple[Told, float]:
        if (wait := self._evictor.wait()) > 0:
            return Rest(f"{decision.pod.full_name} is evicted in {wait:.0f} s"), wait
        if refusal := await self._keeps_claims(decision):
            return self._refused(lease, found, refusal)
        lease = await self._record(picture, lease, replace(found, stage=Stage.EVICTING, at=self._wall()))
        if undone := await self._undone(picture):
            return undone, _AT_ONCE
        answer = await self._evictor.evict(decision.pod)
        self._metrics.evicted(str(answer.result))
        if answer.result is Result.EVICTED:
            pod, why = decision.pod, f"Evicted, because node {picture.node.name} is being retired: {decision.why}"
            self._tell(names.POD, pod.namespace, pod.name, pod.uid, names.POD_EVICTED, why)
            self._passed.discard(lease.name)
        elif not answer.is_over and answer.result is not Result.FAILED:
            # It was refused, and will not be carried out later.
            await self._record(picture, lease, replace(found, stage=Stage.TAKEN))
        if not answer.is_expected:
            self._failed(answer.why)
            self._passed.add(lease.name)
            self._kept.note(found.target.pod_uid, Refusal(Hindrance.PAUSED, answer.why), now=self._clock())
        return decision, _POLL if answer.is_over else max(answer.again, 1.0)

    async def _keeps_claims(self, decision: steps.Evict) -> Refusal | None:
        """Without the right to delete the claims its pod would be away for nothing."""
        for found in decision.claims:
            try:
                await effects_io.try_delete(self._kube, found)
            except (Conflict, NotFound) as error:
                raise Conflict(str(error), status=409) from error
            except ApiError as error:
                return Refusal(Hindrance.CLAIM_NOT_DELETED, f"claim {found.claim.name} could not be deleted: {error}")
        return None

    def _refused(self, lease: Lease, found: Record, refusal: Refusal) -> tuple[Told, float]:
        """The API server, or a webhook there, has not done what was asked."""
        self._failed(refusal.why)
        self._kept.note(found.target.pod_uid, refusal, now=self._clock())
        self._passed.add(lease.name)
        overdue = found.stage is not Stage.TAKEN and self._is_overdue(found)
        reason = Hindrance.REPLACEMENT_NOT_READY if overdue else refusal.hindrance
        return self._hold(lease, Hold(reason, found.target.full_name, refusal.why, is_overdue=overdue))

    async def _delete(self, picture: Picture, lease: Lease, found: Record, decision: steps.DeleteClaims) -> tuple[Told, float]:
        # Only who holds the Lease may write it: if this succeeds, nobody else makes a replica of this workload anew now.
        begun = found if found.stage is Stage.DELETING else replace(found, stage=Stage.DELETING, at=self._wall())
        await self._record(picture, lease, begun)
        if undone := await self._undone(picture):
            return undone, _AT_ONCE
        # A watch shows snapshots late, and a list of all of them is too much to ask for at every look.
        handles = {each.volume.handle for each in decision.claims if each.volume is not None}
        if refusal := locks.kept_by(await self._reading.snapshots(handles)):
            return Hold(refusal.hindrance, begun.target.full_name, refusal.why), NEXT_PASS
        for claim in (each.claim for each in decision.claims):
            try:
                await effects_io.delete(self._kube, self._of(decision, claim.name))
            except NotFound:
                continue
            except Conflict:
                raise
            except ApiError as error:
                refusal = Refusal(Hindrance.CLAIM_NOT_DELETED, f"claim {claim.name} could not be deleted: {error}")
                return self._refused(lease, begun, refusal)
            why = f"Deleted, with its data on node {picture.node.name}, which is being retired: {decision.why}"
            self._tell(names.CLAIM, claim.namespace, claim.name, claim.uid, names.CLAIM_REPROVISIONED, why)
        self._deleted.add(lease.name)
        return decision, _AT_ONCE

    def _of(self, decision: steps.DeleteClaims, name: str) -> FoundClaim:
        return next(found for found in decision.claims if found.claim.name == name)

    async def _undone(self, picture: Picture) -> Undone | None:
        """By the Node as it is now: whether it is still to be emptied, and still keeps pods off."""
        node = await undone_io.read(self._kube, self._settings, picture, now=self._wall())
        if isinstance(node, Undone):
            return node
        return None if keeping_off(node) == keeping_off(picture.node) else Undone("what keeps pods off the node has changed")

    async def _record(self, picture: Picture, lease: Lease, found: Record) -> Lease:
        """Raises Conflict if another one holds the Lease by now."""
        terms = self._terms(picture, found.target, found)
        outcome = await self._writer.perform(leases.renewal(terms, lease, now=self._wall()))
        if not isinstance(outcome, Written) or outcome.lease is None:
            raise Conflict(f"Lease {lease.name} is not as it was read", status=409)
        self._own = {**(self._own or {}), lease.name: found}
        return outcome.lease

    def _terms(self, picture: Picture, target: Target, found: Record | None) -> leases.Terms:
        settings, node = self._settings, picture.node
        return record.terms(target, found, driver=settings.driver, namespace=settings.namespace, node=node.name, node_uid=node.uid)

    async def _unmark(self, claims: Iterable[FoundClaim]) -> None:
        for found in claims:
            try:
                await effects_io.unmark(self._kube, found)
            except NotFound:
                continue

    async def _give_back(self, lease: Lease, found: Record, result: steps.Result, why: str) -> None:
        if not isinstance(await self._writer.perform(leases.release(lease, why)), Written):
            raise Conflict(f"Lease {lease.name} is not as it was read", status=409)
        self._forget(lease.name)
        self._metrics.reprovisioned(str(result))
        if result is steps.Result.READY:
            self._metrics.reprovision_took(max(0.0, self._wall() - found.begun_at))

    def _forget(self, name: str) -> None:
        self._own = {other: found for other, found in (self._own or {}).items() if other != name}
        self._passed.discard(name)
        self._late.discard(name)
        self._deleted.discard(name)
        self._metrics.replacements_late(len(self._late))

    def _tell(self, kind: str, namespace: str, name: str, uid: str, reason: str, message: str) -> None:
        self._recorder.record(ObjectRef("v1", kind, namespace, name, uid), names.NORMAL, reason, message)

    # --- the next one -------------------------------------------------------------------------------------------------

    async def _begin(self, picture: Picture, stored: Mapping[str, Lease]) -> tuple[Told, float]:
        assert picture.snapshot is not None
        found, refused = candidates.find(picture.snapshot)
        held: list[Told] = [Hold(each.hindrance, each.pod, each.why) for each in refused]
        self._looked = None
        for each in self._turn(found):
            with self._by_itself(each.target.full_name):
                told = await self._try(picture, each, stored)
                if isinstance(told, Taken | Would):
                    self._candidates.restart()
                    return told, _AT_ONCE if isinstance(told, Taken) else NEXT_PASS
                held.insert(0, told)
        return held[0] if held else Rest("no pod here has a volume that is to be made anew"), NEXT_PASS

    def _turn(self, found: Sequence[Candidate]) -> Iterator[Candidate]:
        """Those of a namespace in which one was passed come after all others: no tenant has everybody wait again and again."""
        passed = (of for name, of in (self._own or {}).items() if name in self._passed)
        troubled = {of.target.namespace for of in passed if of is not None}
        yield from self._candidates.of([each for each in found if each.target.namespace not in troubled], _MOST_CANDIDATES)
        yield from self._last.of([each for each in found if each.target.namespace in troubled], 1)

    async def _try(self, picture: Picture, each: Candidate, stored: Mapping[str, Lease]) -> Told:
        target = each.target
        name = names.reprovision(target.workload_uid, self._settings.driver)
        lease = stored.get(name)
        if self._own and name in self._own:
            return Hold(Hindrance.REPLACEMENT_NOT_READY, target.full_name, "another replica of its workload is not ready yet")
        if kept := self._kept.why(target.pod_uid, now=self._clock()):
            return Hold(kept.hindrance, target.full_name, kept.why)
        if target.workload_uid in self._returned:
            return Hold(Hindrance.WOULD_COME_BACK, target.full_name, "a replica of its workload was put on this node again")
        run_out = lease is not None and self._seen.has_run_out(lease, now=self._clock())
        if lease is not None and not run_out:
            return Hold(Hindrance.WORKLOAD_TAKEN, target.full_name, f"node {lease.node or lease.holder} has Lease {lease.name}")
        # Other nodes that are emptied matter from the moment on in which they can see the Lease.
        facts = await self._facts(picture, target, rivals_matter=False)
        looked = locks.look(self._locks(picture, target, facts, alone=lease is not None))
        refusal = locks.shut(looked)
        self._looked = Looked(target.full_name, "all locks are open" if refusal is None else refusal.why, looked)
        if refusal is not None:
            return Hold(refusal.hindrance, target.full_name, refusal.why)
        if self._settings.dry_run:
            return Would(f"{target.full_name} would be made anew")
        now = self._wall()
        terms = self._terms(picture, target, Record(target, Stage.TAKEN, now, now))
        why = f"{lease.holder} has not renewed it" if lease is not None else ""
        view = leases.LeaseView(now, terms, wanted=True, stored=lease, takeable=why)
        outcome = await self._writer.perform(leases.decide(view))
        if not isinstance(outcome, Written):
            return Hold(Hindrance.WORKLOAD_TAKEN, target.full_name, f"Lease {name} was taken by another one")
        self._own = {**(self._own or {}), name: Record(target, Stage.TAKEN, now, now)}
        self._words = {name: facts}
        return Taken(f"{target.full_name} is to be made anew")

    # --- marks without a record ---------------------------------------------------------------------------------------

    def _stray(self, picture: Picture) -> list[tuple[str, str]]:
        """Namespace and name of claims here that bear this machine's mark and are in no record of ours."""
        if picture.snapshot is None:
            return []
        known = {claim.uid for found in (self._own or {}).values() if found is not None for claim in found.target.claims}
        mark = (names.REPROVISIONED_BY, text(self._machine(picture)))
        found = (claim for claim in picture.snapshot.claims.values() if mark in claim.notes and claim.uid not in known)
        return sorted((claim.namespace, claim.name) for claim in found)

    async def _sweep(self, picture: Picture) -> None:
        """A Lease that somebody has deleted leaves its marks behind."""
        for namespace, name in self._marks.of(self._stray(picture), _MOST_STRAY):
            with self._by_itself(f"{namespace}/{name}"):
                found = await self._reading.claim(namespace, name)
                if found is not None and found.words.marked_by == self._machine(picture) and not found.claim.deleting:
                    await self._unmark((found,))
