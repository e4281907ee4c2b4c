"""List and watch one kind of object for as long as the program runs, and keep a store true to it.

Thousands of these run in a cluster, so what matters most is what happens when the server is unwell: however it is broken, one
reflector asks at most once a second on average (a list and the watch that follows it may come together), and after failures
much less often. What is held stays held meanwhile: an old picture is better than none, and nothing is removed on hearsay.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sidecar.engine.backoff import Backoff, jittered
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.api import Change, KubeApi, Resource, WatchEvent
from sidecar.kube.errors import ApiError, BadEvent, Forbidden, Gone, NotFound, TooManyRequests, VersionTooLarge
from sidecar.kube.skim import PassesBy, reads_all
from sidecar.kube.store import Store, by_name
from sidecar.kube.transport import Sleep
from sidecar.model.objects import Json

log = logging.getLogger("sidecar.kube")

R = TypeVar("R")

# Stretched by up to as much again: 1 to 2 s at first, 15 to 30 s in the end.
_BACKOFF = Backoff(1.0, 15.0)
_SPREAD = 1.0
# A stream that lived this long was a good one, whatever ended it.
_LIVED = 5.0
# And one that brought something is asked for again at once, so often in a row.
_QUICK_RETURNS = 5
# A client gives up after 15 s on a server that does not even answer "go ahead". Later than that, silence is good news.
_ACCEPTED = 20.0
# For this long the picture is called fresh although the watch is down: API servers take about as long to be replaced.
_FRESH = 30.0
# 410 comes to all nodes at once, when history was cut off, and a list is the dearest request there is.
_RELIST_SPREAD = 5.0
# Watches in a row that the server did not want as they were. It may be the version that it cannot go on from.
_MOST_REFUSALS = 3
_MOST_ODD_ONES = 1000


@dataclass(frozen=True, slots=True)
class Listing:
    """The first list is on its way."""

    why: str = "the first list has not arrived yet"


@dataclass(frozen=True, slots=True)
class Synced:
    """The store is complete and follows the server."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Degraded:
    """It does not work now; what is held is old, or nothing is held yet."""

    why: str


@dataclass(frozen=True, slots=True)
class Denied:
    """Our role does not allow this. Retried, as rights may be granted later."""

    why: str


@dataclass(frozen=True, slots=True)
class Off:
    """An optional resource that this server or our role does not offer: the feature is off and this reflector has ended."""

    why: str
    absent: bool = False
    """The server has no such resource, so there is nothing to be known."""


ReflectorState = Listing | Synced | Degraded | Denied | Off


def _nothing(*_: object) -> None:
    """Nobody wants to know."""


