"""The work queue as data: which key may be taken when, and which keys are held. It never waits and has no clock.

Four rules, which a model-based test checks:
1. A key has at most one holder. While it is held, it cannot be taken.
2. Nothing is lost. A key that is added while it is held can be taken again after `done`.
3. Of several times for one key the earliest counts. So an event (`add(key, now)`) brings a waiting key forward, and a handler that returns
   a later time cannot delay an event that arrived while it worked.
4. Parties take turns. Of the keys that are due, each party in turn gives the one that has been due for longest. Keys that are new come
   before those that have failed, which have every fourth turn at least. Neither one party, nor all keys that have failed, hold more than
   `most_held`: work that hangs leaves room for others.

By rule 3 `add` cannot move a waiting key to a later time; that takes `discard` and `add`.
"""

import heapq
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from sidecar.engine.fair_line import Party, Place, Turn
from sidecar.engine.grouped_line import Group, GroupedLine, Whose

K = TypeVar("K", bound=Hashable)

# A heap with fewer entries is not cleaned of stale ones.
_SMALL_HEAP = 64


@dataclass(frozen=True, slots=True)
class Hold:
    """When a key was taken, when it became due, and whose it is."""

    due: float
    since: float
    whose: Whose = field(default_factory=Whose)

    @property
    def queued(self) -> float:
        """Seconds between being due and being taken."""
        return max(0.0, self.since - self.due)


@dataclass(frozen=True, slots=True)
class Counts:
    """The queue's metrics, by the names that upstream's dashboards read.

    `depth` counts keys that wait for a worker now. As in client-go, it leaves out keys that are not due yet and includes held keys that
    are due again.
    """

    depth: int
    delayed: int
    held: int
    adds: int
    unfinished_seconds: float
    longest_seconds: float


@dataclass(frozen=True, slots=True)
class Row(Generic[K]):
    """One key, for a page that people read. A key that is held and due again has both times; `due_in` is negative when overdue."""

    key: K
    state: Literal["held", "ready", "delayed"]
    due_in: float | None
    held_for: float | None
    attempts: int


class WorkQueue(Generic[K]):
    """Operations cost O(log n), but `ready`, `counts` and `snapshot` look at every key: they are for scrapes and pages."""

    def __init__(
        self,
        party_of: Callable[[K], Party] = lambda _: None,
        *,
        has_failed: Callable[[K], bool] = lambda _: False,
        most_held: float = math.inf,
    ) -> None:
        """`party_of` and `has_failed` are asked when the key is due."""
        self._party_of = party_of
        self._has_failed = has_failed
        self._most_held = most_held
        self._held_by: dict[Party, int] = {}
        self._held_later = 0
        self._waiting: dict[K, Turn] = {}
        self._held: dict[K, Hold] = {}
        self._again: dict[K, float] = {}
        # Each waiting key has its place in one of these two, and they hold stale places of keys that were moved or discarded since.
        self._later: list[Place[K]] = []
        self._due: GroupedLine[K] = GroupedLine(self._is_current)
        self._turns = 0
        self._adds = 0

    def add(self, key: K, at: float) -> bool:
        """Add the key, to be taken at `at` or later. False if it was in the queue already."""
        if not math.isfinite(at):  # a key due at infinity would be lost, and NaN would break the heap's order
            raise ValueError(f"{at} is no time at which {key!r} could be due")
        if key in self._held:
            return self._add_held(key, at)
        turn = self._waiting.get(key)
        if turn is None or at < turn.at:
            self._push(key, at)
        self._adds += turn is None
        return turn is None

    def take(self, now: float) -> K | None:
        """Take a key that is due, see rule 4. The caller holds it until `done`."""
        if not self._waiting:
            return None
        self._let_fall_due(now)
        if (found := self._due.take()) is None:
            return None
        whose, (turn, key) = found
        del self._waiting[key]
        self._held[key] = Hold(due=turn.at, since=now, whose=whose)
        held = self._held_by[whose.party] = self._held_by.get(whose.party, 0) + 1
        if held >= self._most_held:
            self._due.pause(whose.party)
        self._held_later += whose.group is Group.LATER
        if self._held_later >= self._most_held:
            self._due.close(Group.LATER)
        return key

    def done(self, key: K, now: float) -> float:
        """Give a held key back. Returns the seconds for which it was held."""
        hold = self._held.pop(key)
        party = hold.whose.party
        held = self._held_by[party]
        if held >= self._most_held:
            self._due.resume(party)
        if held > 1:
            self._held_by[party] = held - 1
        else:
            del self._held_by[party]
        if hold.whose.group is Group.LATER:
            self._held_later -= 1
            self._due.open(Group.LATER)
        if key in self._again:
            self._push(key, self._again.pop(key))
        return now - hold.since

    def discard(self, key: K) -> None:
        """Remove the key from the queue. If it is held, it stays held."""
        self._waiting.pop(key, None)
        self._again.pop(key, None)

    def hold(self, key: K) -> Hold:
        """The hold on a key; KeyError if it is not held."""
        return self._held[key]

    def next_at(self) -> float | None:
        """When `take` can give a key: a time that has passed if it can now, None if it cannot before something is added or given back."""
        self._drop_stale_head()
        turns = [self._due.next_turn(), self._later[0].turn if self._later else None]
        return min((turn.at for turn in turns if turn is not None), default=None)

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
        """All keys: first the held ones, longest first, then the waiting ones by time. Of those that are due, parties take turns."""
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
        heapq.heappush(self._later, Place(turn, key))
        if len(self._later) + self._due.places > 2 * len(self._waiting) + _SMALL_HEAP:
            # More stale turns than valid ones. Rebuilding costs no more than the pushes since the last time, so each is still O(log n).
            self._later = [place for place in self._later if self._is_current(place)]
            heapq.heapify(self._later)
            self._due.tidy()

    def _let_fall_due(self, now: float) -> None:
        """Each place once, so this too is O(log n) for each key."""
        while self._later and self._later[0].turn.at <= now:
            place = heapq.heappop(self._later)
            if self._is_current(place):
                self._due.put(self._whose(place.item), place)

    def _whose(self, key: K) -> Whose:
        if (party := self._party_of(key)) is None:
            return Whose()
        return Whose(party, Group.LATER if self._has_failed(key) else Group.NEW)

    def _is_current(self, place: Place[K]) -> bool:
        return self._waiting.get(place.item) == place.turn

    def _drop_stale_head(self) -> None:
        while self._later and not self._is_current(self._later[0]):
            heapq.heappop(self._later)
