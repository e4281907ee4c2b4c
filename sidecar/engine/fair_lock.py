"""A lock for which tasks wait in turns, as `grouped_line` tells: those who work for a crowd do not make others wait for all of them."""

import asyncio
import itertools
from types import TracebackType

from sidecar.engine.fair_line import Place, Turn
from sidecar.engine.grouped_line import CURRENT, GroupedLine


class FairLock:
    """`async with` it. For whom it waits, `CURRENT` of the running task says. Who waits and is cancelled leaves the line."""

    def __init__(self) -> None:
        self._locked = False
        self._numbers = itertools.count()
        self._line: GroupedLine[asyncio.Future[None]] = GroupedLine(lambda place: not place.item.done())

    @property
    def is_free(self) -> bool:
        """Nobody has it, and so nobody waits for it."""
        return not self._locked

    async def __aenter__(self) -> None:
        if not self._locked:
            self._locked = True
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.put(CURRENT.get(), Place(Turn(0.0, next(self._numbers)), woken))
        try:
            await woken
        except asyncio.CancelledError:
            if not woken.cancelled():  # the lock was handed over at the same moment
                self._hand_over()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._hand_over()

    def _hand_over(self) -> None:
        """Straight to the next one: the lock is never free while somebody waits, so nobody overtakes."""
        if (taken := self._line.take()) is None:
            self._locked = False
        else:
            taken[1].item.set_result(None)
