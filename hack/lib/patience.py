"""How long tests and measurements wait for what must come.

A limit is a safety net and no promise: it is ten times what a quiet machine needs, and two minutes at least, so that a neighbour who has
the processor fails no test. A test that passes never waits for it. How fast something comes is measured by `hack/bench`, and promised
in virtual time.
"""

from __future__ import annotations

import time

LIMIT = 120.0
_STRETCH = 10.0


def patient(seconds: float) -> float:
    """How long to wait for what takes no longer than so many seconds on a quiet machine."""
    return max(LIMIT, _STRETCH * seconds)


def deadline(seconds: float = 0.0) -> float:
    """The moment, on the monotonic clock, at which waiting for it is given up."""
    return time.monotonic() + patient(seconds)
