"""Makes a replica anew: reads what its locks look at, keeps the record in the Lease of its workload, and takes one step after the other.

Nothing is remembered that matters: how far a replica is stands in the Lease, and everything is read anew before each step. Before an
eviction and before each deletion the Lease is written, all is read and decided once more, and the Node is asked whether it still wants it.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sidecar.drain import anew
from sidecar.drain.anew import Do, Facts, FoundClaim, Record, Result, Stage, Step, StepView, Target
from sidecar.drain.anew_locks import LocksView, shut
from sidecar.drain.course import Away, Held, NotKnown, TakenBy
from sidecar.drain.empty import Hold, refusal, users_of
from sidecar.drain.empty_io import evict
from sidecar.drain.lease_io import HeldLease, Holder, held_by
from sidecar.drain.node_io import Picture, why_undone
from sidecar.drain.settings import Settings
from sidecar.drain.statefulset import StatefulSet
from sidecar.drain.words import Reason
from sidecar.eviction.attempt_io import Evictor
from sidecar.eviction.rules import NEXT_PASS, may_evict
from sidecar.eviction.rules import Result as Answered
from sidecar.kube.api import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    MERGE_PATCH,
    NAMESPACES,
    PODS,
    SNAPSHOT_CONTENTS,
    STATEFUL_SETS,
    VOLUMES,
    find,
    records,
)
from sidecar.kube.errors import ApiError, Conflict, NotFound, Unavailable
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Budget, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Json, Volume, notes_of
from sidecar.tools import Tools

log = logging.getLogger(__name__)

POLL: Final = 5.0  # seconds between two looks at a pod that leaves or becomes ready: nothing wakes this room for pods of other nodes
_MANY: Final = 1000
_NO_TRIAL: Final = 400  # the answer where a webhook with side effects cannot be asked for a trial

Outcome = tuple[str, float]  # what was done or is waited for, and the seconds until there is more to do


class MakingAnew:
    """One per process. Raises ApiError; Conflict where something is not as it was judged."""

    def __init__(self, tools: Tools, settings: Settings, evictor: Evictor, holder: Holder) -> None:
        self._kube, self._recorder, self._metrics = tools.kube, tools.recorder, tools.metrics
        self._tools, self._clock, self._wall, self._settings, self._evictor = tools, tools.clock, tools.wall, settings, evictor
        self._holder = holder
        self._leases: dict[str, HeldLease] = {}  # those of workloads of which this node makes a replica anew, by name
        self._recalled = False
        self._ready_since: dict[str, float] = {}  # by uid of a replacement: since when it has been seen Ready
        self._told_late: set[str] = set()
        self._tried: dict[str, HeldLease] = {}  # Leases that other nodes have: each knows for how long it has been unchanged
        self._refused: dict[str, tuple[float, Hold]] = {}
        """By Lease: until when it is left alone, and holds nobody up, because something was refused for it."""

    async def recall(self) -> None:
        """Once: what an earlier process of this machine has begun."""
        if self._recalled or not self._settings.namespace:
            return
        for name in await held_by(self._kube, self._holder, label=names.REPROVISION_FOR):
            self._leases.setdefault(name, self._lease(name))
        self._recalled = True

    @property
    def names(self) -> tuple[str, ...]:
        """Of the Leases that this node has."""
        return tuple(sorted(self._leases))

    async def away(self) -> tuple[list[Away], list[Away]]:
        """Replicas on their way, and those that hold nobody up: they take too long, or something was refused for them a moment ago. A
        record that makes no sense is given back."""
        on_their_way: list[Away] = []
        late: list[Away] = []
        overdue_ones = 0
        for name in self.names:
            answer = await self._leases[name].hold()
            if isinstance(answer, TakenBy):
                # Somebody has changed it, which need not be another node: now it is read.
                answer = await self._leases[name].hold()
            if isinstance(answer, TakenBy):
                self._forget(name)
                continue
            if isinstance(answer, NotKnown):
                raise ApiError(answer.why)
            record = anew.record_of(answer.record, lease=name, driver=self._settings.driver)
            if record is None:
                log.warning("A record of a replica that is made anew makes no sense", extra={"fields": {"lease": name}})
                await self._give_back(name)
                continue
            overdue = record.is_overdue(self._wall())
            (late if overdue or self._is_refused(name) else on_their_way).append(Away(name, record.target))
            overdue_ones += overdue
        self._metrics.replacements_late(overdue_ones)
        return on_their_way, late

    async def begin(self, picture: Picture, target: Target) -> Hold | None:
        """Take the Lease of the workload, where all locks are open; a Hold says why not."""
        name = names.reprovision(target.workload_uid, self._settings.driver)
        if name in self._leases:
            why = "another replica of its workload is being made anew, and is not ready yet"
            return Hold(Reason.REPLICA_NOT_READY, target.full_name, why)
        if len(self._tried) >= _MANY:
            self._tried.clear()
        lease = self._tried.setdefault(name, self._lease(name))
        try:
            facts = await self._facts(picture, target)
        except ApiError as error:
            why = f"what decides whether it can be made anew could not be read: {error}"
            return Hold(Reason.NOT_KNOWN, target.full_name, why, refused=True)
        now, snapshot = self._wall(), picture.snapshot
        if hold := shut(LocksView(self._settings, picture.machine, snapshot, target, facts, now=now, all_peers=lease.was_anothers)):
            return hold
        match await lease.hold(record=Record(target, Stage.TAKEN, now, now).as_text()):
            case Held():
                self._leases[name] = self._tried.pop(name)
                return None
            case TakenBy(node):
                return Hold(Reason.WAITING_FOR_SLOT, target.full_name, f"{node} makes another replica of its workload anew")
            case NotKnown(why):
                self._recalled = False  # it may have been written although nobody has answered
                return Hold(Reason.NOT_KNOWN, target.full_name, why, refused=True)

    # --- one step ---------------------------------------------------------------------------------------------------------

    async def step(self, picture: Picture, away: Away, *, undone: str) -> Outcome | Hold:
        """`undone`: why nobody wants any more that the node is emptied to be retired; empty: somebody does."""
        if not undone and self._is_refused(away.lease):
            return self._refused[away.lease][1]
        try:
            return await self._step(picture, away, undone)
        except (Conflict, NotFound) as error:
            raise Conflict(str(error), status=409) from error
        except ApiError as error:
            self._refuse(away.lease, Hold(Reason.NOT_KNOWN, away.target.full_name, str(error), refused=True))
            raise

    async def _step(self, picture: Picture, away: Away, undone: str) -> Outcome | Hold:
        record = await self._record(away.lease)
        facts = await self._facts(picture, record.target)
        step = anew.step(self._view(picture, record, facts, undone))
        if isinstance(step, Step) and step.do is Do.MARK:
            # Whoever hears of the mark may have changed the claim, so all is decided again with the claims as they are then.
            marked = {found.claim.name: await self._note(found, picture.machine) for found in step.claims}
            facts = replace(facts, claims={**facts.claims, **marked})
            step = anew.step(self._view(picture, record, facts, undone))
        if isinstance(step, Hold):
            if step.lasting and step.reason is Reason.REPLICA_NOT_READY and away.lease not in self._told_late:
                self._told_late.add(away.lease)
                self._metrics.reprovisioned(str(Result.NOT_READY))
            return step
        target = record.target
        match step.do:
            case Do.MARK:
                why = "the mark that was written on its claim is not there: a webhook takes it off"
                return self._refuse(away.lease, Hold(Reason.CLAIM_KEPT, target.full_name, why, lasting=True))
            case Do.EVICT:
                return await self._evict(picture, away.lease, record, step)
            case Do.DELETE:
                return await self._delete(picture, away.lease, record, step)
            case Do.TAKE_BACK | Do.UNMARK:
                await self._unmark(step.claims)
                if step.do is Do.UNMARK:
                    return step.why, 0.0
                await self._finish(away.lease, record, Result.UNDONE)
                return step.why, NEXT_PASS
            case Do.AWAIT:
                return step.why, POLL
            case Do.FINISH:
                assert step.result is not None
                await self._finish(away.lease, record, step.result)
                if step.result is Result.READY:
                    pod = facts.pod(target.pod)
                    self._tell(names.POD, target.namespace, target.pod, pod.uid if pod else "", names.REPLICA_READY, step.why)
                return step.why, 0.0

    async def _evict(self, picture: Picture, lease: str, record: Record, step: Step) -> Outcome | Hold:
        pod = step.pod
        assert pod is not None
        may = may_evict(pod, node=picture.node.name, ours=self._settings.own_pods)
        if isinstance(may, str):
            await self._unmark(step.claims)
            await self._finish(lease, record, Result.UNDONE)
            return Hold(Reason.CLAIM_KEPT, pod.full_name, may, lasting=True)
        if (wait := self._evictor.wait()) > 0:
            return f"{pod.full_name} is evicted in {wait:.0f} s", wait
        for found in step.claims:
            error = await self._delete_claim(found.claim, dry_run=True)
            if error is not None and error.status != _NO_TRIAL:
                # Without the right to delete the claims its pod would be away for nothing.
                why = f"claim {found.claim.name} could not be deleted: {error}"
                return self._refuse(lease, Hold(Reason.EVICTION_REFUSED, pod.full_name, why, refused=True))
        begun = await self._write(lease, replace(record, stage=Stage.EVICTING, at=self._wall()))
        if why := await self._changed(picture, begun, Do.EVICT):
            await self._write(lease, record)  # nothing was asked for, so nothing may be carried out later
            return self._refuse(lease, Hold(Reason.NOT_KNOWN, pod.full_name, why))
        retired = f"node {picture.node.name} is being retired"
        log_why, event = f"{retired}, and its replica is made anew", f"Evicted, because {retired}: {step.why}"
        answer = await evict(self._tools, self._evictor, may, log_why=log_why, event=event)
        if answer.is_over:
            return step.why, POLL
        if answer.result is not Answered.FAILED:
            await self._write(lease, record)  # it was refused, and will not be carried out later
        return self._refuse(lease, refusal(pod, answer), seconds=max(answer.again, 1.0))

    async def _delete(self, picture: Picture, lease: str, record: Record, step: Step) -> Outcome | Hold:
        begun = record if record.stage is Stage.DELETING else replace(record, stage=Stage.DELETING, at=self._wall())
        for found in step.claims:
            claim = found.claim
            # Only who holds the Lease may write it: if this succeeds, nobody else makes a replica of this workload anew now.
            await self._write(lease, begun)
            if why := await self._changed(picture, begun, Do.DELETE):
                return self._refuse(lease, Hold(Reason.NOT_KNOWN, record.target.full_name, why))
            try:
                error = await self._delete_claim(claim)
            except NotFound:
                continue
            if error is not None:
                if isinstance(error, Unavailable):
                    # It may be carried out yet, when the pod is back on its data. Without its mark the claim is another version, and stays.
                    await self._unmark((found,))
                why = f"claim {claim.name} could not be deleted: {error}"
                return self._refuse(lease, Hold(Reason.EVICTION_REFUSED, record.target.full_name, why, refused=True))
            message = f"Deleted, with its data on node {picture.node.name}, which is being retired: {step.why}"
            self._tell(names.CLAIM, claim.namespace, claim.name, claim.uid, names.CLAIM_REPROVISIONED, message)
        return step.why, 0.0

    async def _changed(self, picture: Picture, record: Record, wanted: Do) -> str:
        """Right before what cannot be taken back: why it is not done; empty: all is as it was. The Node comes last."""
        facts = await self._facts(picture, record.target)
        step = anew.step(self._view(picture, record, facts, ""))
        if isinstance(step, Hold) or step.do is not wanted:
            return f"while {record.target.full_name} was looked at: {step.why}"
        return await why_undone(self._tools, self._settings, picture, asked_at=facts.asked_at)

    async def _delete_claim(self, claim: Claim, *, dry_run: bool = False) -> ApiError | None:
        """Why the API server does not delete it, or would not. Raises Conflict and NotFound: it is not as it was judged."""
        uid, version = claim.uid, claim.resource_version
        try:
            await self._kube.delete(CLAIMS, claim.name, namespace=claim.namespace, uid=uid, resource_version=version, dry_run=dry_run)
        except (Conflict, NotFound):
            raise
        except ApiError as error:
            return error
        return None

    # --- reading ----------------------------------------------------------------------------------------------------------

    def _view(self, picture: Picture, record: Record, facts: Facts, undone: str) -> StepView:
        pod, now = facts.pod(record.target.pod), self._clock()
        if pod is not None and not pod.ready:
            self._ready_since.pop(pod.uid, None)
        ready_since = self._ready_since.setdefault(pod.uid, now) if pod is not None and pod.ready else now
        left = anew.left_of(record, facts)
        deleted = frozenset(record.target.claim_names - left.claim_names)
        locks = LocksView(self._settings, picture.machine, picture.snapshot, left, facts, now=self._wall(), deleted=deleted)
        return StepView(
            record=record,
            facts=facts,
            shut=shut(locks),
            machine=picture.machine,
            node=picture.node.name,
            undone=undone,
            now=self._wall(),
            ready_for=now - ready_since,
        )

    async def _facts(self, picture: Picture, target: Target) -> Facts:
        """The pods last: who uses a claim, and which replicas are ready, changes within seconds."""
        namespace, kube = target.namespace, self._kube
        # As a list, since the role lets it get no pod.
        same = records(kube, PODS, Pod.of, namespace=namespace, field_selector=f"metadata.name={target.pod}")
        claims = await self._claims(namespace, target.claim_names | {name async for pod in same for name in pod.claims})
        stored = await find(kube, STATEFUL_SETS, target.workload, namespace=namespace)
        workload = StatefulSet.of(stored) if stored else None
        classes = [class_ async for class_ in records(kube, CLASSES, _with_default)]
        of_namespace = await find(kube, NAMESPACES, namespace)
        ends = of_namespace is None or "deletionTimestamp" in of_namespace["metadata"]
        budgets = tuple([budget async for budget in records(kube, BUDGETS, Budget.of, namespace=namespace)])
        contents, asked_at = await self._contents(), self._clock()
        pods = tuple([each async for each in records(kube, PODS, Pod.of, namespace=namespace)])
        users = {pod.uid for pod, _ in users_of(picture.snapshot, picture.assessment.things)}
        here = records(kube, PODS, Pod.of, field_selector=f"spec.nodeName={picture.node.name}")
        return Facts(
            pods=pods,
            leaving=tuple([each.full_name async for each in here if each.deleting_since and each.uid in users]),
            workload=workload,
            claims=claims,
            classes={class_.name: class_ for class_, _ in classes},
            # Of several the one that was made last, as the API server chooses.
            default_class=max(((made, class_.name) for class_, made in classes if made), default=("", ""))[1],
            namespace=notes_of((of_namespace or {"metadata": {}})["metadata"].get("annotations")),
            namespace_ends=ends,
            budgets=budgets,
            contents=contents,
            asked_at=asked_at,
        )

    async def _claims(self, namespace: str, wanted: Iterable[str]) -> Mapping[str, FoundClaim]:
        found: dict[str, FoundClaim] = {}
        for name in sorted(wanted):
            stored = await find(self._kube, CLAIMS, name, namespace=namespace)
            if stored is not None:
                volume = str((stored.get("spec") or {}).get("volumeName") or "")
                of_volume = await find(self._kube, VOLUMES, volume) if volume else None
                found[name] = FoundClaim.of(stored, Volume.of(of_volume) if of_volume else None)
        return found

    async def _contents(self) -> tuple[SnapshotContent, ...]:
        """A watch shows snapshots late. Without their type there are none."""
        driver = self._settings.driver
        try:
            listed = [content async for content in records(self._kube, SNAPSHOT_CONTENTS, SnapshotContent.of)]
        except NotFound:
            return ()
        return tuple(content for content in listed if content.driver == driver)

    # --- records and marks ------------------------------------------------------------------------------------------------

    def _lease(self, name: str) -> HeldLease:
        key = names.REPROVISION_RECORD
        return HeldLease(self._kube, name, self._holder, label=names.REPROVISION_FOR, clock=self._clock, wall=self._wall, record_key=key)

    async def _record(self, lease: str) -> Record:
        answer = await self._leases[lease].hold()
        record = anew.record_of(answer.record, lease=lease, driver=self._settings.driver) if isinstance(answer, Held) else None
        if record is None:
            raise Conflict(f"Lease {lease} is not as it was read", status=409)
        return record

    async def _write(self, lease: str, record: Record) -> Record:
        answer = await self._leases[lease].hold(record=record.as_text(), now=True)
        if not isinstance(answer, Held):
            raise Conflict(f"Lease {lease} is not this node's any more", status=409)
        return record

    async def _note(self, found: FoundClaim, value: str | None) -> FoundClaim:
        claim = found.claim
        meta: Json = {"uid": claim.uid, "resourceVersion": claim.resource_version, "annotations": {names.REPROVISIONED_BY: value}}
        stored = await self._kube.patch(CLAIMS, claim.name, {"metadata": meta}, namespace=claim.namespace, content_type=MERGE_PATCH)
        return FoundClaim.of(stored, found.volume)

    async def _unmark(self, claims: Iterable[FoundClaim]) -> None:
        for found in claims:
            try:
                if found.mark:
                    await self._note(found, None)
            except NotFound:
                continue

    async def _finish(self, lease: str, record: Record, result: Result) -> None:
        await self._give_back(lease)
        self._metrics.reprovisioned(str(result))
        if result is Result.READY:
            self._metrics.reprovision_took(max(0.0, self._wall() - record.begun_at))

    async def _give_back(self, lease: str) -> None:
        """Known until it is gone: a Lease that nobody gives back keeps all others from that workload."""
        await self._leases[lease].give_back()
        self._forget(lease)

    def _forget(self, lease: str) -> None:
        del self._leases[lease]
        self._refused.pop(lease, None)
        if lease in self._told_late:
            self._told_late.remove(lease)
            self._metrics.replacements_late(len(self._told_late))

    def _refuse(self, lease: str, hold: Hold, *, seconds: float = NEXT_PASS) -> Hold:
        self._refused[lease] = self._clock() + seconds, hold
        return hold

    def _is_refused(self, lease: str) -> bool:
        return lease in self._refused and self._clock() < self._refused[lease][0]

    def _tell(self, kind: str, namespace: str, name: str, uid: str, reason: str, message: str) -> None:
        self._recorder.record(ObjectRef("v1", kind, namespace, name, uid), names.NORMAL, reason, message)


def _with_default(obj: Json) -> tuple[Class, str]:
    """The class, and when it was made if it is the default one."""
    meta = obj["metadata"]
    is_default = (meta.get("annotations") or {}).get(names.DEFAULT_CLASS) == "true"
    return Class.of(obj), str(meta.get("creationTimestamp") or "0") if is_default else ""
