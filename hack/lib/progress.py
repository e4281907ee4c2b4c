"""Progress for people, on stderr: stdout holds results alone. How it is shown: `sidecar.commands.progress`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hack.lib import durations
from sidecar.commands.progress import Far, in_words, shown, silent, write

__all__ = ["Turns", "counted", "each", "say", "silent", "step", "timed", "write"]

T = TypeVar("T")

_NEARLY = 0.95
"""More than that is not said of a turn that has not ended."""


def say(message: str) -> None:
    """A line that begins with the name of the command that was started, such as `image: building from the Dockerfile`."""
    write(f"{_name()}: {message}\n")


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.1f} s")


@contextmanager
def step(what: str, *, about: float, detail: Callable[[], str] = str) -> Iterator[None]:
    """One thing that cannot be looked into. It is thought to take as long as the last time on this machine, and at first `about` so many
    seconds. `detail`: what is to be said of it while it lasts."""
    say(what)
    expected = durations.of(what, otherwise=about)
    began = time.monotonic()
    with shown(lambda: Far(f"{what} ({more})" if (more := detail()) else what, seconds=expected), name=_name()):
        yield
    taken = time.monotonic() - began
    durations.remember(what, taken)
    say(f"{what}: done in {in_words(taken)}")


class Turns:
    """Things that are done one after the other. How long those took that are done tells how long the others will."""

    def __init__(self, total: float, unit: str, *, pace: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`pace`: seconds for one of them, as long as none is done."""
        self.done = 0.0
        self.now = ""
        """Said of the turn that is being done."""
        self._total = total
        self._unit = unit
        self._pace = pace
        self._clock = clock
        self._began = self._last = clock()

    @property
    def pace(self) -> float:
        return (self._last - self._began) / self.done if self.done else self._pace

    def end(self, weight: float = 1.0) -> None:
        self._last = self._clock()
        self.done += weight

    def far(self, weight: float = 1.0) -> Far:
        """`weight`: of the turn that is being done."""
        inside = min(_NEARLY * weight, (self._clock() - self._last) / self.pace) if self.pace else 0.0
        count = f"{self.done:g} of {self._total:g} {self._unit}"
        return Far(f"{count}, {self.now}" if self.now else count, share=min(1.0, (self.done + inside) / self._total))


@contextmanager
def counted(total: int, unit: str) -> Iterator[Turns]:
    """Whoever works says of each that it has ended."""
    turns = Turns(total, unit)
    with shown(turns.far, name=_name()):
        yield turns


def each(items: Sequence[T], unit: str, *, weight: Callable[[T], float] = lambda _: 1.0) -> Iterator[T]:
    """The items, of which people see how many are done. `weight`: by which one takes longer than another."""
    weights = [weight(item) for item in items]
    key = f"{_name()} {unit}"
    turns = Turns(sum(weights), unit, pace=durations.of(key, otherwise=0.0))
    current = [0]
    with shown(lambda: turns.far(weights[current[0]]), name=_name()):
        for number, item in enumerate(items):
            current[0] = number
            yield item
            turns.end(weights[number])
    if turns.done:
        durations.remember(key, turns.pace)


def _name() -> str:
    return Path(sys.argv[0]).name
