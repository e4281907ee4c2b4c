"""The work queue as data: which key may be taken at which time, and by whom it is held. It never waits and has no clock.

Three laws, which the model-based test holds it to:
1. A key has at most one holder. While it is held, it is not given again.
2. Nothing is lost. A key that is added while it is held is given again after `done`.
3. Of several times wanted for one key, the earliest wins. So an event (`add(key, now)`) wakes a key that waits for later,
   and a handler's own "not before" cannot silence an event that arrived while it was at work.

Law 3 leaves no room for moving a waiting key to a later time; whoever needs that says `discard` and `add`.
"""

import heapq
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

# Below this many entries a heap is not worth tidying.
_SMALL_HEAP = 64


class Turn(NamedTuple):
    """A place in the order: by time, and among equal times by arrival."""

    at: float
    number: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Since when a key is held, and since when it could have been."""

    due: float
    since: float

    @property
    def queued(self) -> float:
        """Seconds between being due and being taken."""
        return max(0.0, self.since - self.due)


@dataclass(frozen=True, slots=True)
class Counts:
    """The queue in numbers, for metrics. Upstream's dashboards read the same names.

    `depth` is what waits for a worker now. As in client-go, it leaves out keys whose time has not come, and includes held keys
    that must be given once more.
    """

    depth: int
    delayed: int
    held: int
    adds: int
    unfinished_seconds: float
    longest_seconds: float


@dataclass(frozen=True, slots=True)
class Row(Generic[K]):
    """One key as a person wants to see it. A key that is held and due again has both times; `due_in` is negative when overdue."""

    key: K
    state: Literal["held", "ready", "delayed"]
    due_in: float | None
    held_for: float | None
    attempts: int


class WorkQueue(Generic[K]):
    """Operations cost O(log n); `ready`, `counts` and `snapshot` look at every key and are meant for the rate of a scrape."""

    def __init__(self) -> None:
        self._waiting: dict[K, Turn] = {}
        self._held: dict[K, Hold] = {}
        self._again: dict[K, float] = {}
        # Holds every waiting key's turn, and turns that an earlier add or a discard has made stale.
        self._heap: list[tuple[Turn, K]] = []
        self._turns = 0
        self._adds = 0

    def add(self, key: K, at: float) -> bool:
        """Ask for the key to be given at `at`, not before. False if it melted into an earlier request for the same key."""
        if not math.isfinite(at):  # a key due at infinity is lost, and NaN breaks the order of all others
            raise ValueError(f"{at} is no time at which {key!r} could be due")
        if key in self._held:
            return self._add_held(key, at)
        turn = self._waiting.get(key)
        if turn is None or at < turn.at:
            self._push(key, at)
        self._adds += turn is None
        return turn is None

    def take(self, now: float) -> K | None:
        """The due key with the earliest time, first come first served among equals; the caller holds it until `done`."""
        self._drop_stale_head()
        if not self._heap or self._heap[0][0].at > now:
            return None
        turn, key = heapq.heappop(self._heap)
        del self._waiting[key]
        self._held[key] = Hold(due=turn.at, since=now)
        return key

    def done(self, key: K, now: float) -> float:
        """Give a held key back. Returns for how many seconds it was held."""
        hold = self._held.pop(key)
        if key in self._again:
            self._push(key, self._again.pop(key))
        return now - hold.since

    def discard(self, key: K) -> None:
        """Forget that the key was asked for. Its holder, if there is one, is left alone."""
        self._waiting.pop(key, None)
        self._again.pop(key, None)

    def hold(self, key: K) -> Hold:
        """The hold on a key that was taken; KeyError if nobody holds it."""
        return self._held[key]

    def next_at(self) -> float | None:
        """The earliest time of a key that can be taken; None if there is none, however many are held."""
        self._drop_stale_head()
        return self._heap[0][0].at if self._heap else None

    def ready(self, now: float) -> int:
        """Keys that can be taken now."""
        return sum(turn.at <= now for turn in self._waiting.values())

    @property
    def waiting(self) -> int:
        """Keys that can be taken now or later."""
        return len(self._waiting)

    @property
    def held(self) -> int:
        return len(self._held)

    def counts(self, now: float) -> Counts:
        ready = self.ready(now)
        ages = [now - hold.since for hold in self._held.values()]
        return Counts(
            depth=ready + sum(at <= now for at in self._again.values()),
            delayed=len(self._waiting) - ready,
            held=len(ages),
            adds=self._adds,
            unfinished_seconds=sum(ages),
            longest_seconds=max(ages, default=0.0),
        )

    def snapshot(self, now: float, *, attempts: Callable[[K], int] = lambda _: 0) -> list[Row[K]]:
        """Every key: first what is held, longest first, then what waits, in the order in which it will be given."""
        rows: list[Row[K]] = []
        for key, hold in sorted(self._held.items(), key=lambda item: item[1].since):
            again = self._again.get(key)
            rows.append(Row(key, "held", None if again is None else again - now, now - hold.since, attempts(key)))
        for key, turn in sorted(self._waiting.items(), key=lambda item: item[1]):
            rows.append(Row(key, "ready" if turn.at <= now else "delayed", turn.at - now, None, attempts(key)))
        return rows

    def _add_held(self, key: K, at: float) -> bool:
        known = self._again.get(key)
        self._again[key] = at if known is None else min(at, known)
        self._adds += known is None
        return known is None

    def _push(self, key: K, at: float) -> None:
        turn = Turn(at, self._turns)
        self._turns += 1
        self._waiting[key] = turn
        heapq.heappush(self._heap, (turn, key))  # turns are unique, so keys are never compared
        if len(self._heap) > 2 * len(self._waiting) + _SMALL_HEAP:
            # More stale than alive. Paid for by the pushes since the last time, so still O(log n) each.
            self._heap = [(turn, key) for key, turn in self._waiting.items()]
            heapq.heapify(self._heap)

    def _drop_stale_head(self) -> None:
        while self._heap and self._waiting.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
