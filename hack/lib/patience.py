"""How long tests and measurements wait for what must come.

A limit is a safety net and no promise: it is ten times what a quiet machine needs, and two minutes at least, so that a neighbour who has
the processor fails no test. A test that passes never waits for it. How fast something comes is measured by `hack/bench`, and promised
in virtual time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hack.lib.command import Failure, tail

T = TypeVar("T")

LIMIT = 120.0
_STRETCH = 10.0


def patient(seconds: float) -> float:
    """How long to wait for what takes no longer than so many seconds on a quiet machine."""
    return max(LIMIT, _STRETCH * seconds)


def deadline(seconds: float = 0.0) -> float:
    """The moment, on the monotonic clock, at which waiting for it is given up."""
    return time.monotonic() + patient(seconds)


class ApiError(Failure):
    """The API server answered with an error; `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


def until(
    condition: Callable[[], T], what: str | Callable[[], str], *, seconds: float = 0.0, pause: float = 0.05, log: Path | None = None
) -> T:
    """Polls until the condition answers something true; an object that is missing counts as not yet.

    It gives up where `patience` says, and tells what it waited for, what it saw last, and the end of the log. `seconds`: how long it
    takes on a quiet machine, where that is long.
    """
    end = deadline(seconds)
    while True:
        last: object = None
        try:
            last = answer = condition()
            if answer:
                return answer
        except ApiError as error:
            if error.status != 404:
                raise
            last = error
        if time.monotonic() > end:
            awaited, logged = what if isinstance(what, str) else what(), f"; {tail(log)}" if log else ""
            raise Failure(f"waited {patient(seconds):.0f} s in vain: {awaited} (last answer: {last}){logged}")
        time.sleep(pause)
