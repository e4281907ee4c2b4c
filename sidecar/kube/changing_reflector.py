"""A reflector whose label selectors can be changed while it runs: one `Reflector` for each selector, all of them with one store.

A change leaves no gap: what the new selectors select is listed, and the old watches go on until it is. An object is there as long as one
of the watches shows it; several may, while selectors change. What leaves all selectors is believed to be gone, for a server tells both
alike; except of an object with which something is under way here: that is asked for by name, at once and from then on now and then.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sidecar.kube.api import Change, KubeApi, Resource, find
from sidecar.kube.errors import ApiError
from sidecar.kube.reflector import Reflector, put
from sidecar.kube.reflector_state import SYNCED, Listing, ReflectorState
from sidecar.kube.selected import Selected
from sidecar.kube.sightings import ASKED_EVERY, is_not_after, next_question
from sidecar.kube.store import Store
from sidecar.model.objects import Json

log = logging.getLogger("sidecar.kube")

R = TypeVar("R")

# After a question that got no answer.
_AGAIN: Final = 5.0
# Between two questions about what was asked for before: there may be many such objects.
_BETWEEN: Final = 1.0
# Between two questions about one object that stays as it is, at the most.
_LONGEST: Final = 960.0


class _Part(Store[R]):
    """The store as the reflector of one selector sees it."""

    def __init__(self, whole: "ChangingReflector[R]") -> None:
        super().__init__()
        self._whole = whole
        self.is_open = True
        self.is_listing: Callable[[], bool] = lambda: True
        self.shows: dict[str, str] = {}
        """The keys of what it has shown and has not taken away, each with the version that it has shown last."""

    def apply(self, change: Change[R]) -> frozenset[str]:
        return self._whole.told(self, change)

    def missing(self, seen: object) -> list[str]:
        return [key for key in self.shows if key not in seen]  # type: ignore[operator]

    def get(self, key: str) -> R | None:
        return self._whole.store.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._whole.store


@dataclass(frozen=True, slots=True)
class _Running(Generic[R]):
    part: _Part[R]
    reflector: Reflector[R]
    task: "asyncio.Task[None]"


@dataclass(frozen=True, slots=True)
class _Question:
    """About an object that no watch shows."""

    due: float
    pause: float = 0.0
    """Since the last one; 0: it has not been asked yet."""


Make = Callable[[str, Store[R], Callable[[ReflectorState], None]], Reflector[R]]
"""Makes the reflector of one label selector, with that store and whom to tell of its state."""


class ChangingReflector(Generic[R]):
    """`select` names other selectors. `run` is a task; it ends by cancellation. As with `Reflector`, no callback may block."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        *,
        selected: Selected[R],
        make: Make[R],
        project: Callable[[Json], R | None],
        store: Store[R],
        key_of: Callable[[Json], str],
        on_change: Callable[[Change[R]], None],
        on_state: Callable[[ReflectorState], None],
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.resource = resource
        self.store = store
        self._api = api
        self._selected = selected
        self._make = make
        self._project = project
        self._key_of = key_of
        self._on_change = on_change
        self._on_state = on_state
        self._clock = clock
        self._rng = rng
        self._wanted = selected.selectors
        self._changed = asyncio.Event()
        self._open: dict[str, _Running[R]] = {}
        self._current: tuple[str, ...] = ()
        """The selectors whose lists are complete, once they are; the first one is that of what concerns us."""
        self._shown_before: dict[str, None] = {}
        """What watches have shown that have ended since the selectors arrived: it stays until others do."""
        self._synced = asyncio.Event()
        self._told_state: ReflectorState | None = None
        self._strays: dict[str, _Question] = {}
        """What is held and no watch shows any more."""
        self._strayed = asyncio.Event()

    # --- for whoever depends on it ----------------------------------------------------------------------------------

    @property
    def state(self) -> ReflectorState:
        """The worst of its parts."""
        states = [self._open[selector].reflector.state for selector in self._current or self._wanted if selector in self._open]
        return next((state for state in states if state != SYNCED), SYNCED if states else Listing())

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self) -> bool:
        await self._synced.wait()
        return True

    @property
    def resource_version(self) -> str:
        """How far the first selector's watch has come. The others are silent in health."""
        return self._open[self._current[0]].reflector.resource_version if self._current else ""

    @property
    def is_watching(self) -> bool:
        return bool(self._current) and self._open[self._current[0]].reflector.is_watching

    @property
    def selectors(self) -> tuple[str, ...]:
        """By which it watches now."""
        return self._current

    def select(self, selectors: tuple[str, ...]) -> None:
        """By which it is to watch from now on."""
        self._wanted = selectors
        self._changed.set()

    async def look(self, namespace: str, name: str) -> None:
        """Has the object shown, which may be one that no selector selects. Raises ApiError."""
        found = await find(self._api, self.resource, name, namespace=namespace)
        if found is not None:
            self._found(self._key_of(found), found)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ask_for_strays(), name=f"strays {self.resource}")
            while True:
                self._changed.clear()
                wanted = self._wanted
                self._end({*self._open} - {*self._current, *wanted})
                for selector in wanted:
                    if selector not in self._open:
                        self._open[selector] = self._begin(selector, group)
                if await self._have_synced(wanted):
                    self._arrive(wanted)
                    await self._changed.wait()

    # --- changes of selectors ---------------------------------------------------------------------------------------

    def _begin(self, selector: str, group: asyncio.TaskGroup) -> _Running[R]:
        part = _Part(self)
        reflector = self._make(selector, part, lambda _: self._tell_state())
        part.is_listing = lambda: not reflector.resource_version
        return _Running(part, reflector, group.create_task(reflector.run(), name=f"reflector {self.resource} {selector[:60]}"))

    async def _have_synced(self, wanted: tuple[str, ...]) -> bool:
        """False: other selectors are wanted by now."""
        changed = asyncio.ensure_future(self._changed.wait())
        listing = [asyncio.ensure_future(self._open[selector].reflector.wait_synced()) for selector in wanted]
        try:
            while not changed.done() and not all(one.done() for one in listing):
                await asyncio.wait({changed, *(one for one in listing if not one.done())}, return_when=asyncio.FIRST_COMPLETED)
            return not changed.done()
        finally:
            for task in (changed, *listing):
                task.cancel()

    def _arrive(self, wanted: tuple[str, ...]) -> None:
        self._current = wanted
        self._end({*self._open} - {*wanted})
        self._synced.set()
        ended, self._shown_before = self._shown_before, {}
        version = self.resource_version
        for key in ended:
            if not self._is_shown(key):
                self._leave(key, version)
        self._tell_state()

    def _end(self, selectors: set[str]) -> None:
        """What they have shown stays until the next ones are listed, which may show it too."""
        for selector in [selector for selector in self._open if selector in selectors]:
            one = self._open.pop(selector)
            one.part.is_open = False
            one.task.cancel()
            self._shown_before |= dict.fromkeys(one.part.shows)

    def _leave(self, key: str, version: str) -> None:
        """A watch that has ended has shown it, and no list of the others has. What was shown after those lists may be theirs yet."""
        record = self.store.get(key)
        if record is not None and not is_not_after(self._selected.version_of(record), version):
            self._ask_soon(key)
        elif self._is_gone(key):
            self._put(key, None)

    def _tell_state(self) -> None:
        state = self.state
        if state != self._told_state:
            self._told_state = state
            self._on_state(state)

    # --- what its parts tell ----------------------------------------------------------------------------------------

    def told(self, part: _Part[R], change: Change[R]) -> frozenset[str]:
        """Returns the keys whose record has changed, as `Store.apply`."""
        key, new = change.key, change.new
        if not part.is_open:
            return frozenset()
        if new is None:
            part.shows.pop(key, None)
            if self._is_shown(key) or not self._is_gone(key):
                return frozenset()
        else:
            before, part.shows[key] = part.shows.get(key, ""), self._selected.version_of(new)
            self._strays.pop(key, None)
            held = self.store.get(key)
            if held is not None and self._is_older(new, held) and not self._went_back(before, new):
                if part.is_listing():
                    self._ask_soon(key)
                return frozenset()
        return self.store.apply(change)

    def _went_back(self, before: str, new: R) -> bool:
        """One watch, with its lists, shows an object in an older version than before only if the server was restored from a backup.

        Of two watches one may merely be behind. But a list is not, so if it shows something older than what is held, that is asked for.
        """
        version = self._selected.version_of(new)
        return bool(before) and version != before and is_not_after(version, before)

    def _is_shown(self, key: str) -> bool:
        return any(key in running.part.shows for running in self._open.values())

    def _is_older(self, new: R, held: R) -> bool:
        version_of = self._selected.version_of
        return version_of(new) != version_of(held) and is_not_after(version_of(new), version_of(held))

    def _is_gone(self, key: str) -> bool:
        """Whether to believe that, now that no watch shows it."""
        if key in self.store and (self._selected.is_under_way(key) or key in self._strays or key in self._shown_before):
            self._ask_soon(key)
            return False
        self._strays.pop(key, None)
        return True

    # --- what no watch shows ----------------------------------------------------------------------------------------

    def _ask_soon(self, key: str) -> None:
        self._strays[key] = _Question(self._clock())
        self._strayed.set()

    async def _ask_for_strays(self) -> None:
        while True:
            if not self._strays:
                self._strayed.clear()
                await self._strayed.wait()
                continue
            key = min(self._strays, key=lambda each: self._strays[each].due)
            question = self._strays[key]
            if (pause := question.due - self._clock()) > 0:
                self._strayed.clear()
                try:
                    async with asyncio.timeout(pause):
                        await self._strayed.wait()
                except TimeoutError:
                    pass
                continue
            try:
                await self._ask_for(key)
            except ApiError as error:
                log.debug("What a watch no longer shows cannot be read", extra={"fields": {"key": key, "err": str(error)}})
                if key in self._strays:
                    again = self._clock() + _AGAIN * (1.0 + self._rng())
                    self._strays[key] = _Question(again, self._strays[key].pause)
                await asyncio.sleep(_BETWEEN)
            else:
                if question.pause:
                    await asyncio.sleep(_BETWEEN)

    async def _ask_for(self, key: str) -> None:
        record = self.store.get(key)
        if record is None:
            self._strays.pop(key, None)
            return
        namespace, name = self._selected.place_of(record)
        found = await find(self._api, self.resource, name, namespace=namespace)
        if key not in self._strays:
            return  # a watch has shown it meanwhile
        if found is None or self._key_of(found) != key:
            del self._strays[key]
            self._put(key, None)
        else:
            self._found(key, found, before=record)

    def _found(self, key: str, obj: Json, *, before: R | None = None) -> None:
        """By a question, and no watch need ever show it. `before`: what was held when it was asked."""
        record, held = self._project(obj), self.store.get(key)
        is_older = record is not None and held is not None and self._is_older(record, held)
        if is_older and held is not before:
            record, is_older = held, False
        is_shown = self._is_shown(key)
        if record is not None and is_shown and not is_older:
            self._strays.pop(key, None)
        elif key in self._strays or (record is not None and not is_shown):
            self._strays[key] = self._next_question(key, record is not None and record == held)
            self._strayed.set()
        if record is None and not is_shown:
            self._strays.pop(key, None)
            self._put(key, None)
        elif record is not None:
            self._put(key, record)

    def _next_question(self, key: str, is_as_before: bool) -> _Question:
        """What stays as it is gets asked for ever less often, unless something would be decided wrongly by what is old."""
        last = self._strays.get(key)
        pause = ASKED_EVERY
        if last is not None and is_as_before and not self._selected.is_under_way(key):
            pause = min(max(ASKED_EVERY, 2.0 * last.pause), _LONGEST)
        return _Question(next_question(self._clock(), self._rng, pause), pause)

    def _put(self, key: str, record: R | None) -> None:
        put(self.store, Change(key, self.store.get(key), record), resource=self.resource, on_change=self._on_change)
