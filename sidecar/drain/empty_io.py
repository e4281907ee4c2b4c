"""Evicts one pod of a node that is being retired: reads its replicas and budgets, asks the Node once more, and sends one eviction.

What is remembered may be forgotten: a process that starts asks about each pod once more.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import Final

from sidecar.drain.empty import Candidate, Hold, Memory, Replicas, refusal, why_it_waits, workload_of
from sidecar.drain.lease_io import node_of
from sidecar.drain.node_io import Picture, why_undone
from sidecar.drain.settings import Settings
from sidecar.drain.words import Reason
from sidecar.eviction.attempt_io import Evictor
from sidecar.eviction.rules import MAY_ARRIVE_WITHIN, NEXT_PASS, Answer, May, Result, may_evict
from sidecar.kube.api import BUDGETS, LEASES, NAMESPACES, PODS, REPLICA_SETS, STATEFUL_SETS, find, records
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Budget, Pod
from sidecar.model.objects import notes_of
from sidecar.tools import Tools

_COUNTED: Final = {names.STATEFUL_SET: STATEFUL_SETS, names.REPLICA_SET: REPLICA_SETS}  # owners that say how many pods there are to be
_COUNT: Final = re.compile(r"[0-9]{1,6}")
_LONGEST: Final = 10.0  # seconds for what is read about one pod: what takes longer keeps that pod waiting and no other
_MOST: Final = 5  # pods that one look asks about: each costs some four requests
_WAIT: Final = 300.0
_LONGEST_WAIT: Final = 3600.0
"""Seconds until a pod that only a person can help is asked about again, twice as long each time: it may take a slot and give it back."""
_AFTER_FAILURE: Final = 60.0  # longer than such a pod counts as leaving, so that one whose eviction fails each time keeps no other one here
_TOLD_FOR: Final = 60.0  # seconds after those in which a refusal is still told: until then the pod is asked about again, and it is no news
_MANY: Final = 1000


class Emptying:
    """One per process."""

    def __init__(self, tools: Tools, settings: Settings, evictor: Evictor) -> None:
        self._tools, self._kube, self._clock, self._settings, self._evictor = tools, tools.kube, tools.clock, settings, evictor
        self._held: dict[str, tuple[float, Hold]] = {}  # by uid: until when a pod is not asked about again, and why
        self._waited: dict[str, float] = {}  # by uid of a pod that only a person can help: the seconds until it was asked about again
        self._leaving: dict[str, float] = {}  # by uid: until when a pod counts as leaving that was evicted, or may have been
        self._evicted: dict[str, frozenset[str]] = {}  # by workload: the uids of its pods that were here at its latest eviction
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
            found = await self._look_at(picture, candidate)
            if isinstance(found, Replicas):
                return await self._evict(picture, candidate, asked_at=found.asked_at)
            self.hold(candidate.pod.uid, found)
            told = told or found
        return told

    async def _look_at(self, picture: Picture, candidate: Candidate) -> Replicas | Hold:
        """Its replicas, which let it go; or why it has to wait."""
        asked, until = self._unanswered.get(candidate.workload, ("", 0.0))
        if asked not in ("", candidate.pod.uid) and self._clock() < until:
            why = "the eviction of another pod of its workload got no answer, and may be carried out yet"
            return Hold(Reason.POD_TERMINATING, candidate.pod.full_name, why)
        try:
            async with asyncio.timeout(_LONGEST):
                replicas = await self._replicas(picture, candidate.pod)
        except (ApiError, TimeoutError) as error:
            why = str(error) or f"no answer within {_LONGEST:g} s"
            return Hold(Reason.NOT_KNOWN, candidate.pod.full_name, f"its other replicas are not known: {why}", refused=True)
        return replicas if isinstance(replicas, Hold) else why_it_waits(candidate, replicas) or replicas

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
        controller = _COUNTED.get(pod.owner.kind) if pod.owner.api_version.startswith(f"{names.APPS_GROUP}/") else None
        if controller is not None:
            found = await find(self._kube, controller, pod.owner.name, namespace=pod.namespace)
            if found is not None and found["metadata"].get("uid") == pod.owner.uid:
                said = (found.get("spec") or {}).get("replicas")
                # While a Deployment is rolled out each of its two ReplicaSets wants fewer than all.
                of_all = str((found["metadata"].get("annotations") or {}).get(names.DESIRED_REPLICAS, ""))
                wanted = max(said if isinstance(said, int) else 1, int(of_all) if _COUNT.fullmatch(of_all) else 0)
        budgets = tuple([budget async for budget in records(self._kube, BUDGETS, Budget.of, namespace=pod.namespace)])
        pods = tuple([each async for each in records(self._kube, PODS, Pod.of, namespace=pod.namespace)])
        return Replicas(pods, wanted, budgets, needs_budget=self._settings.limit != 1, taken_by=taken_by, asked_at=asked_at)

    async def _evict(self, picture: Picture, candidate: Candidate, *, asked_at: float) -> Hold | None:
        pod = candidate.pod
        may = may_evict(pod, node=picture.node.name, ours=self._settings.own_pods)
        if isinstance(may, str):
            return Hold(Reason.NOT_KNOWN, pod.full_name, may)
        if (wait := self._evictor.wait()) > 0:
            return Hold(Reason.EVICTION_REFUSED, pod.full_name, f"it is evicted in {wait:.0f} s, at five pods a second at most")
        if why := await why_undone(self._tools, self._settings, picture, asked_at=asked_at):
            return Hold(Reason.NOT_KNOWN, pod.full_name, why)
        if len(self._evicted) >= _MANY:
            self.forget()
        here = frozenset(each.uid for each in picture.snapshot.running if workload_of(each) == candidate.workload)
        retired = f"node {picture.node.name} is being retired"
        event = f"Evicted, because {retired}: its volumes may leave with it"
        answer = await evict(self._tools, self._evictor, may, log_why=retired, event=event)
        now = self._clock()
        if answer.is_over:
            self._leaving[pod.uid] = now + MAY_ARRIVE_WITHIN
            self._evicted[candidate.workload] = here
            self._unanswered.pop(candidate.workload, None)
            self.hold(pod.uid, None)
        elif answer.result is Result.FAILED:
            self._leaving[pod.uid] = now + NEXT_PASS
            self._unanswered[candidate.workload] = pod.uid, now + MAY_ARRIVE_WITHIN
        if answer.result is Result.EVICTED:
            return None
        hold = refusal(pod, answer)
        self.hold(pod.uid, hold, seconds=_AFTER_FAILURE if answer.result is Result.FAILED else max(answer.again, 1.0))
        return hold


async def evict(tools: Tools, evictor: Evictor, pod: May, *, log_why: str, event: str) -> Answer:
    """One eviction, which is counted, and told of the pod if it goes."""
    answer = await evictor.evict(pod, why=log_why)
    tools.metrics.evicted(str(answer.result))
    if answer.result is Result.EVICTED:
        tools.recorder.record(ObjectRef("v1", names.POD, pod.namespace, pod.name, pod.uid), names.NORMAL, names.POD_EVICTED, event)
    return answer
