"""An API server that is not strong enough: requests wait for each other, and so do the watch events that it sends to all nodes.

Each kind has a line of its own, as on a machine that gives both their part of its processors.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from sidecar.kube.errors import TooManyRequests
from sidecar.simulation.cluster.inprocess import Call
from sidecar.simulation.swarm.scenario import Scenario

# What priority and fairness keep for one flow, and all sidecars have one service account: eight queues, 50 requests in each.
_MOST_WAITING: Final = 400
# Seconds after which it refuses a request that is still waiting.
_LONGEST_WAIT: Final = 15.0
_RETRY_AFTER: Final = 1.0


class _Line:
    """Serves what comes to it one after the other, so many in a second; None: at once."""

    def __init__(self, rate: float | None, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._each = 0.0
        self._clock = clock
        self._free_at = 0.0

    def begin(self) -> None:
        self._each = 1.0 / self._rate if self._rate else 0.0

    def join(self) -> float:
        """Seconds until what comes now is served."""
        now = self._clock()
        self._free_at = max(now, self._free_at) + self._each
        return self._free_at - now

    @property
    def length(self) -> float:
        """Seconds before what comes now is begun."""
        return max(self._free_at - self._clock(), 0.0)

    @property
    def waiting(self) -> float:
        """How many are served before what comes now."""
        return self.length / self._each if self._each else 0.0


class BusyServer:
    """One for the cluster. Before the race begins it is quick."""

    def __init__(self, scenario: Scenario, clock: Callable[[], float]) -> None:
        self._requests = _Line(scenario.server_requests, clock)
        self._events = _Line(scenario.server_events, clock)

    def begin(self) -> None:
        self._requests.begin()
        self._events.begin()

    async def request(self, call: Call) -> None:
        """Waits until its turn has come; the opening of a watch counts as a request."""
        if (seconds := self._requests.join()) > 0.0:
            await asyncio.sleep(seconds)

    async def sidecars_request(self, call: Call) -> None:
        if self._requests.waiting >= _MOST_WAITING:
            raise _refused(call)
        if self._requests.length > _LONGEST_WAIT:
            await asyncio.sleep(_LONGEST_WAIT)
            raise _refused(call)
        await self.request(call)

    def send_event(self) -> float:
        """Seconds until a node has this one."""
        return self._events.join()


def _refused(call: Call) -> TooManyRequests:
    return TooManyRequests(f"{call}: too many requests", status=429, retry_after=_RETRY_AFTER)
