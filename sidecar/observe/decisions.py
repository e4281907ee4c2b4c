"""Keeps the latest few hundred decisions, for people who ask a minute later why the program did something.

It keeps texts of a limited size and not the decisions, which may hold whole objects and what a driver said. To make them costs little: most
of a node's decisions are to do nothing, and have a reason only. An equal decision with an equal reason for the same key is counted and moves
to the end, so that one busy key does not displace the history of the others. It has the latest fields: ages among them change each time.
"""

import dataclasses
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.observe.sanitize import Limits, Plain, clipped, plain, to_json

CAPACITY = 400
BYTES = 2**20
"""Of all texts together."""

# A row is short, for people; the complete text of a long error is in the log.
_LIMITS = Limits(text=500, items=20, depth=3)
_LONGEST_FIELDS = 8000


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


def _why(decision: object) -> str:
    return clipped(str(getattr(decision, "why", "")), _LIMITS.text)


def _fields_text(decision: object) -> str:
    """The fields as JSON; empty if there is none to show."""
    names = _shown_fields(type(decision))
    if not names:
        return ""
    text = to_json({name: plain(getattr(decision, name), _LIMITS) for name in names})
    return text if len(text) <= _LONGEST_FIELDS else to_json({"…": f"{len(text)} characters"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision, made `count` times in a row for its key. Times are seconds of the wall clock."""

    room: str
    key: str
    name: str
    decision: str
    why: str
    fields: str
    first: float
    last: float
    count: int = 1

    @property
    def size(self) -> int:
        return len(self.key) + len(self.name) + len(self.why) + len(self.fields)

    def row(self) -> dict[str, Plain]:
        return {
            "time": self.last,
            "since": self.first,
            "count": self.count,
            "room": self.room,
            "key": self.key,
            "name": self.name,
            "decision": self.decision,
            "why": self.why,
            "fields": json.loads(self.fields or "{}"),
        }


class Decisions:
    """All rooms call `note`, the debug page calls `rows`. To be called on the event loop's thread only."""

    def __init__(self, capacity: int = CAPACITY, *, most_bytes: int = BYTES) -> None:
        if capacity < 1:
            raise ValueError(f"with room for {capacity} decisions none would be kept")
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._bytes = 0
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._newest: dict[tuple[str, str], int] = {}
        self._number = 0

    def note(self, decision: object, *, at: float, room: str, key: object, name: str = "") -> Summary:
        """Keep it. Returns its name and reason for the log line about it."""
        summary, fields = Summary(type(decision).__name__, _why(decision)), _fields_text(decision)
        place = (room, str(key))
        number = self._newest.get(place)
        known = None if number is None else self._entries[number]
        if number is not None and known is not None and (known.decision, known.why) == summary:
            latest = dataclasses.replace(known, name=name, fields=fields, last=at, count=known.count + 1)
            self._bytes += latest.size - known.size
            self._entries[number] = latest
            self._entries.move_to_end(number)
        else:
            self._add(place, Entry(room, place[1], name, *summary, fields, first=at, last=at))
        return summary

    def rows(self, key: str | None = None) -> list[dict[str, Plain]]:
        """The rows, the latest last as in a log. `key` selects those with this key or object name."""
        return [entry.row() for entry in self._entries.values() if key is None or key in (entry.key, entry.name)]

    def __len__(self) -> int:
        return len(self._entries)

    def _add(self, place: tuple[str, str], entry: Entry) -> None:
        self._number += 1
        self._entries[self._number] = entry
        self._newest[place] = self._number
        self._bytes += entry.size
        while len(self._entries) > self._capacity or (self._bytes > self._most_bytes and len(self._entries) > 1):
            number, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.size
            if self._newest[oldest.room, oldest.key] == number:
                del self._newest[oldest.room, oldest.key]
