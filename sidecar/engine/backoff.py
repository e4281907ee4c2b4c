"""Computes the delay after a failure, and counts how often each key has failed in a row.

Nothing here waits or draws random numbers: the caller adds the delay to its own clock, and random numbers are a parameter.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# 2.0 ** 1024 no longer fits a float. Long before this exponent every sensible cap has been reached.
_LARGEST_EXPONENT = 1000
# Shorter delays than this many seconds are left as they are: what has just failed together is still together.
_SHORT = 8.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling delays in seconds. As upstream, a cap below the start is allowed, and then holds from the first attempt."""

    start: float
    cap: float

    def __post_init__(self) -> None:
        if not (self.start > 0 and self.cap > 0):  # put this way round, NaN is refused too
            raise ValueError(f"a back-off of {self.start} s up to {self.cap} s would not back off")

    def delay(self, attempt: int) -> float:
        """The delay after a failure with `attempt` failures before it: 0 gives the start."""
        if attempt < 0:
            raise ValueError(f"attempt {attempt} is negative")
        return min(self.start * 2.0 ** min(attempt, _LARGEST_EXPONENT), self.cap)


def jittered(delay: float, rng: Callable[[], float], *, spread: float) -> float:
    """The delay, stretched by up to `spread` of itself; `rng` gives numbers in [0, 1).

    It never shortens, as in client-go: all nodes lose the API server at the same moment, and a jitter that shortened would bring some
    of them back before the time that the server asked for.
    """
    return delay * (1.0 + spread * rng())


def on_a_beat(now: float, at: float) -> float:
    """At most a quarter of the delay sooner, at a moment that other keys with such a delay get too: what each of them would ask for by
    itself is then asked once for all."""
    delay = at - now
    if delay < _SHORT:
        return at
    beat = 2.0 ** math.floor(math.log2(delay / 4))
    return math.floor(at / beat) * beat


class Attempts(Generic[K]):
    """Failures in a row, per key: `backoff.delay(attempts.next(key))` after a failure, `forget(key)` after a success."""

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._total = 0

    def next(self, key: K) -> int:
        """How many failures this key had before the one being reported."""
        before = self._counts.get(key, 0)
        self._counts[key] = before + 1
        self._total += 1
        return before

    def forget(self, key: K) -> None:
        self._counts.pop(key, None)

    def count(self, key: K) -> int:
        return self._counts.get(key, 0)

    @property
    def total(self) -> int:
        """All failures ever reported, forgotten ones included: a counter for metrics."""
        return self._total

    def __len__(self) -> int:
        """Keys that have failed and were not forgotten."""
        return len(self._counts)
