"""Decides what a person has said on the report on a node that is gone: that its disks are lost, or in so many words that they are not.

Any text says who has acknowledged it. But people write `false` there to take it back, and what they mean for one machine may meet the
report on another one of that name: such a word keeps everything, also what was announced.
"""

import re
from dataclasses import dataclass
from typing import Final

from sidecar.drain import machine_mark
from sidecar.drain.machine_mark import Machine

_NO: Final = frozenset({"0", "cancel", "false", "keep", "never", "no", "none", "not", "null", "off", "stop", "wait"})
"""First words, whatever follows."""
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nobody has said anything."""


@dataclass(frozen=True, slots=True)
class Yes:
    """Somebody takes the loss upon himself."""


@dataclass(frozen=True, slots=True)
class No:
    """What is written there is no acknowledgement of this loss."""

    why: str


Spoken = Nothing | Yes | No


def spoken(text: str, machine: Machine) -> Spoken:
    """`text`: of the annotation."""
    text = text.strip()
    if not text:
        return Nothing()
    if re.split(r"\W+", text.lower().lstrip("\"'"), maxsplit=1)[0] in _NO:
        return No(f"what its report is annotated with says no: {text[:_LONGEST_SHOWN]!r}")
    named = machine_mark.parse(text)
    # `team/person` names no machine.
    if named is not None and named != machine and (named.node == machine.node or _UID.fullmatch(named.uid)):
        return No(f"what its report is annotated with names another machine: {text[:_LONGEST_SHOWN]!r}")
    return Yes()