class Reflector(Generic[R]):
    """Keeps `store` true to one resource. `run` it as a task; it ends by cancellation, or when it is Off.

    `project` makes the record of an object, None when the object does not concern us. `on_change` is called after the store
    has taken a change in, never for something that changed nothing. No callback may block.
    """

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        *,
        project: Callable[[Json], R | None],
        store: Store[R],
        key_of: Callable[[Json], str] = by_name,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        optional: bool = False,
        passes_by: PassesBy = reads_all,
        page_size: int = 500,
        start_spread: float = 0.0,
        on_change: Callable[[Change[R]], None] = _nothing,
        on_state: Callable[[ReflectorState], None] = _nothing,
        on_attempt: Callable[[], None] = _nothing,
        on_list: Callable[[], None] = _nothing,
        on_event: Callable[[], None] = _nothing,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.resource = resource
        self.store = store
        self.state: ReflectorState = Listing()
        self.attempts = 0
        """Lists and watches asked for; the further pages of a list do not count."""
        self.lists = 0
        """Complete lists received, the first one included."""
        self.events = 0
        """Watch events received, with bookmarks."""
        self.last_heard: float | None = None
        """When the server last told us something, on `clock`."""
        self.resource_version = ""
        """Where the next watch goes on; empty when only a list can help."""
        self._api = api
        self._project = project
        self._key_of = key_of
        self._scope = {"namespace": namespace, "label_selector": label_selector, "field_selector": field_selector}
        self._passes_by = passes_by
        self._optional = optional
        self._page_size = page_size
        self._start_spread = start_spread
        self._on_change = on_change
        self._on_state = on_state
        self._on_attempt = on_attempt
        self._on_list = on_list
        self._on_event = on_event
        self._clock = clock
        self.hears = False
        """Whether a watch is open of which it is known that it works."""
        self._sleep = sleep
        self._rng = rng
        self._pace = TokenBucket(1.0, 2)
        self._failures = 0
        self._refusals = 0
        """Watches refused since one went well; at the limit a list is due, and after it 0 again."""
        self._gone = False
        """Whether the last failure was a 410."""
        self._broken_since: float | None = None
        self._synced = asyncio.Event()
        self._settled = asyncio.Event()
        self._odd_ones: set[str] = set()

    @property
    def has_synced(self) -> bool:
        """One list has arrived whole. Stays true from then on."""
        return self._synced.is_set()

    async def wait_synced(self) -> bool:
        """Until the store is complete: True; or until it is clear that it never will be, because the feature is off: False."""
        await self._settled.wait()
        return self.has_synced

    async def run(self) -> None:
        if self._start_spread:
            await self._sleep(self._start_spread * self._rng())
        while not isinstance(self.state, Off):
            await self._pause(await self._one_round())

    async def _one_round(self) -> float:
        """List if we must, then watch until it ends. Returns for how long to stay away."""
        try:
            if not self.resource_version:
                await self._list()
                if self._refusals:
                    # Who refuses watches for another reason must not be asked twice as often for it, and a list is dear.
                    self._refusals, before, self._failures = 0, self._failures, self._failures + 1
                    return self._back_off(before)
            return await self._watch()
        except ApiError as error:
            return self._after_failure(error)
        except Exception as error:
            # A bug, ours or the library's. The other reflectors and the claims being served must not die of it.
            log.exception("The reflector stumbled", extra={"fields": {"resource": str(self.resource)}})
            return self._after_failure(ApiError(f"watch {self.resource}: {type(error).__name__}: {error}"))

    # --- the two requests -----------------------------------------------------------------------------------------

    async def _attempt(self) -> None:
        await self._pause(self._pace.reserve(self._clock()))
        self.attempts += 1
        self._on_attempt()

    async def _list(self) -> None:
        """Every page is taken in as it comes; only a list that arrived whole proves that something is gone."""
        await self._attempt()
        seen: set[str | None] = set()
        version, token = await self._take_page("", seen)
        while token:
            await asyncio.sleep(0)
            version, token = await self._take_page(token, seen)
        if None not in seen:  # the nameless one might be any of those that are missed
            for key in self.store.missing(seen):
                self._learn(key, None)
        self.resource_version = version
        self.lists += 1
        self._on_list()
        if not self.has_synced:
            self._synced.set()
            self._settled.set()
            self._works()  # later on it takes a watch to prove that: a list may succeed for ever where no watch does

    async def _take_page(self, token: str, seen: set[str | None]) -> tuple[str, str]:
        """The list's version and the next token. What a page says is newer than what is held, even if the rest never comes."""
        page = await self._api.list_page(self.resource, limit=self._page_size, continue_token=token, **self._scope)
        self.last_heard = self._clock()
        for obj in page.items:
            key = self._take(obj)
            if key is None or key in self.store:  # what was dropped cannot be missing later, and in a big cluster that is almost everything
                seen.add(key)
        return page.resource_version, page.continue_token

    async def _watch(self) -> float:
        """Returns how long to stay away after an orderly end."""
        await self._attempt()
        started, heard = self._clock(), self.events
        believing = asyncio.ensure_future(self._believe())
        stream = self._api.watch(self.resource, resource_version=self.resource_version, passes_by=self._passes_by, **self._scope)
        try:
            async for event in stream:
                self._hear(event)
        finally:
            believing.cancel()
            self.hears = False
            await _close(stream)
            if self._clock() - started >= _LIVED:
                self._failures = self._refusals = 0
        if self._clock() - started >= _LIVED:
            return 0.0
        if self.events > heard and self._failures < _QUICK_RETURNS:
            # It worked, and the server ended it all the same: it does that to those who read too slowly. Missing more makes it worse.
            self._failures += 1
            self._refusals = 0
            return self._rng()
        return self._after_failure(ApiError(f"watch {self.resource}: the server ended it after {self._clock() - started:.1f} s"))

    async def _believe(self) -> None:
        """A watch that nobody has refused by now is a good one, even if there is nothing to tell."""
        await self._sleep(_ACCEPTED)
        self._works()

    # --- what the server says -------------------------------------------------------------------------------------

    def _hear(self, event: WatchEvent) -> None:
        self.events += 1
        self.last_heard = self._clock()
        self._works()
        match event.type:
            case "ADDED" | "MODIFIED":
                self._take(event.object)
            case "DELETED":
                key = self._named(event.object)
                if key is None:  # what is gone cannot be told but by a new list
                    raise BadEvent(f"watch {self.resource}: something is gone that has no name")
                self._learn(key, None)
            case _:  # BOOKMARK, which only carries the version
                pass
        self.resource_version = event.resource_version
        self._on_event()

    def _named(self, obj: Json) -> str | None:
        """The object's key; None when it tells none."""
        try:
            return self._key_of(obj)
        except Exception as error:  # noqa: BLE001 - one odd object must not cost us all the others
            self._report_odd("(none)", error)
            return None

    def _take(self, obj: Json) -> str | None:
        key = self._named(obj)
        if key is None:
            return None
        try:
            record = self._project(obj)
        except Exception as error:  # noqa: BLE001 - one odd object must not cost us all the others
            self._report_odd(key, error)
            record = None
        self._learn(key, record)
        return key

    def _learn(self, key: str, new: R | None) -> None:
        change = Change(key, self.store.get(key), new)
        if not self.store.apply(change):
            return
        try:
            self._on_change(change)
        except Exception:
            log.exception("Handling a change failed", extra={"fields": {"resource": str(self.resource), "key": key}})

    def _report_odd(self, key: str, error: Exception) -> None:
        if key in self._odd_ones or len(self._odd_ones) >= _MOST_ODD_ONES:
            return
        self._odd_ones.add(key)
        fields = {"resource": str(self.resource), "key": key, "error": f"{type(error).__name__}: {error}"}
        log.error("An object that cannot be understood is ignored", extra={"fields": fields})

    # --- how it goes ----------------------------------------------------------------------------------------------

    def _works(self) -> None:
        self.hears = True
        self._broken_since = None
        self._enter(Synced())

    def _after_failure(self, error: ApiError) -> float:
        """Take note, and say for how long to stay away."""
        if self._optional and not self.has_synced and isinstance(error, Forbidden | NotFound):
            return self._give_up(error)
        before, self._failures = self._failures, self._failures + 1
        delay = self._back_off(before)
        if isinstance(error, Gone):
            # A server that says so works; only one that goes on saying so is to be left alone.
            again, self.resource_version = not self.resource_version or self._gone, ""
            delay = _RELIST_SPREAD * self._rng() + (delay if again else 0.0)
            self._failures = self._failures if again else 1
            self._refusals = 0
        elif self.resource_version and _is_refusal(error):
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                self.resource_version = ""
                delay += _RELIST_SPREAD * self._rng()
        elif isinstance(error, TooManyRequests):
            delay = max(delay, jittered(error.retry_after, self._rng, spread=_SPREAD))
        self._gone = isinstance(error, Gone)
        self._broken(error, delay)
        fields = {"resource": str(self.resource), "error": str(error), "failures": self._failures, "delay": round(delay, 1)}
        # One failure after a good time is everyday life: servers are replaced, and idle connections cut.
        level = logging.INFO if self.has_synced and not before else logging.WARNING
        log.log(level, "List and watch will be tried again", extra={"fields": fields})
        return delay

    def _back_off(self, failures: int) -> float:
        return jittered(_BACKOFF.delay(failures), self._rng, spread=_SPREAD)

    def _broken(self, error: ApiError, delay: float) -> None:
        now = self._clock()
        if self._broken_since is None:
            self._broken_since = now
        if self.has_synced and max(now - self._broken_since, delay) < _FRESH:
            return
        self._enter(Denied(str(error)) if isinstance(error, Forbidden) else Degraded(str(error)))

    def _give_up(self, error: ApiError) -> float:
        log.warning(
            "An optional resource is not to be had, and what needs it is off",
            extra={"fields": {"resource": str(self.resource), "verb": "list", "error": str(error)}},
        )
        self._enter(Off(str(error), absent=isinstance(error, NotFound)))
        self._settled.set()
        return 0.0

    def _enter(self, state: ReflectorState) -> None:
        if state != self.state:
            self.state = state
            try:
                self._on_state(state)
            except Exception:
                log.exception("Reporting a state failed", extra={"fields": {"resource": str(self.resource)}})

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._sleep(seconds)


def _is_refusal(error: ApiError) -> bool:
    """The server's own answer to a watch, which it may give to this version for ever. To be busy or unwell is none."""
    return isinstance(error, BadEvent | VersionTooLarge) or (0 < error.status < 500 and not isinstance(error, TooManyRequests))


async def _close(stream: AsyncIterator[Any]) -> None:
    """Now, and not when the garbage collector comes by: an open watch holds a connection here and a goroutine there."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()
