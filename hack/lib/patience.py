"""How long tests wait for what must come.

How fast it comes is better measured by what else took in the same run. Where a limit is one of the clock all the same, since users are
promised so many seconds, it is stretched too: a test that fails where a neighbour has the processor says nothing about the program.
"""

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
