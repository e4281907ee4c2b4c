"""Which calls ended with the loss of the driver, how often since they last succeeded, and until when each is not made again.

A request that crashes its driver would be made again as soon as the driver is back, and would keep it down for all others. When it is back,
nobody knows which of the calls under way it was. So each waits, and for longer each time. The innocent ones succeed in between.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

from sidecar.engine.backoff import Backoff

Call = tuple[str, Hashable]
"""The method, and what tells the call from others of that method."""

ALONE: Final = 2
"""After so many losses a call is made while no other such call is, so that the guilty one does not take the others with it."""
# Whoever makes up more calls than this that crash the driver is forgotten the oldest first.
_MOST: Final = 10_000


def creation(name: str) -> Call:
    return "CreateVolume", name


def deletion(handle: str) -> Call:
    return "DeleteVolume", handle


@dataclass(frozen=True, slots=True)
class Loss:
    count: int = 0
    until: float = 0.0
    """The call is not made before."""

    def __str__(self) -> str:
        return f"the CSI driver was lost during this call{f', {self.count} times' if self.count > 1 else ''}"


NO_LOSS: Final = Loss()


class Losses:
    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        self._losses: dict[Call, Loss] = {}

    def of(self, call: Call) -> Loss:
        return self._losses.get(call, NO_LOSS)

    def lost(self, call: Call, now: float) -> Loss:
        """The driver was lost once more."""
        return self.remember(call, self.of(call).count + 1, now)

    def remember(self, call: Call, count: int, now: float) -> Loss:
        """As often as an earlier process has seen it; when that was, nobody knows any more."""
        self._losses.pop(call, None)
        loss = self._losses[call] = Loss(count, now + self._retry.delay(count - 1))
        if len(self._losses) > _MOST:
            self._losses.pop(next(iter(self._losses)))
        return loss

    def shifted(self, call: Call, until: float) -> None:
        """It had to wait for another one."""
        if call in self._losses:
            self._losses[call] = replace(self._losses[call], until=until)

    def succeeded(self, call: Call) -> None:
        """Whatever killed the driver was another call. A failure does not say that: a driver that fails now and then, and dies of the call
        in between, would be sent to its death each time as if for the first time."""
        self._losses.pop(call, None)
