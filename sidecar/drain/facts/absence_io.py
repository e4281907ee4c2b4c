"""Finds which claims pods began to use while this process did not watch them: before its start, and whenever a list had to take the place
of a broken watch.

The stored report says up to which version of the pods everything was heeded. What has happened since, the API server still knows for a few
minutes, and tells a watch that begins there. Pods that came and went leave nothing else behind.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts.begun_uses import Missed
from sidecar.drain.facts.watched import Watched
from sidecar.engine.backoff import Backoff
from sidecar.kube.api import PODS, KubeApi
from sidecar.kube.errors import ApiError, Gone
from sidecar.model.nodes import Pod

_BACKOFF: Final = Backoff(1.0, 30.0)
# Attempts in a row: ten minutes. No API server remembers longer.
_MOST: Final = 24


@dataclass(frozen=True, slots=True)
class _Gap:
    number: int
    """Of the list that ended it."""
    since: str
    """The version of the pods before it."""
    until: str
    """One that is not in it any more."""
    ended: float


class Absence:
    """One per process. `run` asks; the rest is for whoever judges, and never waits."""

    def __init__(
        self, kube: KubeApi, node: str, *, watched: Watched, clock: Callable[[], float], on_found: Callable[[], None] = lambda: None
    ) -> None:
        self._kube = kube
        self._node = node
        self._watched = watched
        self._clock = clock
        self._on_found = on_found
        self._asked = asyncio.Event()
        self._gap: _Gap | None = None
        self._closed = 0
        """The number of the last gap of which is known what happened in it."""
        self._found: Missed | None = None

    def ask(self, since: str) -> None:
        """Find out what happened since that version, if it is not known yet."""
        number, until = self._watched.pod_lists(), self._watched.pods_version()
        if number and until and number != self._closed and (self._gap is None or self._gap.number != number):
            self._gap = _Gap(number, since, until, self._clock())
            self._asked.set()

    def forget(self) -> None:
        """Whatever has happened until now matters to nobody."""
        if self._watched.pods_version():
            self._closed, self._gap, self._found = self._watched.pod_lists(), None, None

    def take(self) -> Missed | None:
        """What was found, once."""
        found, self._found = self._found, None
        return found

    @property
    def seen_up_to(self) -> str:
        """The version up to which everything is known that pods did; empty while something is missing."""
        return self._watched.pods_version() if self._closed and self._closed == self._watched.pod_lists() else ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            gap = self._gap
            found = None if gap is None else await self._ask(gap)
            if gap is not None and gap is self._gap and found is not None:
                self._closed, self._found, self._gap = gap.number, found, None
                self._on_found()

    async def _ask(self, gap: _Gap) -> Missed | None:
        """None: meanwhile there is another gap, which this one is a part of."""
        if not (gap.since.isdecimal() and gap.until.isdecimal()):
            return Missed(gap.ended, lost=True)
        if int(gap.since) > int(gap.until):
            return Missed(gap.ended, lost=True)  # the server was put back to an earlier state, and has another history now
        begun, since, failures = set[str](), gap.since, 0
        while int(since) < int(gap.until):
            if self._gap is not gap:
                return None
            try:
                since, failures = await self._follow(since, int(gap.until), begun), 0
            except ApiError as error:
                failures += 1
                if isinstance(error, Gone) or failures >= _MOST:
                    return Missed(gap.ended, lost=True)
                await asyncio.sleep(_BACKOFF.delay(failures - 1))
        return Missed(gap.ended, frozenset(begun))

    async def _follow(self, since: str, until: int, begun: set[str]) -> str:
        """Returns how far it has come. A bookmark comes every minute, so it ends even where no pod does anything."""
        field = f"spec.nodeName={self._node}"
        async with aclosing(self._kube.watch(PODS, resource_version=since, field_selector=field)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type == "ADDED":
                    begun.update(Pod.of(event.object).claim_names)
                since = event.resource_version
                if int(since) >= until:
                    break
        await asyncio.sleep(_BACKOFF.delay(0) if int(since) < until else 0.0)
        return since
