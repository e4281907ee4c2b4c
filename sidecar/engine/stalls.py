"""Measures for how long the event loop stands still.

While the loop runs callbacks, nothing else happens: no probe is answered, no deadline kept. What it does between two looks at its sockets
and timers is one stall. Each is measured, without a timer that would wake an idle process: a hundred moments of each second are looked at
afterwards, and for each of them it is told how long whoever came then had to wait. Their distribution is what clients meet.

A stall may be no fault of the program: it was ready to run and had no processor. So each is told twice, as a whole and without what the
kernel says that this thread has waited for a processor. Where that is not known for certain, it counts as the program's own.
"""

import asyncio
import os
import selectors
import time
from collections.abc import Callable
from typing import Final, Protocol

PERIOD: Final = 0.01
_SHORT: Final = 0.005
"""Shorter stalls are their own altogether, and no two readings of what was waited for are closer: they would cost more than they tell."""


class Observer(Protocol):
    def stalled(self, whole: float, own: float, moments: int = 1) -> None:
        """For so many moments, how long the loop did not look up from then on."""

    def stood_still(self, whole: float, own: float) -> None:
        """One stall."""


class Stalls:
    """Told of each wait for something to do. `waited` returns for how many seconds this thread was ready to run and had no processor."""

    def __init__(self, observer: Observer, *, clock: Callable[[], float], waited: Callable[[], float]) -> None:
        self._observer = observer
        self._clock = clock
        self._waited = waited
        self._woke = self._read_at = clock()
        self._read = waited()
        self._next = self._woke + PERIOD

    def ends(self) -> None:
        """The loop has nothing to do, or looks whether it has."""
        now = self._clock()
        if now >= self._next or now - self._woke > _SHORT:
            self._measure(now)

    def begins(self) -> None:
        self._woke = now = self._clock()
        if now - self._read_at > _SHORT:
            self._read_at, self._read = now, self._waited()

    def _measure(self, now: float) -> None:
        whole = own = now - self._woke
        if whole > _SHORT:
            # What was waited before this stall began is not part of it, and cannot be more than the time since the last reading.
            excused = self._waited() - self._read - (self._woke - self._read_at)
            own -= min(whole, max(0.0, excused))
            self._observer.stood_still(whole, own)
        if idle := max(0, -int((self._next - self._woke) // PERIOD)):
            self._observer.stalled(0.0, 0.0, idle)
            self._next += idle * PERIOD
        while self._next <= now:
            late = now - self._next
            self._observer.stalled(late, min(late, own))
            self._next += PERIOD


class _Selector(selectors.DefaultSelector):
    """Everything that happens between two calls of `select` is the loop's work."""

    def __init__(self, stalls: Stalls) -> None:
        super().__init__()
        self._stalls = stalls

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._stalls.ends()
        try:
            return super().select(timeout)
        finally:
            self._stalls.begins()


def new_loop(observer: Observer) -> asyncio.AbstractEventLoop:
    """An event loop whose stalls are told. To be called on the thread that will run it."""
    return asyncio.SelectorEventLoop(_Selector(Stalls(observer, clock=time.monotonic, waited=_processor_waits())))


def _processor_waits() -> Callable[[], float]:
    """By the kernel's own account. Where it keeps none, nothing was waited for."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return lambda: 0.0

    def read() -> float:
        try:
            _ran, waited, _times = os.pread(file, 100, 0).split()
        except (OSError, ValueError):
            return 0.0
        return int(waited) / 1e9

    return read
