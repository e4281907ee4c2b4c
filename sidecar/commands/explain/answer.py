"""What `explain` answers: a text, and the verdicts that the exit code tells."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.drain.vocabulary import Status

_CODES: Final = {Status.TRUE: 0, Status.UNKNOWN: 4, Status.FALSE: 3}
"""From the best to the worst. 1 and 2 are for what could not be read: the cluster, the command line."""


def strictness(status: Status) -> int:
    """The higher, the stricter."""
    return tuple(_CODES).index(status)


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    statuses: tuple[Status, ...] = ()
    """For --exit-code."""


def exit_code(statuses: Iterable[Status]) -> int:
    """Of the worst. Nothing at all is ready."""
    return _CODES[max(statuses, key=strictness, default=Status.TRUE)]
