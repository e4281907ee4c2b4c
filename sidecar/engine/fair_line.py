"""A line in which parties take turns: a party with ten thousand in it makes another wait for one of them, and not for all.

Within a party the smallest turn goes first. Whose turn it is costs O(1), and what is put in or taken out O(log n).
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
Party = Hashable
"""None: nobody but the program."""


class Turn(NamedTuple):
    """A place in the order: by time, and among equal times by arrival."""

    at: float
    number: int


class Place(NamedTuple, Generic[T]):
    """One that waits. No two have the same turn, so what waits is never compared."""

    turn: Turn
    item: T


class FairLine(Generic[T]):
    """`is_current` says of a place whether it still counts: one that does not costs its party no turn."""

    def __init__(self, is_current: Callable[[Place[T]], bool] = lambda _: True) -> None:
        self._is_current = is_current
        # The first party is the next one. A dict would be slow to find its first key after many were taken from its front.
        self._parties: OrderedDict[Party, list[Place[T]]] = OrderedDict()
        self._paused: dict[Party, list[Place[T]]] = {}
        self.places = 0
        """How many are kept, those that do not count any more included."""

    def put(self, party: Party, place: Place[T]) -> None:
        paused = self._paused.get(party)
        heapq.heappush(self._parties.setdefault(party, []) if paused is None else paused, place)
        self.places += 1

    def take(self) -> tuple[Party, Place[T]] | None:
        """The next one, after which the other parties come first."""
        if (head := self._head()) is None:
            return None
        party, heap = head
        place = self._pop(heap)
        if heap:
            self._parties.move_to_end(party)
        else:
            del self._parties[party]
        return party, place

    def next_turn(self) -> Turn | None:
        """Of the one that `take` would give."""
        head = self._head()
        return None if head is None else head[1][0].turn

    def pause(self, party: Party) -> None:
        """Nothing of that party is given until `resume`."""
        if party not in self._paused:
            self._paused[party] = self._parties.pop(party, [])

    def resume(self, party: Party) -> None:
        heap = self._paused.pop(party, None)
        if heap:
            self._parties[party] = heap

    def tidy(self) -> None:
        """Forget what does not count any more. Costs O(n)."""
        for parties in (self._parties, self._paused):
            for party, heap in list(parties.items()):
                heap[:] = filter(self._is_current, heap)
                heapq.heapify(heap)
                if not heap and parties is self._parties:
                    del parties[party]
        self.places = sum(len(heap) for parties in (self._parties, self._paused) for heap in parties.values())

    def _head(self) -> tuple[Party, list[Place[T]]] | None:
        """Whose turn it is, with what waits for it; the first of these counts."""
        while self._parties:
            party, heap = next(iter(self._parties.items()))
            while heap and not self._is_current(heap[0]):
                self._pop(heap)
            if heap:
                return party, heap
            del self._parties[party]
        return None

    def _pop(self, heap: list[Place[T]]) -> Place[T]:
        self.places -= 1
        return heapq.heappop(heap)
