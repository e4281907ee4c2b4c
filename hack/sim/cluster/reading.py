"""Lists and watches: which objects a query selects, at which revision, and as which events their changes are sent and when."""

import asyncio
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hack.sim.cluster.kinds import Kind
from hack.sim.cluster.refusals import Refused, bad_request, expired, internal
from hack.sim.cluster.selectors import Test, everything, field_test, label_test
from hack.sim.cluster.store import Key, Record, Store, Stored
from sidecar.kube.api import Resource
from sidecar.kube.errors import ApiError
from sidecar.model.objects import Json

BOOKMARK_SECONDS: Final = 60.0
_BEFORE_THE_END: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a list or a watch asks for, in the words and with the defaults of `KubeApi`."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 500
    continue_token: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """One page."""

    resource: Resource
    items: list[Stored]
    revision: int
    token: str

    @property
    def meta(self) -> Json:
        return {"resourceVersion": str(self.revision)} | ({"continue": self.token} if self.token else {})


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a watch."""

    type: str
    stored: Stored

    @property
    def line(self) -> bytes:
        return b'{"type":"' + self.type.encode() + b'","object":' + self.stored.whole + b"}\n"


class Selection:
    """The objects that a query selects."""

    def __init__(self, kind: Kind, query: Query) -> None:
        self.prefix = f"{query.namespace}/" if query.namespace and kind.resource.namespaced else ""
        self.labels: Test = label_test(query.label_selector)
        self.fields: Test = field_test(query.field_selector, selectable={"metadata.name": "", "metadata.namespace": "", **kind.selectable})
        self.narrow = self.labels is not everything or self.fields is not everything

    def holds(self, key: Key, stored: Stored | None) -> bool:
        return stored is not None and key.startswith(self.prefix) and self.labels(stored.obj) and self.fields(stored.obj)


def list_page(store: Store, kind: Kind, query: Query) -> Listed:
    selection = Selection(kind, query)
    # The revision of now is not older than the one that is asked for.
    revision, start = _from_token(query.continue_token) if query.continue_token else (store.revision, "")
    history = store.history(kind)
    if revision < history.forgotten:  # with the first sentence of the real one: nobody goes on with what it offers then
        raise expired("The provided continue parameter is too old to display a consistent list result.")
    keys, objects = history.at(revision)
    limit = 0 if query.resource_version == "0" else query.limit  # such a list comes from a cache, which knows no pages
    items: list[Stored] = []
    begin = bisect_left(keys, max(start, selection.prefix))
    end = bisect_left(keys, selection.prefix[:-1] + "0") if selection.prefix else len(keys)  # "0" comes right after "/"
    for key in keys[begin:end]:
        if not selection.narrow or selection.holds(key, objects[key]):
            if limit > 0 and len(items) == limit:
                return Listed(kind.resource, items, revision, f"{revision}:{key}")
            items.append(objects[key])
    return Listed(kind.resource, items, revision, "")


def _from_token(token: str) -> tuple[int, Key]:
    revision, _, start = token.partition(":")
    if not revision.isdigit():
        raise bad_request("invalid continue token: continue key is not valid")
    return int(revision), start


class Watch:
    """A place in the history of one kind. `take` what is new whenever `wake` was called; `close` it in the end."""

    def __init__(self, store: Store, kind: Kind, query: Query, *, wake: Callable[[], None]) -> None:
        self._store, self._kind, self._wake = store, kind, wake
        self._selection = Selection(kind, query)
        self._history = store.history(kind)
        # A version in the future is waited for: changes before it are not sent.
        self._begin = self._start(query)
        self._position = self._history.since(self._begin)
        store.wakes[kind.resource][wake] = None

    @property
    def waiting(self) -> bool:
        """Whether `take` has something to give."""
        return self._history.since(self._store.revision) > self._position

    def take(self, limit: int = 100) -> list[Told]:
        """The next events. `Refused` (410) if they have been forgotten."""
        records = self._history.read(self._position, limit)
        if records is None:
            raise too_old(self._history.forgotten)
        self._position += len(records)
        return [told for record in records if (told := self._told(record)) is not None and record.revision > self._begin]

    def bookmark(self) -> Told:
        """The revision that the watch has reached. Only correct when nothing is waiting."""
        resource = self._kind.resource
        meta: Json = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        return Told("BOOKMARK", Stored({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}))

    def close(self) -> None:
        self._store.wakes[self._kind.resource].pop(self._wake, None)

    def _start(self, query: Query) -> int:
        if not query.resource_version.isdigit():
            raise internal(f'resourceVersion: Invalid value: "{query.resource_version}": strconv.ParseUint: invalid syntax')
        revision = int(query.resource_version)
        if revision < self._history.forgotten:
            raise too_old(self._history.forgotten, revision)
        return revision

    def _told(self, record: Record) -> Told | None:
        """The event for a change, as this selection sees it: leaving it looks like a deletion, entering it like a creation."""
        before, after = self._selection.holds(record.key, record.old), self._selection.holds(record.key, record.new)
        if after and record.new is not None:
            return Told("MODIFIED" if before else "ADDED", record.new)
        return Told("DELETED", record.gone) if before else None


def too_old(oldest: int, wanted: int = 0) -> Refused:
    return expired(f"too old resource version: {wanted} ({oldest + 1})")


class Stream:
    """One open watch, and when its next bookmark and its end are due, by the clock of the event loop, virtual or real.

    `watch` opens it, and is given what to call when there is news.
    """

    def __init__(self, watch: Callable[[Callable[[], None]], Watch], *, seconds: float, bookmarks: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._watch = watch(self._news.set)
        self._news.set()
        self._end = self._loop.time() + seconds
        self._bookmark = self._next_bookmark() if bookmarks else math.inf
        self._ended = False
        self._error: ApiError | None = None

    async def next(self) -> list[Told]:
        """Events or a bookmark; nothing when the watch is over."""
        while True:
            if self._error is not None:
                raise self._error
            now = self._loop.time()
            if self._ended or now >= self._end:
                return []
            if self._watch.waiting:
                if told := self._watch.take():
                    return told
                continue
            if now >= self._bookmark:
                self._bookmark = self._next_bookmark()
                return [self._watch.bookmark()]
            await self._wait(min(self._bookmark, self._end))

    def end(self, error: ApiError | None) -> None:
        self._ended, self._error = True, error
        self._news.set()

    def close(self) -> None:
        self._watch.close()

    def _next_bookmark(self) -> float:
        """Once a period, and once more shortly before the end, so that the next watch can go on from there."""
        now, last = self._loop.time(), self._end - _BEFORE_THE_END
        return min(now + BOOKMARK_SECONDS, last) if now < last else math.inf

    async def _wait(self, until: float) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            pass
