"""How long tests wait for what must come. That is no measure of how fast it comes: a test of that compares moments."""

from __future__ import annotations

import os
import time

# A machine of continuous integration is shared with others: there everything takes three times as long, now and then.
_WHERE_SHARED = 3.0


def patient(seconds: float) -> float:
    """How long to wait for what takes no longer than so many seconds on a machine of one's own."""
    return seconds * (_WHERE_SHARED if os.environ.get("CI") else 1.0)


def deadline(seconds: float) -> float:
    """The moment, on the monotonic clock, at which waiting for it is given up."""
    return time.monotonic() + patient(seconds)
