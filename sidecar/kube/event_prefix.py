"""Recognises by its first bytes a watch event that need not be parsed.

In a cluster of N nodes, all but one in N of the events are about objects of other nodes, and parsing JSON is most of what an event costs.
API servers write an object's fields in a fixed order, so the first bytes of an event name its object. A line that begins otherwise is
parsed like any other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_BEGINNING: Final = re.compile(
    rb'\{"type":"(?:ADDED|MODIFIED)","object":\{"kind":"[A-Za-z]+","apiVersion":"[a-z0-9./]+","metadata":\{"name":"([^"\\\x80-\xff]+)",'
    rb'(?:"generateName":"[^"\\]*",)?(?:"namespace":"[^"\\]*",)?"uid":"([^"\\\x80-\xff]+)","resourceVersion":"([0-9]+)"'
)


@dataclass(frozen=True, slots=True)
class EventPrefix:
    """What the first bytes of a line tell about its object."""

    name: str
    uid: str
    version: str


Skip = Callable[[EventPrefix, bytes], bool]
"""Whether an event may be left unparsed: its object does not concern this node, and no store holds it."""


def reads_all(prefix: EventPrefix, line: bytes) -> bool:
    """Every event is parsed."""
    return False


def read_prefix(line: bytes) -> EventPrefix | None:
    """None for a line that must be parsed: another type of event, or one that begins otherwise."""
    found = _BEGINNING.match(line)
    return EventPrefix(*(part.decode() for part in found.groups())) if found else None
