"""Shares the time of the event loop between the pages that cost some and everything else.

They are made one at a time, and after each one there is a pause of several times what it took. So whoever asks for them again and again
delays others who want them, but neither the work of the program nor the pages of probes, which wait for no turn.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

_SHARE: Final = 0.25
"""Of the loop's time, at most."""


class Turns:
    """Who waits, in the order in which they came. Each has one turn and then comes again."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._next: asyncio.TimerHandle | None = None
        self._free_at = 0.0

    def wait(self, who: Hashable, make: Callable[[], None]) -> None:
        """Have `make` called when it is their turn."""
        self._waiting[who] = make
        self._arrange()

    def forget(self, who: Hashable) -> None:
        """They are gone."""
        self._waiting.pop(who, None)
        if not self._waiting and self._next is not None:
            self._next.cancel()
            self._next = None

    def _arrange(self) -> None:
        if self._next is None and self._waiting:
            self._next = self._loop.call_at(max(self._free_at, self._loop.time()), self._take_turn)

    def _take_turn(self) -> None:
        self._next = None
        make = self._waiting.pop(next(iter(self._waiting)))
        began = self._loop.time()
        try:
            make()
        finally:
            ended = self._loop.time()
            self._free_at = ended + (ended - began) * (1 / _SHARE - 1)
            self._arrange()
