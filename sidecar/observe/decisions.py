"""Keeps the latest few hundred decisions, for people who ask a minute later why the program did something.

It keeps the decisions themselves and makes text of them only when they are read, for every node decides about every claim and few people
read. An equal decision for the same key is counted and moves to the end, so that one busy key does not displace the history of the others.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

from sidecar.observe.sanitize import Limits, Plain, clipped, plain

CAPACITY = 400

# A row is short, for people; the complete text of a long error is in the log.
_LIMITS = Limits(text=500, items=20, depth=3)


class Shown(NamedTuple):
    """A decision as a page shows it."""

    decision: str
    why: str
    fields: dict[str, Plain]


class Summary(NamedTuple):
    """A decision's name and reason."""

    decision: str
    why: str


_SHOWN_FIELDS: dict[type, tuple[str, ...]] = {}


def _shown_fields(kind: type) -> tuple[str, ...]:
    """The fields of this kind of decision. They are kept, for most of a node's work is deciding that there is nothing to do."""
    if kind not in _SHOWN_FIELDS:
        items = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        _SHOWN_FIELDS[kind] = tuple(item.name for item in items if item.repr and item.name != "why")
    return _SHOWN_FIELDS[kind]


def shown(decision: object) -> Shown:
    """Class name, `why` and the other fields, which are a decision's metric label, reason and effect."""
    fields = {name: plain(getattr(decision, name), _LIMITS) for name in _shown_fields(type(decision))}
    return Shown(type(decision).__name__, _why(decision), fields)


def _why(decision: object) -> str:
    return clipped(str(getattr(decision, "why", "")), _LIMITS.text)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One decision, made `count` times in a row for its key. Times are seconds of the wall clock."""

    room: str
    key: str
    name: str
    decision: object
    first: float
    last: float
    count: int = 1

    def row(self) -> dict[str, Plain]:
        text = shown(self.decision)
        return {
            "time": self.last,
            "since": self.first,
            "count": self.count,
            "room": self.room,
            "key": self.key,
            "name": self.name,
            "decision": text.decision,
            "why": text.why,
            "fields": text.fields,
        }


class Decisions:
    """All rooms call `note`, the debug page calls `rows`. To be called on the event loop's thread only."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"with room for {capacity} decisions none would be kept")
        self._capacity = capacity
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._newest: dict[tuple[str, str], int] = {}
        self._number = 0

    def note(self, decision: object, *, at: float, room: str, key: object, name: str = "") -> Summary:
        """Keep it. Returns its name and reason for the log line about it."""
        place = (room, str(key))
        number = self._newest.get(place)
        known = None if number is None else self._entries[number]
        # Types too: decisions of two kinds may compare as equal.
        if number is not None and known is not None and type(decision) is type(known.decision) and decision == known.decision:
            self._entries[number] = dataclasses.replace(known, name=name, last=at, count=known.count + 1)
            self._entries.move_to_end(number)
        else:
            self._add(place, Entry(room, place[1], name, decision, first=at, last=at))
        return Summary(type(decision).__name__, _why(decision))

    def rows(self, key: str | None = None) -> list[dict[str, Plain]]:
        """The rows, the latest last as in a log. `key` selects those with this key or object name."""
        return [entry.row() for entry in self._entries.values() if key is None or key in (entry.key, entry.name)]

    def __len__(self) -> int:
        return len(self._entries)

    def _add(self, place: tuple[str, str], entry: Entry) -> None:
        self._number += 1
        self._entries[self._number] = entry
        self._newest[place] = self._number
        if len(self._entries) > self._capacity:
            number, oldest = self._entries.popitem(last=False)
            if self._newest[oldest.room, oldest.key] == number:
                del self._newest[oldest.room, oldest.key]
