"""A line of three groups, in each of which parties take turns: what the program itself wants, what is new, and what has failed before.

Of two turns one may be the program's own. Of the others what is new comes first, for it is most often done at once; but every fourth is for
what has failed, so that it is tried again however much is new. So whoever has many parties that fail delays nobody else by their number.
"""

from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from sidecar.engine.fair_line import FairLine, Party, Place, Turn

T = TypeVar("T")

# So many turns in a row what is new may have while others wait that have failed before.
_NEW_IN_A_ROW: Final = 3


class Group(IntEnum):
    """Which turns somebody has."""

    OWN = 0
    """For nobody but the program."""
    NEW = 1
    LATER = 2
    """What has failed before, and whatever else must not delay what is new."""


class Whose(NamedTuple):
    """Among whom one waits."""

    party: Party = None
    group: Group = Group.OWN


CURRENT: Final[ContextVar[Whose]] = ContextVar("whose", default=Whose())  # noqa: B039 - it is immutable
"""For whom the running task works."""


class GroupedLine(Generic[T]):
    """`is_current` as in `FairLine`."""

    def __init__(self, is_current: Callable[[Place[T]], bool] = lambda _: True) -> None:
        self._lines: list[FairLine[T]] = [FairLine(is_current) for _ in Group]  # by group
        self._closed: set[Group] = set()
        self._own_was_last = False
        self._new_in_a_row = 0

    @property
    def places(self) -> int:
        """How many are kept, those that do not count any more included."""
        own, new, later = self._lines
        return own.places + new.places + later.places

    def put(self, whose: Whose, place: Place[T]) -> None:
        self._lines[whose.group].put(whose.party, place)

    def take(self) -> tuple[Whose, Place[T]] | None:
        """The next one, after which the other groups, and the other parties of its group, come first."""
        own, new, later = self._waits(Group.OWN), self._waits(Group.NEW), self._waits(Group.LATER)
        if own and not (self._own_was_last and (new or later)):
            group = Group.OWN
        elif later and not (new and self._new_in_a_row < _NEW_IN_A_ROW):
            group = Group.LATER
        else:
            group = Group.NEW
        if (taken := self._lines[group].take() if own or new or later else None) is None:
            return None
        self._own_was_last = group is Group.OWN
        if group is not Group.OWN:
            self._new_in_a_row = self._new_in_a_row + 1 if group is Group.NEW and later else 0
        party, place = taken
        return Whose(party, group), place

    def next_turn(self) -> Turn | None:
        """The earliest of those that could be given."""
        turns = [line.next_turn() for group, line in enumerate(self._lines) if line.places and group not in self._closed]
        return min((turn for turn in turns if turn is not None), default=None)

    def pause(self, party: Party) -> None:
        """Nothing of that party is given until `resume`."""
        for line in self._lines:
            line.pause(party)

    def resume(self, party: Party) -> None:
        for line in self._lines:
            line.resume(party)

    def close(self, group: Group) -> None:
        """Nothing of that group is given until `open`."""
        self._closed.add(group)

    def open(self, group: Group) -> None:
        self._closed.discard(group)

    def tidy(self) -> None:
        """Forget what does not count any more. Costs O(n)."""
        for line in self._lines:
            line.tidy()

    def _waits(self, group: Group) -> bool:
        line = self._lines[group]
        return line.places > 0 and group not in self._closed and line.next_turn() is not None
