"""Lists and watches one kind of object for as long as the process runs, and keeps a store up to date with it.

A cluster runs thousands of these, so what matters most is how they treat a server in trouble: whatever is wrong with it, one reflector
sends at most one request a second on average (a list and the watch after it may come together), and after failures far fewer. The store
keeps its objects meanwhile, for old facts are better than none; an object is removed only on the server's word.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from sidecar.engine.backoff import Backoff, jittered
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.api import TOO_LARGE, Change, KubeApi, Resource, Take, WatchEvent, take_none
from sidecar.kube.errors import ApiError, BadEvent, Forbidden, Gone, NotFound, TooManyRequests, Unavailable, VersionTooLarge
from sidecar.kube.event_prefix import Skip, reads_all
from sidecar.kube.reflector_state import SYNCED, Degraded, Denied, Listing, Off, ReflectorState
from sidecar.kube.scope import smallest
from sidecar.kube.selected_watches import SelectedWatches
from sidecar.kube.store import Store, by_name
from sidecar.kube.transport import Sleep
from sidecar.kube.watch_sources import OneWatch, WatchSource
from sidecar.kube.whole_lists import WholeList
from sidecar.model.objects import Json

log = logging.getLogger("sidecar.kube")

R = TypeVar("R")

# Stretched by up to as much again: 1 to 2 s at first, 15 to 30 s in the end.
_BACKOFF = Backoff(1.0, 15.0)
_SPREAD = 1.0
# A watch that lasted this long worked, whatever ended it.
_GOOD_STREAM = 5.0
# Watches are asked for five minutes at least, and each for another time. What ends sooner has ended for many nodes at once: its server
# stops, or is behind. It is opened again within a second, or all would come together.
_SHORTEST_ASKED = 290.0
# A server that has more changes to offer than it has time for ends watches, of all nodes at once. One that is there only for the case that
# something is wrong adds to that, and is opened again later: after 4 to 8 s.
_NO_HURRY = 4.0
# One that lasted for less than five seconds and brought events is opened again soon, so many times in a row.
_QUICK_RETURNS = 5
# The client waits 15 s for the head of an answer. A watch that is open for longer was accepted, although it may have no events to send.
_ACCEPTED_AFTER = 20.0
# A watch that is down for less than this does not make the store old: API servers take about as long to be replaced.
_CALLED_FRESH = 30.0
# Between two attempts at an optional resource that is not to be had: of a thousand nodes, three or four a second.
_OFF_FOR = 300.0
# A 410 reaches all nodes at once, when the server's history was compacted, and a list is the most expensive request there is.
_RELIST_SPREAD = 5.0
# After so many refused watches in a row a list is due: the server may be unable to continue from this resourceVersion.
_MOST_REFUSALS = 3
_MOST_REPORTED = 1000
# Objects that are gone are let go of a few at a time: a namespace may have had thousands.
_AT_ONCE = 50


def _nothing(*_: object) -> None:
    """The callback where none was given."""


class Reflector(Generic[R]):
    """Keeps `store` up to date with one resource. `run` is a task; it ends by cancellation.

    `project` makes an object's record; None means that the object does not concern us. `on_change` is called after the store has changed,
    and never for an event that changed nothing. No callback may block. With `watch_selectors` all is listed, and watched by these labels;
    if it `begins_selected`, the first list is by these labels too, and all is listed now and then, the less often the more `nodes` do so:
    what has a label with which no watch shows it is found by these lists alone. If it `is_silent`, its watch tells of nothing while all is
    well, so there is no hurry to open it again. After its first page the first list waits for a random part of `start_spread` seconds, if
    it has more: many nodes may start together, and many objects are a sign of it.
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
        watch_selectors: tuple[str, ...] = (),
        begins_selected: bool = False,
        nodes: Callable[[], int | None] = lambda: None,
        optional: bool = False,
        skip: Skip = reads_all,
        page_size: int = 500,
        start_spread: float = 0.0,
        is_silent: bool = False,
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
        """Lists and watches requested; a list counts once, however many pages it has."""
        self.lists = 0
        """Complete lists received, the first one included."""
        self.events = 0
        """Watch events received, with bookmarks."""
        self.last_heard: float | None = None
        """When the server last sent a page or an event, on `clock`."""
        self.resource_version = ""
        """Up to where all was heard, and the next watch continues; empty when a list must come first."""
        self._api = api
        self._project = project
        self._key_of = key_of
        self._scope = {"namespace": namespace, "label_selector": label_selector, "field_selector": field_selector}
        self._skip = skip
        self._optional = optional
        self._page_size = page_size
        self._start_spread = start_spread
        self._is_silent = is_silent
        self._told = 0
        """Watch events received, without bookmarks."""
        self._on_change = on_change
        self._on_state = on_state
        self._on_attempt = on_attempt
        self._on_list = on_list
        self._on_event = on_event
        self._clock = clock
        self.is_watching = False
        """Whether a watch is open and known to work."""
        self._sleep = sleep
        self._rng = rng
        self._source: WatchSource = OneWatch(api, resource, scope=self._scope, skip=skip)
        if watch_selectors:
            self._source = SelectedWatches(
                api,
                resource,
                selectors=watch_selectors,
                scope=self._scope,
                skip=skip,
                holds=self.store.__contains__,
                key_of=key_of,
                clock=clock,
                sleep=sleep,
                rng=rng,
            )
        self._first_lists = watch_selectors if begins_selected else ()
        self._nodes = nodes
        self._whole_list: WholeList | None = None
        """When all is to be listed, if all is but now and then."""
        self._pace = TokenBucket(1.0, 1 + self._source.requests)
        self._failures = 0
        self._refusals = 0
        """Watches refused since one worked. At the limit a list is due, which sets it to 0."""
        self._gone = False
        """Whether the last failure was a 410."""
        self._was_broken = False
        """Whether the server may be another one, with another history, than the one that told the version."""
        self._broken_since: float | None = None
        self._synced = asyncio.Event()
        self._settled = asyncio.Event()
        self._unreadable: set[str] = set()

    @property
    def has_synced(self) -> bool:
        """Whether a list has arrived completely. Stays true from then on."""
        return self._synced.is_set()

    async def wait_synced(self) -> bool:
        """Wait until the store is complete (True), or until nobody should wait for it, because the resource is Off (False)."""
        await self._settled.wait()
        return self.has_synced

    async def run(self) -> None:
        while True:
            await self._pause(await self._one_round())

    async def _one_round(self) -> float:
        """List if necessary, then watch until the watch ends. Returns the seconds until the next round."""
        try:
            if self._whole_list is not None and self._whole_list.due(self._nodes()) <= self._clock():
                self.resource_version = ""
            if not self.resource_version:
                await self._list()
                if self._refusals:
                    # The list was due because watches were refused. If they are refused for another reason than the version, lists in
                    # between must not double the requests: so the next watch waits.
                    self._refusals, before, self._failures = 0, self._failures, self._failures + 1
                    return self._back_off(before)
            return await self._watch()
        except ApiError as error:
            return self._after_failure(error)
        except Exception as error:
            # A bug. It must not end the other reflectors and the work on claims.
            log.exception(
                "Bug: list and watch failed unexpectedly and will be tried again", extra={"fields": {"resource": str(self.resource)}}
            )
            return self._after_failure(ApiError(f"watch {self.resource}: {type(error).__name__}: {error}"))

    # --- the two requests -----------------------------------------------------------------------------------------

    async def _attempt(self, requests: int = 1) -> None:
        for _ in range(requests):
            await self._pause(self._pace.reserve(self._clock()))
            self.attempts += 1
            self._on_attempt()

    async def _list(self) -> None:
        """Apply every page as it arrives. Only a list that arrived completely proves that an object is gone."""
        await self._attempt()
        seen: set[str | None] = set()
        selectors = self._first_lists if not self.has_synced else ()
        versions = [await self._take_list(scope, seen) for scope in self._scopes(selectors)]
        if None not in seen:  # the object without a name may be any of the missing ones
            for number, key in enumerate(self.store.missing(seen), 1):
                self._apply(key, None)
                if not number % _AT_ONCE:
                    await asyncio.sleep(0)
        # What leaves one selector for another between two lists is told by the watch that goes on where its own list ends.
        self.resource_version, self._was_broken = versions[0], False
        self._source.begin(versions)
        if self._first_lists:
            self._whole_list = WholeList(self._clock(), self._rng() if selectors else 0.8 + 0.4 * self._rng())
        self.lists += 1
        self._on_list()
        if not self.has_synced:
            self._synced.set()
            self._settled.set()
            self._mark_working()  # later only a watch proves that: lists may succeed for ever where watches fail

    def _scopes(self, selectors: tuple[str, ...]) -> list[dict[str, str]]:
        return [{**self._scope, "label_selector": selector} for selector in selectors] or [self._scope]

    async def _take_list(self, scope: dict[str, str], seen: set[str | None]) -> str:
        """Returns the list's version."""
        version, token = await self._take_page(scope, "", seen)
        if token and self._start_spread and not self.has_synced:
            await self._sleep(self._start_spread * self._rng())
        while token:
            await asyncio.sleep(0)
            version, token = await self._take_page(scope, token, seen)
        return version

    async def _take_page(self, scope: dict[str, str], token: str, seen: set[str | None]) -> tuple[str, str]:
        """Returns the list's version and the next token. A page is newer than the store, even if the rest of the list never arrives."""
        kept: set[str | None] = set()

        def begin() -> Take:
            kept.clear()  # what was in a page that was given up may be gone in the one that is asked for instead
            return take

        def take(obj: Json) -> bool:
            key = self._take_in(obj)
            if key is not None:
                self._source.shown(key, obj)
            if key is None or key in self.store:  # others cannot be missing later, and in a big cluster nearly all are others
                kept.add(key)
            return True

        page = await self._api.list_page(self.resource, limit=self._page_size, continue_token=token, begin=begin, skip=self._skip, **scope)
        self.last_heard = self._clock()
        for obj in page.items:
            take(obj)
        seen |= kept
        return page.resource_version, page.continue_token

    async def _watch(self) -> float:
        """Watch until the server ends it. Returns the seconds until the next watch."""
        await self._attempt(self._source.requests)
        started, heard, told = self._clock(), self.events, self._told
        no_limit = asyncio.timeout(None)
        confirming = asyncio.ensure_future(self._confirm_when_quiet(no_limit))
        stream = self._source.events()
        try:
            async with no_limit:
                async for event in stream:
                    self._handle(event)
        except TimeoutError:
            raise Gone(
                f"watch {self.resource}: the server's history ends before version {self.resource_version}, as after a restore"
            ) from None
        finally:
            confirming.cancel()
            self.is_watching = False
            await _close(stream)
            if self._clock() - started >= _GOOD_STREAM:
                self._failures = self._refusals = 0
        if self._is_silent and self._told == told:
            return jittered(_NO_HURRY, self._rng, spread=_SPREAD)
        if (lasted := self._clock() - started) >= _GOOD_STREAM:
            return 0.0 if lasted >= _SHORTEST_ASKED else self._rng()
        if self.events > heard and self._failures < _QUICK_RETURNS:
            # It worked, but the server ended it, which it does to clients that read too slowly. To stay away would make that worse.
            self._failures += 1
            self._refusals = 0
            return self._rng()
        return self._after_failure(ApiError(f"watch {self.resource}: the server ended it after {lasted:.1f} s"))

    async def _confirm_when_quiet(self, watch: asyncio.Timeout) -> None:
        """A watch that has not been refused by then works, even without events.

        A server that was restored from a backup accepts a version that it has not reached yet, and then is silent, and what it has put back
        is never told. So where an earlier watch was broken off it is asked once how far it has come.
        """
        while True:
            await self._sleep(_ACCEPTED_AFTER)
            self._mark_working()
            if not self._was_broken:
                return
            if await self._went_back():
                watch.reschedule(asyncio.get_running_loop().time())
                return

    async def _went_back(self) -> bool:
        try:
            page = await self._api.list_page(
                self.resource, limit=1, begin=take_none, skip=reads_all, **smallest(self.resource, self._scope)
            )
        except ApiError:
            return False  # asked again: the watch may last for minutes
        self._was_broken = False
        held, reached = self._source.furthest, page.resource_version
        return held.isdecimal() and reached.isdecimal() and int(reached) < int(held)

    # --- what the server says -------------------------------------------------------------------------------------

    def _handle(self, event: WatchEvent) -> None:
        self.events += 1
        self.last_heard = self._clock()
        if self._source.is_proven:
            self._mark_working()
        match event.type:
            case "ADDED" | "MODIFIED":
                self._told += 1
                self._take_in(event.object)
            case "DELETED":
                self._told += 1
                key = self._key_or_none(event.object)
                if key is None:  # only a new list can show which object is gone
                    raise BadEvent(f"watch {self.resource}: something is gone that has no name")
                self._apply(key, None)
            case kind if kind == TOO_LARGE:  # what is known of it stays: it is old, but that it is gone would be wrong
                self._report_unreadable(self._key_or_none(event.object) or "(none)", ValueError("it is larger than any object should be"))
            case _:  # BOOKMARK, which only carries the version
                pass
        self.resource_version = self._source.handled(event)
        self._on_event()

    def _key_or_none(self, obj: Json) -> str | None:
        """The object's key; None if it has none."""
        try:
            return self._key_of(obj)
        except Exception as error:  # noqa: BLE001 - one unreadable object must not stop the others
            self._report_unreadable("(none)", error)
            return None

    def _take_in(self, obj: Json) -> str | None:
        key = self._key_or_none(obj)
        if key is None:
            return None
        try:
            record = self._project(obj)
        except Exception as error:  # noqa: BLE001 - one unreadable object must not stop the others
            self._report_unreadable(key, error)
            return key  # what is known of it stays: it is old, but that it is gone would be wrong
        self._apply(key, record)
        return key

    def _apply(self, key: str, new: R | None) -> None:
        put(self.store, Change(key, self.store.get(key), new), resource=self.resource, on_change=self._on_change)

    def _report_unreadable(self, key: str, error: Exception) -> None:
        if key in self._unreadable or len(self._unreadable) >= _MOST_REPORTED:
            return
        self._unreadable.add(key)
        fields = {"resource": str(self.resource), "key": key, "error": f"{type(error).__name__}: {error}"}
        log.error("An object cannot be read and is ignored", extra={"fields": fields})

    # --- how it goes ----------------------------------------------------------------------------------------------

    def _mark_working(self) -> None:
        self.is_watching = True
        self._broken_since = None
        if self.state is not SYNCED:  # which each event finds
            self._set_state(SYNCED)

    def _after_failure(self, error: ApiError) -> float:
        """Note the failure. Returns the seconds until the next attempt."""
        if isinstance(self.state, Off):
            return self._until_asked_again()
        if self._optional and not self.has_synced and isinstance(error, Forbidden | NotFound):
            return self._give_up(error)
        before, self._failures = self._failures, self._failures + 1
        delay = self._back_off(before)
        self._was_broken = self._was_broken or isinstance(error, Unavailable)
        if isinstance(error, Gone):
            # A server that answers 410 works, so a list may follow soon. Only one that answers the list with 410 is backed off from.
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
        self._mark_broken(error, delay)
        fields = {"resource": str(self.resource), "error": str(error), "failures": self._failures, "delay": round(delay, 1)}
        # A single failure is normal and no warning: servers are replaced, and idle connections are cut.
        level = logging.INFO if self.has_synced and not before else logging.WARNING
        log.log(level, "List and watch will be tried again", extra={"fields": fields})
        return delay

    def _back_off(self, failures: int) -> float:
        return jittered(_BACKOFF.delay(failures), self._rng, spread=_SPREAD)

    def _mark_broken(self, error: ApiError, delay: float) -> None:
        now = self._clock()
        if self._broken_since is None:
            self._broken_since = now
        if self.has_synced and max(now - self._broken_since, delay) < _CALLED_FRESH:
            return
        self._set_state(Denied(error.shown) if isinstance(error, Forbidden) else Degraded(error.shown))

    def _give_up(self, error: ApiError) -> float:
        log.warning(
            "An optional resource is unavailable: the feature that needs it is disabled until a later attempt succeeds",
            extra={"fields": {"resource": str(self.resource), "verb": "list", "error": str(error)}},
        )
        self._set_state(Off(error.shown, absent=isinstance(error, NotFound)))
        self._settled.set()
        return self._until_asked_again()

    def _until_asked_again(self) -> float:
        """Rights are granted and kinds are installed while the program runs."""
        return _OFF_FOR * (0.8 + 0.4 * self._rng())

    def _set_state(self, state: ReflectorState) -> None:
        if state != self.state:
            self.state = state
            try:
                self._on_state(state)
            except Exception:
                log.exception("Reporting a state failed", extra={"fields": {"resource": str(self.resource)}})

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._sleep(seconds)


def put(store: Store[R], change: Change[R], *, resource: Resource, on_change: Callable[[Change[R]], None]) -> None:
    """Changes the store, and tells of it if that has changed anything. Who is told may fail, and others are told all the same."""
    if not store.apply(change):
        return
    try:
        on_change(change)
    except Exception:
        log.exception("Handling a change failed", extra={"fields": {"resource": str(resource), "key": change.key}})


def _is_refusal(error: ApiError) -> bool:
    """Whether the server refused this very watch, which it may do for ever at this version. Being busy or unavailable is no refusal."""
    return isinstance(error, BadEvent | VersionTooLarge) or (0 < error.status < 500 and not isinstance(error, TooManyRequests))


async def _close(stream: AsyncIterator[Any]) -> None:
    """Close it now and not when it is garbage-collected: an open watch holds a connection here and a goroutine in the server."""
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        await aclose()
