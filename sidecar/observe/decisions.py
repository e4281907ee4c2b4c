"""The last few hundred decisions, for whoever asks "why did it do that?" a minute later.

A ring of the decisions themselves, made readable when somebody reads them: few do, and every node decides about every claim.
A decision that is made again unchanged for the same key is counted up and moves to the end, so that one busy key cannot push
the history of all others out.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

from sidecar.observe.plain import Limits, Plain, clipped, plain

CAPACITY = 400

# A row is read by a person; the whole of a long error text is in the log.
_LIMITS = Limits(text=500, items=20, depth=3)


class Told(NamedTuple):
    """What a decision says of itself."""

    decision: str
    why: str
    fields: dict[str, Plain]


class Said(NamedTuple):
    """The least that a decision says: its name and its reason."""

    decision: str
    why: str


def _is_again(decision: object, before: object) -> bool:
    return type(decision) is type(before) and decision == before


_SHOWN: dict[type, tuple[str, ...]] = {}


def _shown(kind: type) -> tuple[str, ...]:
    """Every decision of a kind shows the same fields, and most of a node's work is to decide that there is nothing to do."""
    if kind not in _SHOWN:
        items = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        _SHOWN[kind] = tuple(item.name for item in items if item.repr and item.name != "why")
    return _SHOWN[kind]


def told(decision: object) -> Told:
    """Class name, `why`, and the other fields: the metric label, the reason and the effect of a decision, whatever its union."""
    fields = {name: plain(getattr(decision, name), _LIMITS) for name in _shown(type(decision))}
    return Told(type(decision).__name__, _why(decision), fields)


def _why(decision: object) -> str:
    return clipped(str(getattr(decision, "why", "")), _LIMITS.text)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One decision, made `count` times in a row for its key. Times are wall-clock seconds."""

    room: str
    key: str
    name: str
    decision: object
    first: float
    last: float
    count: int = 1

    def row(self) -> dict[str, Plain]:
        said = told(self.decision)
        return {
            "time": self.last,
            "since": self.first,
            "count": self.count,
            "room": self.room,
            "key": self.key,
            "name": self.name,
            "decision": said.decision,
            "why": said.why,
            "fields": said.fields,
        }


class Decisions:
    """`note` from any room; `rows` for the debug page. On the event loop's thread only."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"a memory of {capacity} decisions would remember none")
        self._capacity = capacity
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._newest: dict[tuple[str, str], int] = {}
        self._number = 0

    def note(self, decision: object, *, at: float, room: str, key: object, name: str = "") -> Said:
        """Remember it. Returns what it says of itself, which is also what a log line about it should say."""
        place = (room, str(key))
        number = self._newest.get(place)
        if number is not None and _is_again(decision, (known := self._entries[number]).decision):
            self._entries[number] = dataclasses.replace(known, name=name, last=at, count=known.count + 1)
            self._entries.move_to_end(number)
        else:
            self._add(place, Entry(room, place[1], name, decision, first=at, last=at))
        return Said(type(decision).__name__, _why(decision))

    def rows(self, key: str | None = None) -> list[dict[str, Plain]]:
        """The latest last, as in a log. `key` is matched against both the key and the object's name."""
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
