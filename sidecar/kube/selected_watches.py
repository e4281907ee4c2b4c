"""Several watches of one kind, each by a label selector, told as one: what a node's own label selects, and what has no such label.

It is told as a watch without selectors would tell it of what the store holds, so a DELETED of that is first confirmed by a question for
the object: it may only have left the selector. What no watch selects any more is asked for now and then (`sightings`). An object that
is made with labels that select it nowhere is found by the next list.

Each watch continues from a version of its own. It does not pass an event that is not confirmed: if the watches break, the event is sent
again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, cast

from sidecar.kube.api import KubeApi, Resource, WatchEvent, find
from sidecar.kube.errors import ApiError
from sidecar.kube.event_prefix import Skip
from sidecar.kube.sightings import SOONEST, Sighting, Sightings, is_not_after, sighting_of
from sidecar.kube.transport import Sleep
from sidecar.model.objects import Json

log = logging.getLogger("sidecar.kube")

# What is read ahead of what is handled. The rest waits in the connection, where the server sees it.
_MOST_READ_AHEAD: Final = 50
# A burst of deletions is confirmed a few at a time. The rest of the limiter's tokens, and of the server, is for work.
_MOST_QUESTIONS: Final = 4
# Between two questions about strays, however many there are.
_BETWEEN_STRAYS: Final = 1.0
# One label costs little, and an operator who has changed them all is to read it once and not for each.
_STRAYS_TOLD_EVERY: Final = 3600.0


@dataclass(frozen=True, slots=True)
class _Heard:
    watch: int
    event: WatchEvent


@dataclass(frozen=True, slots=True)
class _Ended:
    """One of the watches, or a question without which they cannot go on. `error` None: as every watch ends some time."""

    error: Exception | None


@dataclass(frozen=True, slots=True)
class _Departure:
    """A DELETED that is not confirmed. `before`: where its watch continues if it never is."""

    watch: int
    of: Sighting
    event: WatchEvent
    before: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """`found` None: there is no object of that name. `departure` None: it was a stray that was asked for."""

    asked: Sighting
    found: Json | None
    departure: _Departure | None = None


_Item = _Heard | _Ended | _Answer


class SelectedWatches:
    """A `WatchSource`. All state changes where `events` is read, one item after the other."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        *,
        selectors: Sequence[str],
        scope: Mapping[str, str],
        skip: Skip,
        holds: Callable[[str], bool],
        key_of: Callable[[Json], str],
        clock: Callable[[], float],
        sleep: Sleep,
        rng: Callable[[], float],
    ) -> None:
        self.requests = len(selectors)
        self._api = api
        self._resource = resource
        self._scopes = [{**scope, "label_selector": selector} for selector in selectors]
        self._skip = skip
        self._holds = holds
        self._key_of = key_of
        self._clock = clock
        self._sleep = sleep
        self._sightings = Sightings(selectors, holds=holds, clock=clock, rng=rng)
        self._reached = [""] * len(selectors)
        """By watch: the version of the last event that was handled, or waits for a question."""
        self._strays_told_at = -_STRAYS_TOLD_EVERY
        self._departures: dict[str, _Departure] = {}
        """In the order of their events."""
        self._unasked: deque[_Departure] = deque()
        self._asking: set[asyncio.Task[None]] = set()
        self._heard: set[int] = set()
        self._inbox: asyncio.Queue[_Item] = asyncio.Queue(_MOST_READ_AHEAD)
        self._current: _Heard | _Answer | None = None
        self._sighted: Sighting | None = None
        """What the watch's event that is told shows."""

    @property
    def is_proven(self) -> bool:
        return len(self._heard) == self.requests

    @property
    def furthest(self) -> str:
        return max(self._reached, key=_as_number)

    def shown(self, key: str, obj: Json) -> None:
        self._sightings.shown(sighting_of(key, obj), obj)

    def begin(self, versions: Sequence[str]) -> None:
        self._reached = list(versions) if len(versions) == self.requests else [*versions] * self.requests
        self._sightings.listed()

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        self._inbox, self._heard = asyncio.Queue(_MOST_READ_AHEAD), set()
        tasks = [asyncio.create_task(self._read(watch)) for watch in range(self.requests)]
        tasks.append(asyncio.create_task(self._ask_for_strays()))
        try:
            while not isinstance(item := await self._inbox.get(), _Ended):
                self._current = item
                for event in self._told(item):
                    yield event
            if item.error is not None:
                raise item.error
        finally:
            tasks += self._asking
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._reached = [self._position(watch) for watch in range(self.requests)]
            self._departures.clear()
            self._unasked.clear()
            self._current = None

    def handled(self, event: WatchEvent) -> str:
        item = self._current
        heard = item if isinstance(item, _Heard) and item.event is event else None
        told = self._sighted if heard is not None else self._sighting(event)
        if told is not None and event.type in ("ADDED", "MODIFIED"):
            self._sightings.shown(told, event.object)
        elif told is not None and event.type == "DELETED":
            self._sightings.is_gone(told)
        if heard is not None:
            self._reached[heard.watch] = event.resource_version
        reached = [self._position(watch) for watch in range(self.requests)] if self._departures else self._reached
        return min(reached, key=_as_number)

    # --- what has arrived -----------------------------------------------------------------------------------------

    def _told(self, item: _Heard | _Answer) -> Iterator[WatchEvent]:
        """The events that it amounts to."""
        if isinstance(item, _Heard):
            self._heard.add(item.watch)
            return self._by_watch(item.watch, item.event)
        return self._of_a_stray(item) if item.departure is None else self._of_a_departure(item.departure, item.found)

    def _by_watch(self, watch: int, event: WatchEvent) -> Iterator[WatchEvent]:
        told = self._sighted = self._sighting(event)
        if told is None:
            yield event
        elif self._is_old(told):
            self._reached[watch] = event.resource_version
        elif event.type == "DELETED" and self._holds(told.key):
            self._depart(_Departure(watch, told, event, self._reached[watch]))
            self._reached[watch] = event.resource_version
        else:
            known = self._sightings.seen(told.key)
            if known is not None and known.uid != told.uid:
                yield known.gone()  # another has its name
            yield event
            self._departures.pop(told.key, None)  # what left one watch has entered another

    def _is_old(self, told: Sighting) -> bool:
        departure = self._departures.get(told.key)
        return self._sightings.is_old(told) or (departure is not None and is_not_after(told.version, departure.of.version))

    def _of_a_departure(self, departure: _Departure, found: Json | None) -> Iterator[WatchEvent]:
        key = departure.of.key
        if self._departures.get(key) is not departure:
            return
        if found is None or sighting_of("", found).uid != departure.of.uid:
            yield departure.event
        if found is not None:
            yield from self._found(key, found)
        self._departures.pop(key, None)  # only now: whoever fails to take the event in is told again

    def _of_a_stray(self, answer: _Answer) -> Iterator[WatchEvent]:
        key = answer.asked.key
        if self._sightings.seen(key) != answer.asked or key in self._departures:
            return  # something newer has been heard of it meanwhile
        if answer.found is not None and sighting_of(key, answer.found) == answer.asked:
            self._sightings.stays(key)
        if answer.found is None or sighting_of(key, answer.found).uid != answer.asked.uid:
            yield answer.asked.gone()
        if answer.found is not None:
            yield from self._found(key, answer.found)

    def _found(self, key: str, obj: Json) -> Iterator[WatchEvent]:
        if not self._sightings.is_old(sighting_of(key, obj)):
            yield WatchEvent("MODIFIED", obj)

    def _depart(self, departure: _Departure) -> None:
        key = departure.of.key
        self._departures.pop(key, None)
        self._departures[key] = departure
        self._unasked.append(departure)
        if len(self._asking) < _MOST_QUESTIONS:
            task = asyncio.create_task(self._ask())
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)  # one that is cancelled before it has begun comes to no end of its own

    def _position(self, watch: int) -> str:
        waiting = (each.before for each in self._departures.values() if each.watch == watch)
        return next(waiting, self._reached[watch])

    def _sighting(self, event: WatchEvent) -> Sighting | None:
        """None where the event is about no object, or about one without a key."""
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            return None
        try:
            return sighting_of(self._key_of(event.object), event.object)
        except Exception:  # noqa: BLE001 - the reflector says what is wrong with it
            return None

    # --- the requests ---------------------------------------------------------------------------------------------

    async def _read(self, watch: int) -> None:
        ended: Exception | None = None
        stream = self._api.watch(self._resource, resource_version=self._reached[watch], skip=self._skip, **self._scopes[watch])
        try:
            async with aclosing(stream):  # type: ignore[type-var]
                async for event in stream:
                    await self._inbox.put(_Heard(watch, event))
        except Exception as error:  # noqa: BLE001 - whoever reads the events is told
            ended = error
        await self._inbox.put(_Ended(ended))

    async def _ask(self) -> None:
        """Until nothing is left to be asked. From that very moment another one is needed: whoever departs before a callback of the loop
        would be asked about by nobody."""
        try:
            while self._unasked:
                departure = self._unasked.popleft()
                if self._departures.get(departure.of.key) is not departure:
                    continue
                try:
                    found = await self._find(departure.of)
                except Exception as error:  # noqa: BLE001
                    await self._inbox.put(_Ended(error))
                    return
                await self._inbox.put(_Answer(departure.of, found, departure))
        finally:
            self._asking.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _ask_for_strays(self) -> None:
        while True:
            stray = self._sightings.next_stray()
            await self._sleep(SOONEST if stray is None else min(max(_BETWEEN_STRAYS, stray[1] - self._clock()), SOONEST))
            if (stray := self._sightings.next_stray()) is None or stray[1] > self._clock():
                continue
            self._sightings.asked_for(stray[0].key)
            self._tell_of_strays(stray[0])
            try:
                await self._inbox.put(_Answer(stray[0], await self._find(stray[0])))
            except ApiError:
                pass  # it is kept, and asked for again

    def _tell_of_strays(self, one: Sighting) -> None:
        if self._clock() < self._strays_told_at + _STRAYS_TOLD_EVERY:
            return
        self._strays_told_at = self._clock()
        log.warning(
            "Somebody has given objects a label with which no watch shows them: they are asked for by name, one after the other, and what"
            " happens to them is noticed late. Give them a label that one of these selectors fits",
            extra={
                "fields": {
                    "resource": str(self._resource),
                    "objects": self._sightings.strays,
                    "one": one.key,
                    "selectors": [scope["label_selector"] for scope in self._scopes],
                }
            },
        )

    async def _find(self, wanted: Sighting) -> Json | None:
        return await find(self._api, self._resource, wanted.name, namespace=wanted.namespace)


def _as_number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
