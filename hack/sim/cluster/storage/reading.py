"""Lists and watches: which objects a query selects, at which revision, and as which events their changes are sent."""

import base64
import binascii
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.refusals import (
    RESOURCE_EXPIRED,
    Refused,
    bad_request,
    expired,
    internal,
    invalid,
    not_allowed,
    unsupported,
    version_too_large,
)
from hack.sim.cluster.storage.history import Key, Record, Stored
from hack.sim.cluster.storage.selectors import Test, everything, field_test, label_test
from hack.sim.cluster.storage.store import Store
from sidecar.frozen import frozen
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_EXACT: Final = "Exact"
_NOT_OLDER: Final = "NotOlderThan"


@frozen(kw_only=True)
class Query:
    """What a list or a watch asks for."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""
    initial_events: bool = False
    """For a watch: begin with the objects there are, and mark the end of them."""


@frozen
class Listed:
    """One page."""

    resource: Resource
    items: list[Stored]
    revision: int
    token: str
    remaining: int | None

    @property
    def meta(self) -> Json:
        more: Json = {} if not self.token else {"continue": self.token}
        return {"resourceVersion": str(self.revision)} | more | ({"remainingItemCount": self.remaining} if self.remaining else {})


@frozen
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
        self.labels: Test = label_test(query.labels)
        self.fields: Test = field_test(query.fields, selectable=kind.all_selectable, unknown=kind.unknown_selector)
        self.narrow = self.labels is not everything or self.fields is not everything

    def holds(self, key: Key, stored: Stored | None) -> bool:
        return stored is not None and key.startswith(self.prefix) and self.labels(stored.obj) and self.fields(stored.obj)


def list_page(store: Store, kind: Kind, query: Query) -> Listed:
    _check_options(query)
    selection = Selection(kind, query)
    revision, start = _from_token(query.token) if query.token else (_revision_of_list(store, query), "")
    if revision < 0:  # an inconsistent-continue token: its owner came too late, and goes on with the objects of now
        revision = store.revision
    history = store.history(kind)
    if revision < history.forgotten:
        if query.token:
            raise expired(RESOURCE_EXPIRED, go_on=_token(-1, start))
        raise expired("The resourceVersion for the provided list is too old.")
    keys, objects = history.at(revision)
    limit = 0 if query.version == "0" else query.limit  # such a list comes from a cache, which knows no pages
    return _page(kind, keys, objects, selection, start=start, limit=limit, revision=revision)


def _page(
    kind: Kind, keys: list[Key], objects: Mapping[Key, Stored], selection: Selection, *, start: Key, limit: int, revision: int
) -> Listed:
    items: list[Stored] = []
    begin = bisect_left(keys, max(start, selection.prefix))
    end = bisect_left(keys, selection.prefix[:-1] + "0") if selection.prefix else len(keys)  # "0" comes right after "/"
    for position in range(begin, end):
        key = keys[position]
        if not selection.narrow or selection.holds(key, objects[key]):
            if limit > 0 and len(items) == limit:
                remaining = None if selection.narrow else end - position
                return Listed(kind.resource, items, revision, _token(revision, key), remaining)
            items.append(objects[key])
    return Listed(kind.resource, items, revision, "", None)


def _revision_of_list(store: Store, query: Query) -> int:
    if not query.version or query.version == "0":
        return store.revision
    if not query.version.isdigit():
        raise bad_request(f"invalid resource version: {_no_number(query.version)}")
    wanted = int(query.version)
    if wanted > store.revision:
        raise version_too_large(wanted, store.revision)
    return wanted if query.match == _EXACT else store.revision


def _token(revision: int, start: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).encode()).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, Key]:
    try:
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(content["rv"]), str(content["start"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None


def _check_options(query: Query, *, watch: bool = False) -> None:
    """Refuses options that exclude each other, with 422 as for an invalid ListOptions object."""
    cause = None
    if query.match and query.match not in (_EXACT, _NOT_OLDER):
        cause = unsupported("resourceVersionMatch", query.match, (_EXACT, _NOT_OLDER, ""))
    elif watch and query.initial_events and query.match != _NOT_OLDER:
        cause = not_allowed("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    elif watch and query.match and not query.initial_events:
        cause = not_allowed("resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    elif watch and query.token:
        cause = not_allowed("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
    elif not watch and query.match and not query.version:
        cause = not_allowed("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
    elif not watch and query.match == _EXACT and query.version == "0":
        cause = not_allowed("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if cause is not None:
        raise invalid("ListOptions", "meta.k8s.io", "", [cause])


def _no_number(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


class Watch:
    """A place in the history of one kind. `take` what is new whenever `wake` was called; `close` it in the end."""

    def __init__(self, store: Store, kind: Kind, query: Query, *, wake: Callable[[], None]) -> None:
        _check_options(query, watch=True)
        self._store, self._kind, self._wake = store, kind, wake
        self._selection = Selection(kind, query)
        self._history = store.history(kind)
        self._first: list[Told] = []
        # A version in the future is waited for: changes before it are not sent.
        self._begin = self._start(query)
        self._position = self._history.since(self._begin)
        store.subscribe(kind, wake)

    @property
    def waiting(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._first) or self._history.since(self._store.revision) > self._position

    def take(self, limit: int = 100) -> list[Told]:
        """The next events. `Refused` (410) if they have been forgotten."""
        if self._first:
            first, self._first = self._first, []
            return first
        records = self._history.read(self._position, limit)
        if records is None:
            raise too_old(self._history.forgotten)
        self._position += len(records)
        return [told for record in records if (told := self._told(record)) is not None and record.revision > self._begin]

    def bookmark(self) -> Told:
        """The revision that the watch has reached. Only correct when nothing is waiting."""
        return _bookmark(self._kind, self._store.revision)

    def close(self) -> None:
        self._store.unsubscribe(self._kind, self._wake)

    def _start(self, query: Query) -> int:
        if query.version in ("", "0"):
            self._first = list(self._initial(query))
            return self._store.revision
        if not query.version.isdigit():
            raise internal(_no_number(query.version))
        revision = int(query.version)
        if query.initial_events:
            self._first = list(self._initial(query))
            return self._store.revision
        if revision < self._history.forgotten:
            raise too_old(self._history.forgotten, revision)
        return revision

    def _initial(self, query: Query) -> Iterator[Told]:
        keys, objects = self._history.at(self._store.revision)
        for key in keys:
            if self._selection.holds(key, objects[key]):
                yield Told("ADDED", objects[key])
        if query.initial_events:
            yield _bookmark(self._kind, self._store.revision, annotations={INITIAL_EVENTS_END: "true"})

    def _told(self, record: Record) -> Told | None:
        """The event for a change, as this selection sees it: leaving it looks like a deletion, entering it like a creation."""
        before, after = self._selection.holds(record.key, record.old), self._selection.holds(record.key, record.new)
        if after and record.new is not None:
            return Told("MODIFIED" if before else "ADDED", record.new)
        return Told("DELETED", record.gone) if before else None


def too_old(oldest: int, wanted: int = 0) -> Refused:
    return expired(f"too old resource version: {wanted} ({oldest + 1})")


def _bookmark(kind: Kind, revision: int, *, annotations: Mapping[str, str] | None = None) -> Told:
    meta: Json = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = dict(annotations)
    return Told("BOOKMARK", Stored({"kind": kind.resource.kind, "apiVersion": kind.resource.api_version, "metadata": meta}))
