"""Evicts one pod of a node that is being retired: reads its replicas and budgets, asks the Node once more, and sends one eviction.

What is remembered may be forgotten: a process that starts asks about each pod once more.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Final

from sidecar.drain.empty import Candidate, Hold, Memory, Replicas, objection, says_how_many, workload_of
from sidecar.drain.lease_io import node_of
from sidecar.drain.node_io import Picture, why_undone
from sidecar.drain.settings import Settings
from sidecar.drain.words import Reason
from sidecar.eviction.attempt_io import Evictor
from sidecar.eviction.rules import MAY_ARRIVE_WITHIN, NEXT_PASS, MayNot, Result, may_evict
from sidecar.kube.api import BUDGETS, LEASES, NAMESPACES, PODS, REPLICA_SETS, STATEFUL_SETS, find, records
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Budget, Pod
from sidecar.model.objects import notes_of
from sidecar.tools import Tools

_CONTROLLERS: Final = {names.STATEFUL_SET: STATEFUL_SETS, names.REPLICA_SET: REPLICA_SETS}
_COUNT: Final = re.compile(r"[0-9]{1,6}")
_LONGEST: Final = 10.0
"""Seconds for what is read about one pod: what takes longer keeps that pod waiting and no other."""
_MOST: Final = 5
"""Pods that one look asks about: each costs some four requests."""
_WAIT: Final = 300.0
_LONGEST_WAIT: Final = 3600.0
"""Seconds until a pod that only a person can help is asked about again, twice as long each time: it may take a slot and give it back."""
_AFTER_FAILURE: Final = 60.0
"""Longer than such a pod counts as leaving, so that one whose eviction fails each time keeps no other one here."""
_TOLD_FOR: Final = 60.0
"""Seconds after those in which a refusal is still told: until then the pod is asked about again, and it is no news."""
_MANY: Final = 1000


class Emptying:
    """One per process."""

    def __init__(self, tools: Tools, settings: Settings, evictor: Evictor) -> None:
        self._kube, self._recorder, self._metrics = tools.kube, tools.recorder, tools.metrics
        self._tools, self._clock, self._settings, self._evictor = tools, tools.clock, settings, evictor
        self._held: dict[str, tuple[float, Hold]] = {}
        """By uid: until when a pod is not asked about again, and why."""
        self._waited: dict[str, float] = {}
        """By uid of a pod that only a person can help: the seconds until it was asked about again."""
        self._leaving: dict[str, float] = {}
        """By uid: until when a pod counts as leaving that was evicted, or may have been."""
        self._evicted: dict[str, frozenset[str]] = {}
        """By workload: the uids of its pods that were here at its latest eviction."""
        self._unanswered: dict[str, tuple[str, float]] = {}
        """By workload: the uid of its pod whose eviction got no answer, and until when that may be carried out yet."""

    def memory(self) -> Memory:
        now = self._clock()
        self._held = {uid: item for uid, item in self._held.items() if item[0] + _TOLD_FOR > now}
        self._leaving = {uid: until for uid, until in self._leaving.items() if until > now}
        self._unanswered = {workload: item for workload, item in self._unanswered.items() if item[1] > now}
        held = {uid: hold for uid, (until, hold) in self._held.items() if until > now}
        return Memory(held, self._leaving.keys(), self._evicted)

    def hold(self, uid: str, hold: Hold | None, *, seconds: float | None = None) -> None:
        """Leave this pod alone for a while; None: nothing is held against it any more."""
        self._held.pop(uid, None)
        self._waited = {each: waited for each, waited in self._waited.items() if each in self._held or each == uid}
        if hold is None:
            self._waited.pop(uid, None)
            return
        if seconds is None and hold.lasting:
            seconds = self._waited[uid] = min(2 * self._waited.get(uid, _WAIT / 2), _LONGEST_WAIT)
        self._held[uid] = self._clock() + (NEXT_PASS if seconds is None else seconds), hold

    def refused(self) -> str:
        """What the API server says of one of the pods that it keeps here by a refusal; empty: there is none."""
        return min(((hold.pod, hold.why) for _, hold in self._held.values() if hold.refused), default=("", ""))[1]

    def forget(self) -> None:
        """Nobody asks any more: what was put back since is no reason for the next time."""
        self._evicted.clear()

    async def evict_first(self, picture: Picture, candidates: Iterable[Candidate]) -> Hold | None:
        """The first of these that may go; a Hold says why none is. Raises ApiError if the Node cannot be read."""
        told: Hold | None = None
        for candidate in list(candidates)[:_MOST]:
            replicas = await self._read(picture, candidate)
            hold = objection(candidate, replicas) if isinstance(replicas, Replicas) else replicas
            if hold is None and isinstance(replicas, Replicas):
                return await self._evict(picture, candidate, replicas)
            if hold is not None:
                self.hold(candidate.pod.uid, hold)
            told = told or hold
        return told

    async def _read(self, picture: Picture, candidate: Candidate) -> Replicas | Hold:
        asked, until = self._unanswered.get(candidate.workload, ("", 0.0))
        if asked not in ("", candidate.pod.uid) and self._clock() < until:
            why = "the eviction of another pod of its workload got no answer, and may be carried out yet"
            return Hold(Reason.POD_TERMINATING, candidate.pod.full_name, why)
        try:
            async with asyncio.timeout(_LONGEST):
                return await self._replicas(picture, candidate.pod)
        except (ApiError, TimeoutError) as error:
            why = str(error) or f"no answer within {_LONGEST:g} s"
            return Hold(Reason.NOT_KNOWN, candidate.pod.full_name, f"its other replicas are not known: {why}", refused=True)

    async def _replicas(self, picture: Picture, pod: Pod) -> Replicas | Hold:
        """The Lease first: a node that takes it later looks at the pods after that."""
        assert pod.owner is not None
        asked_at, taken_by, wanted = self._clock(), "", None
        judged_by = picture.snapshot.namespaces.get(pod.namespace)
        if judged_by is not None:
            stored = await find(self._kube, NAMESPACES, pod.namespace)
            if stored is None or notes_of(stored["metadata"].get("annotations")) != judged_by:
                why = f"what namespace {pod.namespace} says of its volumes has changed, and is read again within a minute"
                return Hold(Reason.NOT_KNOWN, pod.full_name, why)
        if self._settings.namespace:
            name = names.reprovision(pod.owner.uid, self._settings.driver)
            lease = await find(self._kube, LEASES, name, namespace=self._settings.namespace)
            taken_by = (node_of(lease) or "another one") if lease is not None else ""
        if says_how_many(pod.owner):
            found = await find(self._kube, _CONTROLLERS[pod.owner.kind], pod.owner.name, namespace=pod.namespace)
            if found is not None and found["metadata"].get("uid") == pod.owner.uid:
                said = (found.get("spec") or {}).get("replicas")
                # While a Deployment is rolled out each of its two ReplicaSets wants fewer than all.
                of_all = str((found["metadata"].get("annotations") or {}).get(names.DESIRED_REPLICAS, ""))
                wanted = max(said if isinstance(said, int) else 1, int(of_all) if _COUNT.fullmatch(of_all) else 0)
        budgets = tuple([budget async for budget in records(self._kube, BUDGETS, Budget.of, namespace=pod.namespace)])
        pods = tuple([each async for each in records(self._kube, PODS, Pod.of, namespace=pod.namespace)])
        return Replicas(pods, wanted, budgets, needs_budget=self._settings.limit != 1, taken_by=taken_by, asked_at=asked_at)

    async def _evict(self, picture: Picture, candidate: Candidate, replicas: Replicas) -> Hold | None:
        pod = candidate.pod
        may = may_evict(pod, node=picture.node.name, ours=self._settings.own_pods)
        if isinstance(may, MayNot):
            return Hold(Reason.NOT_KNOWN, pod.full_name, may.why)
        if (wait := self._evictor.wait()) > 0:
            return Hold(Reason.EVICTION_REFUSED, pod.full_name, f"it is evicted in {wait:.0f} s, at five pods a second at most")
        if why := await why_undone(self._tools, self._settings, picture, asked_at=replicas.asked_at):
            return Hold(Reason.NOT_KNOWN, pod.full_name, why)
        if len(self._evicted) >= _MANY:
            self.forget()
        here = frozenset(each.uid for each in picture.snapshot.running if workload_of(each) == candidate.workload)
        answer = await self._evictor.evict(may, why=f"node {picture.node.name} is being retired")
        self._metrics.evicted(str(answer.result))
        if answer.is_over or answer.result is Result.FAILED:
            self._leaving[pod.uid] = self._clock() + (MAY_ARRIVE_WITHIN if answer.is_over else NEXT_PASS)
        if answer.is_over:
            self._evicted[candidate.workload] = here
            self._unanswered.pop(candidate.workload, None)
            self.hold(pod.uid, None)
        elif answer.result is Result.FAILED:
            self._unanswered[candidate.workload] = pod.uid, self._clock() + MAY_ARRIVE_WITHIN
        if answer.result is Result.EVICTED:
            message = f"Evicted, because node {picture.node.name} is being retired: its volumes may leave with it"
            self._recorder.record(ObjectRef("v1", names.POD, pod.namespace, pod.name, pod.uid), names.NORMAL, names.POD_EVICTED, message)
            return None
        budget = answer.result in (Result.BUDGET, Result.TWO_BUDGETS)
        reason = Reason.PDB_BLOCKED if budget else Reason.EVICTION_REFUSED
        hold = Hold(reason, pod.full_name, answer.why, refused=not answer.is_expected)
        self.hold(pod.uid, hold, seconds=_AFTER_FAILURE if answer.result is Result.FAILED else max(answer.again, 1.0))
        return hold
