"""Writes and reads the machine that a mark names, as `<node>/<node uid>`. By its name alone a node could be another machine by now.

What is stored may have been edited by anybody, so it is read with distrust.
"""

import re
from dataclasses import dataclass
from typing import Final

_LONGEST_NAME: Final = 253
_LONGEST_UID: Final = 63
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_UID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?")
# An annotation may have 256 KiB, of which nothing is looked at.
_LONGEST: Final = _LONGEST_NAME + 1 + _LONGEST_UID


@dataclass(frozen=True, slots=True)
class Machine:
    """One Node object, and so one machine, as long as nobody gives it another name."""

    node: str
    uid: str


def text(machine: Machine) -> str:
    return f"{machine.node}/{machine.uid}"


def parse(text: str) -> Machine | None:
    """None for everything that `text` does not give for a name and a uid that the API server could have stored."""
    if len(text) > _LONGEST:
        return None
    node, slash, uid = text.partition("/")
    if not slash or len(node) > _LONGEST_NAME or len(uid) > _LONGEST_UID:
        return None
    return Machine(node, uid) if _NAME.fullmatch(node) and _UID.fullmatch(uid) else None
