"""What this process remembers of its own evictions: who is leaving, who was refused, and how many pods a workload had."""

from collections.abc import Iterable, Mapping
from typing import Final

from sidecar.drain.emptying.rules import Evict
from sidecar.eviction.answers import Answer, Result
from sidecar.model.nodes import Pod

# A workload that has fewer pods for so long was made smaller.
_MADE_AGAIN_WITHIN: Final = 600.0
_OF_ONE_POD: Final = (Result.BUDGET, Result.TWO_BUDGETS, Result.NAMESPACE_ENDS)
"""Results that say nothing about an eviction of another pod."""


class Pauses:
    """For one evacuation. All times are of the monotonic clock."""

    def __init__(self) -> None:
        self._leaving: dict[str, float] = {}
        """By uid: until when it counts as leaving although nothing shows that."""
        self._paused: dict[str, tuple[float, str]] = {}
        self._expected: dict[str, tuple[float, int]] = {}
        self.before: dict[str, frozenset[str]] = {}
        """As `EmptyingView.before`."""
        self._all_until = float("-inf")
        self._begun: float | None = None

    @property
    def leaving(self) -> frozenset[str]:
        return frozenset(self._leaving)

    def see(self, pods: Iterable[Pod], *, now: float) -> None:
        """`pods` are those of the node. Who is gone has left."""
        there = {pod.uid for pod in pods}
        self._begun = now if self._begun is None else self._begun
        self._leaving = {uid: until for uid, until in self._leaving.items() if uid in there and now < until}
        self._paused = {uid: each for uid, each in self._paused.items() if uid in there}

    def seconds(self, now: float) -> float:
        """Since the first look."""
        return 0.0 if self._begun is None else now - self._begun

    def note(self, evicted: Evict, answer: Answer, *, now: float) -> None:
        uid = evicted.pod.uid
        if answer.result in (Result.EVICTED, Result.FAILED):
            self.before.setdefault(evicted.owner, evicted.here)
        match answer.result:
            case Result.EVICTED:
                self._leaving[uid] = float("inf")
                self._expected[evicted.owner] = now + _MADE_AGAIN_WITHIN, evicted.replicas
            case Result.FAILED:
                # It may have been evicted all the same.
                self._leaving[uid] = self._all_until = now + answer.again
                self._expected[evicted.owner] = now + _MADE_AGAIN_WITHIN, evicted.replicas
            case Result.GONE | Result.REPLACED:
                self._leaving[uid] = float("inf")
            case result if result in _OF_ONE_POD:
                self._paused[uid] = now + answer.again, answer.why
            case _:
                self._all_until = now + answer.again

    def paused(self, now: float) -> Mapping[str, str]:
        return {uid: why for uid, (until, why) in self._paused.items() if now < until}

    def expected(self, now: float) -> Mapping[str, int]:
        return {owner: count for owner, (until, count) in self._expected.items() if now < until}

    def for_all(self, now: float) -> float:
        """Seconds for which nobody is evicted."""
        return max(0.0, self._all_until - now)

    def next_end(self, now: float) -> float | None:
        """Seconds until something of this ends; None: nothing will."""
        ends = (*(until for until, _ in self._paused.values()), *self._leaving.values(), *(until for until, _ in self._expected.values()))
        left = [until - now for until in (*ends, self._all_until) if now < until < float("inf")]
        return min(left, default=None)
