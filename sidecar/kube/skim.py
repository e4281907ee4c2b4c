"""Events of a watch that need not be read: told by their first bytes, before any JSON is parsed.

In a cluster of N nodes all but one in N of what a node hears is about what others have, and to parse it is most of what hearing costs.
API servers write an object's fields in one order, so an event names its object within its first bytes. A line that does not begin
like that is read like any other.
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
class Skimmed:
    """What the beginning of a line tells of its object."""

    name: str
    uid: str
    version: str


PassesBy = Callable[[Skimmed, bytes], bool]
"""Whether the object of that line concerns nobody here, and nothing is held of it either."""


def reads_all(skimmed: Skimmed, line: bytes) -> bool:
    """Nothing passes by."""
    return False


def skim(line: bytes) -> Skimmed | None:
    """None for a line that has to be read: another kind of event, or one that begins otherwise."""
    found = _BEGINNING.match(line)
    return Skimmed(*(part.decode() for part in found.groups())) if found else None
