"""What is written down while a world runs: a transcript for people, and how often nodes ask, for one claim or volume and at rest.

For whom a process asks, the task says in which it asks: a loop gives each key that it handles a task of its own. Events are written by
another task and do not count.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

CREATIONS: Final = "CreateVolume"
DELETIONS: Final = "DeleteVolume"
MEASURES: Final = "GetCapacity"
WRITES: Final = "writes to the API server"
MOST: Final = {CREATIONS: 10, DELETIONS: 10, MEASURES: 20, WRITES: 20}
"""By one process in a minute. One that has just started has forgotten how often the one before it asked, so each counts for itself."""

_MINUTE: Final = 60.0
_LOOPS: Final = ("claims", "volumes")
_COUNTED: Final = (CREATIONS, DELETIONS, MEASURES)


class Transcript:
    """Lines of text: time, place, event. Equal seeds give equal transcripts. pytest shows it where a test fails."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.lines: list[str] = []

    def tell(self, where: str, what: str) -> None:
        self.lines.append(f"{self._clock():10.3f}  {where:<10} {what}")
        logging.getLogger("world").info("%s", self.lines[-1])


@dataclass(frozen=True, slots=True)
class Asker:
    """One process, for one claim by its uid or one volume by its name."""

    node: str
    life: int
    subject: str
    what: str


class RequestLog:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[Asker, list[float]] = {}
        self.resting: Counter[tuple[str, str]] = Counter()
        """Requests by node and text. Cleared at the moment at which the world should be at rest."""

    def asked(self, node: str, what: str) -> None:
        """A request leaves for the API server."""
        self.resting[node, what] += 1

    def called(self, node: str, life: int, method: str, name: str) -> None:
        """A driver is asked."""
        subject = _subject()
        if (subject or name) and method in _COUNTED:
            asker = Asker(node, life, subject or f"{name}, for which no loop asks", method)
            self._times.setdefault(asker, []).append(self._clock())

    def wrote(self, node: str, life: int) -> None:
        """A write has left for the API server."""
        if subject := _subject():
            self._times.setdefault(Asker(node, life, subject, WRITES), []).append(self._clock())

    def busiest(self) -> Iterator[tuple[Asker, int]]:
        """The most that each has asked in any minute."""
        for asker, times in self._times.items():
            yield asker, most_in_a_minute(times)

    def too_many(self) -> Iterator[str]:
        for asker, count in self.busiest():
            if count > MOST[asker.what]:
                yield f"life {asker.life} of {asker.node} asked {count} times in a minute for {asker.subject}: {asker.what}"


def most_in_a_minute(times: Sequence[float]) -> int:
    """`times` in their order."""
    return max((last + 1 - bisect_left(times, at - _MINUTE, hi=last) for last, at in enumerate(times)), default=0)


def _subject() -> str:
    task = asyncio.current_task()
    loop, _, key = task.get_name().partition(" ") if task is not None else ("", "", "")
    return f"{loop} {key}" if loop in _LOOPS else ""
