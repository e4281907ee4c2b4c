"""Progress for people: plain lines on stderr, for stdout holds results alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

TOLD = 15.0
"""Seconds between two lines of something that lasts."""


def say(message: str) -> None:
    """A line that begins with the name of the command that was started, such as `image: building from the Dockerfile`."""
    write(f"{Path(sys.argv[0]).name}: {message}\n")


def write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def step(what: str, **_: object) -> Iterator[None]:
    say(what)
    began = time.monotonic()
    yield
    say(f"{what}: done in {time.monotonic() - began:.0f} s")


timed = step
silent = nullcontext


@dataclass
class Turns:
    """Things that are done one after the other."""

    total: int
    unit: str
    now: str = ""
    done: int = 0
    due: float = 0.0

    def end(self) -> None:
        self.done += 1
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + TOLD
            say(f"{self.done} of {self.total} {self.unit}{', ' if self.now else ''}{self.now}")


@contextmanager
def counted(total: int, unit: str) -> Iterator[Turns]:
    yield Turns(total, unit, due=time.monotonic() + TOLD)
