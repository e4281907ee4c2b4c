"""A token bucket, so that a thousand nodes do not all send their requests in the same second.

The caller gives the time and does the waiting; the bucket only computes for how long.
"""

import math


class TokenBucket:
    """`qps` tokens a second, up to `burst` at once. A `qps` that is negative or infinite means no limit, as in client-go.

    Reservations are served in the order in which they are made: the level may fall below zero, and each further one waits longer.
    This is the rule of golang.org/x/time/rate, so the values of upstream's flags mean the same here.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._unlimited = qps < 0 or math.isinf(qps)
        if not self._unlimited and not (qps > 0 and burst >= 1):
            raise ValueError(f"a limit of {qps} per second with bursts of {burst} would never let anything through")
        self._qps = qps
        self._burst = float(burst)
        self._level = float(burst)
        self._seen = -math.inf

    def reserve(self, now: float) -> float:
        """Take a token, even one that is not there yet. Returns the seconds to wait before acting on it."""
        if self._unlimited:
            return 0.0
        self._refill(now)
        self._level -= 1.0
        return max(0.0, -self._level / self._qps)

    def give_back(self) -> None:
        """The last token was not used."""
        if not self._unlimited:
            self._level = min(self._burst, self._level + 1.0)

    def allow(self, now: float) -> bool:
        """Take a token only if there is one now: for messages that are better lost than late."""
        if self._unlimited:
            return True
        self._refill(now)
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True

    def _refill(self, now: float) -> None:
        if now <= self._seen:  # a clock that stands still or steps back earns nothing
            return
        self._level = min(self._burst, self._level + (now - self._seen) * self._qps)
        self._seen = now
