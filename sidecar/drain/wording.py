"""Parts of sentences that several rooms need: a few names of many, and what somebody wrote on an object."""

from collections.abc import Sequence
from typing import Final

from sidecar.model import names as keys

_SHOWN: Final = 3
# An annotation may have 256 KiB.
_LONGEST: Final = 40
LATELY: Final = "a pod used it until a moment ago"
"""How the message of a blocker begins whose pod has left."""
LOCK_SHUT: Final = "lock of "
"""How a note begins that says why a replica is not made anew."""
LOCKS_OPEN: Final = "locks of "
MADE_NEXT: Final = "made anew next: "
NOT_MADE_NOW: Final = "not made anew now: "
ABOUT_REPLICAS: Final = (MADE_NEXT, NOT_MADE_NOW, LOCKS_OPEN, LOCK_SHUT)
"""How the notes begin that say how far a replica is that is made anew."""


def first_few(names: Sequence[str], most: int = _SHOWN) -> str:
    """The first names of a list that may be long, and how many there are beside them."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def all_or_few(names: Sequence[str]) -> str:
    """With `and` between them, where they are few."""
    return " and ".join(names) if len(names) <= _SHOWN else first_few(names)


def quoted(text: str) -> str:
    """What somebody wrote on an object, for a sentence about it."""
    return repr(text[:_LONGEST])


def announcing(node: str) -> str:
    """How to say what a drain is for."""
    return f"csi-node-sidecar node reboot {node} if its disks come back, csi-node-sidecar node retire {node} if not"


def regardless(node: str) -> str:
    return f"to drain regardless: kubectl annotate node {node} {keys.FORCE_DRAIN}=WHY"
