"""What this process remembers of one evacuation: who is leaving and for how long, who was refused, and how many pods a workload had."""

from collections.abc import Iterable, Mapping
from typing import Final

from sidecar.drain.emptying.decisions import Ask, AskController, Decision, Evict, Hold, workload_of
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.answers import MAY_ARRIVE_WITHIN, NEXT_PASS, Answer, Result
from sidecar.model.nodes import Pod

# A workload that has fewer pods for so long was made smaller.
_MADE_AGAIN_WITHIN: Final = 600.0
_OF_ONE_POD: Final = (Result.BUDGET, Result.TWO_BUDGETS, Result.NAMESPACE_ENDS)
"""Results that say nothing about an eviction of another pod."""
_MOST_DOUBLED: Final = 10
# Of the workloads that lost a pod. Whoever makes pods again and again under new owners would have more and more of them remembered.
_MOST_REMEMBERED: Final = 1000
# As a drainer that polls: soon after an eviction, and less and less often.
_SOONEST: Final = 1.0
_SHARE: Final = 0.25


class Pauses:
    """For one evacuation. All times are of the monotonic clock."""

    def __init__(self, *, restarted: bool = False) -> None:
        """`restarted`: an earlier process may have evicted pods of this evacuation."""
        self._restarted = restarted
        self._leaving: dict[str, float] = {}
        """By uid: until when it counts as leaving although nothing shows that."""
        self._paused: dict[str, tuple[float, str]] = {}
        self._expected: dict[str, tuple[float, int]] = {}
        self._before: dict[str, frozenset[str]] = {}
        """By workload that lost a pod: the uids of its pods that were here at its first eviction. Any other one has come since."""
        self.failures: dict[str, int] = {}
        """As `EmptyingView.failures`."""
        self.passed: frozenset[str] = frozenset()
        """As `EmptyingView.passed`."""
        self.late: dict[str, int] = {}
        """As `EmptyingView.late`."""
        self._late_evicted: dict[str, int] = {}
        """By namespace."""
        self._first: frozenset[str] | None = None
        """Uids of the pods of the first look."""
        self.waiting_evicted: dict[str, int] = {}
        """As `EmptyingView.waiting_evicted`."""
        self._unanswered: dict[str, tuple[str, float]] = {}
        """By workload: the uid of its pod whose eviction was not answered, and until when it may still be carried out."""
        self.slow: frozenset[str] = frozenset()
        """As `EmptyingView.slow`."""
        self._waited_since: dict[str, float] = {}
        """By namespace: since when everybody has been waiting for one or another of its pods to leave."""
        self._all_until = float("-inf")
        self._begun: float | None = None
        self._evicted_at = float("-inf")

    @property
    def leaving(self) -> frozenset[str]:
        return frozenset(self._leaving)

    def see(self, pods: Iterable[Pod], *, now: float) -> None:
        """`pods` are those of the node, and those that wait for a node with a volume here. Who is gone has left."""
        namespaces = {pod.uid: pod.namespace for pod in pods}
        there = namespaces.keys()
        self._begun = now if self._begun is None else self._begun
        self._first = frozenset(there) if self._first is None else self._first & there
        self.late = {uid: 1 + self._late_evicted.get(of, 0) for uid, of in namespaces.items() if uid not in self._first}
        self._leaving = {uid: until for uid, until in self._leaving.items() if uid in there and now < until}
        self._paused = {uid: each for uid, each in self._paused.items() if uid in there}
        self.failures = {uid: count for uid, count in self.failures.items() if uid in there}
        self._unanswered = {key: each for key, each in self._unanswered.items() if each[0] in there and now < each[1]}

    def decided(self, decision: Decision, *, now: float, patience: float) -> None:
        """Nobody waits longer than `patience` seconds on end for pods of another namespace to leave."""
        match decision:
            case Ask(again=True) | AskController(again=True):
                self.passed = decision.passed  # the next round has begun with these
            case Evict() | Ask() | AskController():
                self.passed |= decision.passed
            case _:
                self.passed = frozenset()
        if not isinstance(decision, Hold) or decision.hindrance is not Hindrance.POD_LEAVING:
            self._waited_since = {}
            return
        namespace = decision.pod.partition("/")[0]
        if now - self._waited_since.setdefault(namespace, now) >= patience:
            self.slow |= {namespace}

    def for_another(self, *, asked: bool) -> "Pauses":
        """For the next evacuation. What was asked for and not answered may be carried out even then. `asked`: nobody has taken the one
        before back, so that who puts pods here does so still."""
        another = Pauses()
        another._unanswered = self._unanswered
        another._before = self._before if asked else {}
        return another

    def put_back(self, pods: Iterable[Pod]) -> frozenset[str]:
        """As `Snapshot.put_back`."""
        return frozenset(pod.uid for pod in pods if pod.uid not in self._before.get(workload_of(pod), (pod.uid,)))

    def in_doubt(self, now: float) -> bool:
        """As `EmptyingView.in_doubt`."""
        return self._restarted and self.seconds(now) < MAY_ARRIVE_WITHIN

    def seconds(self, now: float) -> float:
        """Since the first look."""
        return 0.0 if self._begun is None else now - self._begun

    def note(self, evicted: Evict, answer: Answer, *, now: float) -> None:
        uid = evicted.pod.uid
        if answer.result in (Result.EVICTED, Result.FAILED):
            if uid in self.late:
                self._late_evicted[evicted.pod.namespace] = self._late_evicted.get(evicted.pod.namespace, 0) + 1
            if evicted.waits:
                self.waiting_evicted[evicted.workload] = self.waiting_evicted.get(evicted.workload, 0) + 1
            else:
                self._before.setdefault(evicted.workload, evicted.here)
        self._expected = {key: each for key, each in self._expected.items() if now < each[0]}
        for remembered in (self._before, self.waiting_evicted, self._late_evicted):
            while len(remembered) > _MOST_REMEMBERED:
                del remembered[next(iter(remembered))]
        match answer.result:
            case Result.EVICTED:
                self._leaving[uid], self._evicted_at = float("inf"), now
                self._expected[evicted.workload] = now + _MADE_AGAIN_WITHIN, evicted.replicas
            case Result.FAILED:
                # It may have been evicted all the same.
                self._failed(uid)
                self._unanswered[evicted.workload] = uid, now + MAY_ARRIVE_WITHIN
                self._leaving[uid] = self._all_until = now + answer.again
                self._expected[evicted.workload] = now + _MADE_AGAIN_WITHIN, evicted.replicas
            case Result.GONE | Result.REPLACED:
                self._leaving[uid] = float("inf")
            case Result.CHANGED:
                # Whoever changes their pod all the time has it tried last, and less and less often.
                failed = self._failed(uid)
                self._paused[uid] = now + min(answer.again * 2.0 ** min(failed - 1, _MOST_DOUBLED), NEXT_PASS), answer.why
            case result if result in _OF_ONE_POD:
                self._paused[uid] = now + answer.again, answer.why
            case result:
                self._all_until = now + answer.again
                if result is Result.FORBIDDEN:
                    # By the role, and then all others are refused too; or somebody keeps this one pod.
                    self._failed(uid)

    def _failed(self, uid: str) -> int:
        """How often it has, with this time."""
        self.failures[uid] = self.failures.get(uid, 0) + 1
        return self.failures[uid]

    @property
    def unanswered(self) -> Mapping[str, str]:
        """As `EmptyingView.unanswered`."""
        return {workload: uid for workload, (uid, _) in self._unanswered.items()}

    def paused(self, now: float) -> Mapping[str, str]:
        return {uid: why for uid, (until, why) in self._paused.items() if now < until}

    def expected(self, now: float) -> Mapping[str, int]:
        return {owner: count for owner, (until, count) in self._expected.items() if now < until}

    def for_all(self, now: float) -> float:
        """Seconds for which nobody is evicted."""
        return max(0.0, self._all_until - now)

    def until_replica(self, now: float) -> float:
        """Seconds until somebody should look whether what was evicted is ready elsewhere: no watch of this node shows that."""
        return min(max(_SOONEST, (now - self._evicted_at) * _SHARE), NEXT_PASS)

    def next_end(self, now: float) -> float | None:
        """Seconds until something of this ends; None: nothing will."""
        ends = (
            *(until for until, _ in self._paused.values()),
            *(until for _, until in self._unanswered.values()),
            *self._leaving.values(),
            *(until for until, _ in self._expected.values()),
            *((self._begun + MAY_ARRIVE_WITHIN,) if self._restarted and self._begun is not None else ()),
        )
        left = [until - now for until in (*ends, self._all_until) if now < until < float("inf")]
        return min(left, default=None)
