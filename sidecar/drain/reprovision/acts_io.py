"""Carries out the steps of one replica that is made anew. Before what cannot be taken back, Lease and Node are looked at once more.

So are the other replicas and their StatefulSet: while the locks were looked at others had time to send one away, or to scale the set.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sidecar.drain import leases
from sidecar.drain.duty import Picture
from sidecar.drain.emptying.rules import keeping_off
from sidecar.drain.evacuation import undone_io
from sidecar.drain.evacuation.undone_io import Undone
from sidecar.drain.lease_io import LeaseWriter, Written
from sidecar.drain.leases import Lease
from sidecar.drain.reprovision import claim_locks, effects_io, steps
from sidecar.drain.reprovision.facts import Facts, FoundClaim
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.lock import Refusal
from sidecar.drain.reprovision.looks_io import Looks, machine_of
from sidecar.drain.reprovision.memory import Memory
from sidecar.drain.reprovision.record import Record, Stage, Target, terms
from sidecar.drain.reprovision.steps import Hold
from sidecar.drain.rest import Rest
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.answers import NEXT_PASS, Result
from sidecar.eviction.attempt_io import Evictor
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.tools import Tools

AT_ONCE: Final = 0.0
# Seconds between two looks at a pod that leaves or becomes ready: nothing wakes this room for pods of other nodes.
_POLL: Final = 5.0
# Seconds for which what was looked at right before a deletion counts.
_STILL_NEW: Final = 1.0

Done = tuple[steps.Decision | Undone | Rest, float]
"""What is told of it, and the seconds until the next pass."""


class Acts:
    """`failed` is told what was refused. Raises ApiError; Conflict where something is not as it was judged."""

    def __init__(
        self,
        settings: Settings,
        tools: Tools,
        reading: Reading,
        memory: Memory,
        writer: LeaseWriter,
        *,
        looks: Looks,
        evictor: Evictor,
        failed: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._kube, self._recorder, self._metrics = tools.kube, tools.recorder, tools.metrics
        self._clock, self._wall = tools.clock, tools.wall
        self._reading = reading
        self._memory = memory
        self._writer = writer
        self._looks = looks
        self._evictor = evictor
        self._failed = failed

    async def take(self, picture: Picture, target: Target, stored: Lease | None) -> bool:
        """Whether the Lease of the workload is this node's now; `stored` is another's that has run out."""
        now = self._wall()
        record = Record(target, Stage.TAKEN, now, now)
        why = f"{stored.holder} has not renewed it" if stored is not None else ""
        view = leases.LeaseView(now, self._terms(picture, target, record), wanted=True, stored=stored, takeable=why)
        taken = isinstance(await self._writer.perform(leases.decide(view)), Written)
        if taken:
            self._memory.note(names.reprovision(target.workload_uid, self._settings.driver), record)
        return taken

    async def release(self, lease: Lease, why: str) -> None:
        """One whose record cannot be read."""
        await self._writer.perform(leases.release(lease, why))
        self._forget(lease.name)

    async def mark(self, picture: Picture, decision: steps.Mark, facts: Facts) -> Facts:
        marked = {found.claim.name: await effects_io.mark(self._kube, found, machine_of(picture)) for found in decision.claims}
        return replace(facts, claims=MappingProxyType({**facts.claims, **marked}))

    async def perform(self, picture: Picture, lease: Lease, found: Record, decision: steps.Decision, facts: Facts) -> Done:
        """`facts` are those that were decided on."""
        match decision:
            case steps.Evict():
                return await self._evict(picture, lease, found, decision, facts)
            case steps.DeleteClaims():
                return await self._delete(picture, lease, found, decision, facts)
            case steps.TakeBack(claims=claims):
                await self.unmark(claims)
                await self._give_back(lease, found, steps.Result.UNDONE, decision.why)
                return decision, NEXT_PASS
            case steps.Unmark(claims=claims):
                await self.unmark(claims)
                return decision, AT_ONCE
            case steps.Await(replacement=waits):
                if waits:
                    self._memory.deleted.add(lease.name)
                return decision, _POLL
            case steps.Finish(result=result, pod=pod):
                await self._give_back(lease, found, result, decision.why)
                if pod is not None:
                    self._tell(names.POD, pod.namespace, pod.name, pod.uid, names.REPLICA_READY, decision.why)
                    if pod.node == picture.node.name:
                        self._memory.returned.add(found.target.workload_uid)
                return decision, AT_ONCE
            case Hold():
                return self._hold(lease, decision)
            case steps.Mark():
                return decision, AT_ONCE

    def _hold(self, lease: Lease, decision: Hold) -> Done:
        if decision.is_overdue and lease.name not in self._memory.late:
            self._memory.passed.add(lease.name)
            self._memory.late.add(lease.name)
            self._metrics.reprovisioned(str(steps.Result.NOT_READY))
        self._metrics.replacements_late(len(self._memory.late))
        return decision, NEXT_PASS

    async def _evict(self, picture: Picture, lease: Lease, found: Record, decision: steps.Evict, facts: Facts) -> Done:
        if (wait := self._evictor.wait()) > 0:
            return Rest(f"{decision.pod.full_name} is evicted in {wait:.0f} s"), wait
        if refusal := await self._keeps_claims(decision):
            return self.refused(lease, found, refusal)
        begun = replace(found, stage=Stage.EVICTING, at=self._wall())
        lease = await self.record(picture, lease, begun)
        try:
            undone = await self._is_as_before(picture, begun, facts, steps.Evict)
        except Conflict:
            await self.record(picture, lease, found)  # nothing was asked for, so nothing may be carried out later
            raise
        if undone:
            await self.record(picture, lease, found)
            return undone, AT_ONCE
        answer = await self._evictor.evict(decision.pod)
        self._metrics.evicted(str(answer.result))
        if answer.result is Result.EVICTED:
            pod, why = decision.pod, f"Evicted, because node {picture.node.name} is being retired: {decision.why}"
            self._tell(names.POD, pod.namespace, pod.name, pod.uid, names.POD_EVICTED, why)
            self._memory.passed.discard(lease.name)
        elif not answer.is_over and answer.result is not Result.FAILED:
            # It was refused, and will not be carried out later.
            await self.record(picture, lease, replace(found, stage=Stage.TAKEN))
        if not answer.is_expected:
            self._failed(answer.why)
            self._memory.passed.add(lease.name)
            self._memory.kept.note(found.target.pod_uid, Refusal(Hindrance.PAUSED, answer.why), now=self._clock())
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

    def refused(self, lease: Lease, found: Record, refusal: Refusal) -> Done:
        """The API server, or a webhook there, has not done what was asked."""
        self._failed(refusal.why)
        self._memory.kept.note(found.target.pod_uid, refusal, now=self._clock())
        self._memory.passed.add(lease.name)
        overdue = found.stage is not Stage.TAKEN and steps.is_overdue(found, now=self._wall(), timeout=self._settings.ready_timeout)
        reason = Hindrance.REPLACEMENT_NOT_READY if overdue else refusal.hindrance
        return self._hold(lease, Hold(reason, found.target.full_name, refusal.why, is_overdue=overdue))

    async def _delete(self, picture: Picture, lease: Lease, found: Record, decision: steps.DeleteClaims, facts: Facts) -> Done:
        # Only who holds the Lease may write it: if this succeeds, nobody else makes a replica of this workload anew now.
        begun = found if found.stage is Stage.DELETING else replace(found, stage=Stage.DELETING, at=self._wall())
        await self.record(picture, lease, begun)
        looked_at = self._clock()
        undone, refusal = await asyncio.gather(
            self._is_as_before(picture, begun, facts, steps.DeleteClaims), self._keeps_snapshots(decision.claims)
        )
        if self._clock() - looked_at > _STILL_NEW:
            # Where there are many snapshots their list is long, and the first word is old when it ends.
            undone = await self._is_as_before(picture, begun, facts, steps.DeleteClaims)
        if undone:
            return undone, AT_ONCE
        if refusal:
            return Hold(refusal.hindrance, begun.target.full_name, refusal.why), NEXT_PASS
        for number, each in enumerate(decision.claims):
            claim = each.claim
            if number and (undone := await self._is_as_before(picture, begun, facts, steps.DeleteClaims)):
                return undone, AT_ONCE
            try:
                await effects_io.delete(self._kube, each)
            except NotFound:
                continue
            except Conflict:
                raise
            except ApiError as error:
                refusal = Refusal(Hindrance.CLAIM_NOT_DELETED, f"claim {claim.name} could not be deleted: {error}")
                return self.refused(lease, begun, refusal)
            why = f"Deleted, with its data on node {picture.node.name}, which is being retired: {decision.why}"
            self._tell(names.CLAIM, claim.namespace, claim.name, claim.uid, names.CLAIM_REPROVISIONED, why)
        self._memory.deleted.add(lease.name)
        return decision, AT_ONCE

    async def _keeps_snapshots(self, claims: Iterable[FoundClaim]) -> Refusal | None:
        """A watch shows snapshots late, and a list of all of them is too much to ask for at every look."""
        handles = {each.volume.handle for each in claims if each.volume is not None}
        return claim_locks.kept_by(await self._reading.snapshots(handles))

    async def _is_as_before(self, picture: Picture, found: Record, facts: Facts, step: type[steps.Decision]) -> Undone | None:
        """Right before what cannot be taken back. Raises Conflict if another step would be decided on by now."""
        undone, decision = await asyncio.gather(self._undone(picture), self._looks.again(picture, found, facts))
        if undone is None and not isinstance(decision, step):
            raise Conflict(f"while the locks of {found.target.full_name} were looked at: {decision.why}", status=409)
        return undone

    async def _undone(self, picture: Picture) -> Undone | None:
        """By the Node as it is now: whether it is still to be emptied, and still keeps pods off."""
        node = await undone_io.read(self._kube, self._settings, picture, now=self._wall())
        if isinstance(node, Undone):
            return node
        return None if keeping_off(node) == keeping_off(picture.node) else Undone("what keeps pods off the node has changed")

    async def record(self, picture: Picture, lease: Lease, found: Record) -> Lease:
        """Raises Conflict if another one holds the Lease by now."""
        terms = self._terms(picture, found.target, found)
        outcome = await self._writer.perform(leases.renewal(terms, lease, now=self._wall()))
        if not isinstance(outcome, Written) or outcome.lease is None:
            raise Conflict(f"Lease {lease.name} is not as it was read", status=409)
        self._memory.note(lease.name, found)
        return outcome.lease

    def _terms(self, picture: Picture, target: Target, found: Record | None) -> leases.Terms:
        settings, node = self._settings, picture.node
        return terms(target, found, driver=settings.driver, namespace=settings.namespace, node=node.name, node_uid=node.uid)

    async def unmark(self, claims: Iterable[FoundClaim]) -> None:
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

    def _tell(self, kind: str, namespace: str, name: str, uid: str, reason: str, message: str) -> None:
        self._recorder.record(ObjectRef("v1", kind, namespace, name, uid), names.NORMAL, reason, message)

    def _forget(self, lease: str) -> None:
        self._memory.forget(lease)
        self._metrics.replacements_late(len(self._memory.late))
