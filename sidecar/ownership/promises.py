"""Keeps what this node has promised of its free space: by claim, and by class in the order in which it is held back.

A measurement must not cost a walk over ten thousand claims. So what is put in costs O(log n), what was promised at a moment is told from
what has changed since, and equal promises of a namespace count as one step.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from types import MappingProxyType
from typing import Final

# Of what is free, one part in so many is the most that claims of one namespace hold back while those of others wait.
_SHARE: Final = 2

_Step = tuple[int, str]
"""Size, as a negative number so that the largest comes first, and namespace."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The space that one claim will take. A claim is this node's as soon as it names the node, but it takes space only when its volume is
    created; in between the driver still reports that space as free."""

    class_name: str
    size: int
    namespace: str = field(default="", compare=False)


def held(owed: Iterable[Promise], free: int, *, waiting: Collection[str] = ()) -> int:
    """How many of so many free bytes are held back for these promises: never more than can be taken, so that a claim that does not fit
    holds nothing. `waiting`: namespaces of claims that wait for space; beside them, one namespace holds no more than its share.

    The largest are held first, and among equal ones the namespaces in their order."""
    counts = Counter(map(_step, owed))
    return _held(sorted(counts), [counts], free, waiting=frozenset(waiting))


def _step(promise: Promise) -> _Step:
    return (-promise.size, promise.namespace)


def _held(steps: list[_Step], counts: list[Mapping[_Step, int]], free: int, *, waiting: frozenset[str]) -> int:
    """`steps` are sorted, and how many promises there are of each, the `counts` tell together."""
    room, share, held_by = free, free // _SHARE, dict[str, int]()
    at, end = bisect_left(steps, (-room, "")), len(steps)
    only = next(iter(waiting)) if len(waiting) == 1 else None
    first, *more = counts or [{}]
    while at < end and room > 0:
        step = steps[at]
        size, namespace = -step[0], step[1]
        if size > room:
            at = bisect_left(steps, (-room, ""), at)
            continue
        at += 1
        count = first.get(step, 0)
        for others in more:
            count += others.get(step, 0)
        if not waiting or namespace == only:
            room -= size if count == 1 else min(count, room // size) * size
            continue
        left = share - held_by.get(namespace, 0)
        part = min(count * size, left) if count * size <= room else _of_several(count, size, room, left)
        room -= part
        held_by[namespace] = share - left + part
    return free - room


def _of_several(count: int, size: int, room: int, left: int) -> int:
    """How much is held for them one after another, of which not all fit. `left`: of the namespace's share."""
    whole = min(count, room // size, left // size)
    # If another one would fit, what is left of the share is less than it takes.
    return left if whole < count and size <= room - whole * size else whole * size


class _Shelf:
    """The promises of one class."""

    def __init__(self) -> None:
        self.counts: dict[_Step, int] = {}
        self.steps: list[_Step] = []

    def put(self, promise: Promise) -> None:
        step = _step(promise)
        if step not in self.counts:
            insort(self.steps, step)
        self.counts[step] = self.counts.get(step, 0) + 1

    def take_out(self, promise: Promise) -> None:
        step = _step(promise)
        self.counts[step] -= 1
        if not self.counts[step]:
            del self.counts[step]
            del self.steps[bisect_left(self.steps, step)]


class Moment:
    """A place in the book's history. Two may begin at the same one."""

    def __init__(self, start: int) -> None:
        self.start = start


class PromiseBook:
    """Changed by whoever makes promises, read by all who measure free space."""

    def __init__(self) -> None:
        self._promises: dict[str, Promise] = {}
        self._shelves: dict[str, _Shelf] = {}
        self._moments: dict[Moment, None] = {}
        self._past: list[tuple[str, Promise | None]] = []
        """What each change since the oldest moment has replaced."""
        self._forgotten = 0
        """How many changes there were before those."""

    @property
    def by_claim(self) -> Mapping[str, Promise]:
        """What is promised now, by the claim's uid."""
        return MappingProxyType(self._promises)

    def get(self, uid: str) -> Promise | None:
        return self._promises.get(uid)

    def put(self, uid: str, promise: Promise | None) -> None:
        """None: nothing is promised to that claim."""
        old = self._promises.get(uid)
        if old == promise and (old is None or promise is None or old.namespace == promise.namespace):
            return
        if self._moments:
            self._past.append((uid, old))
        if old is not None:
            del self._promises[uid]
            self._shelves[old.class_name].take_out(old)
            if not self._shelves[old.class_name].counts:
                del self._shelves[old.class_name]
        if promise is not None:
            self._promises[uid] = promise
            self._shelves.setdefault(promise.class_name, _Shelf()).put(promise)

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        """Within it, what was promised when it began is known."""
        moment = Moment(self._forgotten + len(self._past))
        self._moments[moment] = None
        try:
            yield moment
        finally:
            del self._moments[moment]
            oldest = next(iter(self._moments)).start if self._moments else self._forgotten + len(self._past)
            del self._past[: oldest - self._forgotten]
            self._forgotten = oldest

    def ended_since(self, moment: Moment) -> dict[str, Promise]:
        """What was promised at that moment, to claims to which nothing is promised now."""
        before: dict[str, Promise | None] = {}
        for uid, old in islice(self._past, moment.start - self._forgotten, None):
            before.setdefault(uid, old)
        return {uid: old for uid, old in before.items() if old is not None and uid not in self._promises}

    def held(
        self,
        largest: Mapping[str, int | None],
        free: int,
        *,
        waiting: Collection[str] = (),
        besides: str = "",
        since: Moment | None = None,
    ) -> int:
        """As the function, for the promises of these classes, each up to the largest volume that it can have. All but the promise to the
        claim `besides`; and those too that have ended since that moment."""
        corrections: dict[str, Counter[_Step]] = {}
        if (own := self._promises.get(besides)) is not None:
            corrections.setdefault(own.class_name, Counter())[_step(own)] -= 1
        for uid, promise in (self.ended_since(since) if since else {}).items():
            if uid != besides:
                corrections.setdefault(promise.class_name, Counter())[_step(promise)] += 1
        steps, counts = list[list[_Step]](), list[Mapping[_Step, int]]()
        for class_name, most in largest.items():
            shelf, corrected = self._shelves.get(class_name, _EMPTY), corrections.get(class_name, Counter())
            new = [step for step in corrected if step not in shelf.counts]
            for these, of_these in ((shelf.steps, shelf.counts), (sorted(new), corrected)):
                fitting = these if most is None else these[bisect_left(these, (-most, "")) :]
                steps.append(fitting)
                # Of a class alone, what is too large is in no step. Beside others it could be in one of theirs.
                counts.append(of_these if most is None or len(largest) == 1 else _up_to(most, of_these))
        return _held(_joined(steps), [some for some in counts if some], free, waiting=frozenset(waiting))


_EMPTY: Final = _Shelf()
_FEW: Final = 50


def _up_to(most: int, counts: Mapping[_Step, int]) -> Mapping[_Step, int]:
    return {step: count for step, count in counts.items() if -step[0] <= most}


def _joined(lists: list[list[_Step]]) -> list[_Step]:
    """Sorted, each once."""
    longest, *others = sorted(filter(None, lists), key=len, reverse=True) or [[]]
    if not others:
        return longest
    if sum(map(len, others)) > _FEW:
        return [step for step, _ in groupby(sorted(chain(longest, *others)))]
    joined = list(longest)
    for step in chain(*others):
        at = bisect_left(joined, step)
        if joined[at : at + 1] != [step]:
            joined.insert(at, step)
    return joined
