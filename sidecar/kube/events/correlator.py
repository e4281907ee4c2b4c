"""Decides which Kubernetes Event to write: a new one, a higher count for one that exists, or none.

The rules are client-go's, so that a cluster gets no more Events than from external-provisioner: an object gets 25, then one every 300 s;
after ten within 600 s that differ only in their message, further ones are combined in one; an equal one is counted. All memory is bounded.
Times are parameters: `now` for intervals, `wall` for what is written.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Generic, TypeVar

from sidecar.engine.limiter import TokenBucket
from sidecar.model import names
from sidecar.model.objects import Json

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

COMBINED = "(combined from similar events): "

_MOST_KEPT = 4096
_BURST, _REFILL_SECONDS = 25, 300.0
# API servers keep Events for an hour by default.
_KEPT_SECONDS = 3600.0
_MOST_SIMILAR, _SIMILAR_SECONDS = 10, 600.0
_LONGEST_MESSAGE = 4096
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""

    @property
    def event_namespace(self) -> str:
        """Every Event has a namespace; those about cluster-scoped objects are in `default`."""
        return self.namespace or "default"

    def as_json(self) -> Json:
        ref = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in ref.items() if value}

    @property
    def identity(self) -> tuple[str, ...]:
        """The object without its resourceVersion."""
        return self.api_version, self.kind, self.namespace, self.name, self.uid


@dataclass(frozen=True, slots=True)
class Posting:
    """What to write: the whole event, and when it is told again what to change in it."""

    namespace: str
    name: str
    body: Json
    again: bool

    @property
    def patch(self) -> Json:
        """For an Event that exists: its new count and time, and the message, as combined Events show the latest."""
        return {key: self.body[key] for key in ("count", "lastTimestamp", "message")}


@dataclass(slots=True, eq=False, repr=False)
class _Similar:
    last: float
    marks: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False, repr=False)
class _Told:
    name: str
    first: str
    count: int


class Correlator:
    """The rules for one source of Events, which has `component` and `host` in each."""

    def __init__(self, component: str, host: str, *, most_kept: int = _MOST_KEPT) -> None:
        self._component = component
        self._host = host
        self._buckets: _Lru[tuple[str, ...], TokenBucket] = _Lru(most_kept)
        self._similar: _Lru[tuple[str, ...], _Similar] = _Lru(most_kept)
        self._told: _Lru[tuple[str, ...], _Told] = _Lru(most_kept)
        self._told_once: _Lru[tuple[str, str], float] = _Lru(most_kept)
        """By namespace and name: when this process told it."""
        self._last_stamp = 0

    def correlate(
        self, ref: ObjectRef, type_: str, reason: str, message: str, *, now: float, wall: float, once: str = ""
    ) -> Posting | None:
        """None if this object has had too many Events. `once` is the name of an Event that is written only once, as long as it is kept."""
        told_at = self._told_once.get((ref.event_namespace, once)) if once else None
        if told_at is not None and now < told_at + _KEPT_SECONDS:
            return None
        message = _shortened(message)
        key = (*ref.identity, type_, reason)
        mark = str(hash(message))  # a hash, since thousands of messages would take megabytes
        if self._is_one_of_many(key, mark, now):
            message = _shortened(COMBINED + message)
        else:
            key = (*key, mark)
        told, again = (_Told(once, _timestamp(wall), 1), False) if once else self._tell(key, ref, wall)
        bucket = self._buckets.get(ref.identity) or self._buckets.put(ref.identity, TokenBucket(1.0 / _REFILL_SECONDS, _BURST))
        if not bucket.allow(now):
            return None
        if once:
            self._told_once.put((ref.event_namespace, once), now)
        body = self._body(ref, told, type_, reason, message, wall)
        return Posting(ref.event_namespace, told.name, body, again)

    def _is_one_of_many(self, key: tuple[str, ...], mark: str, now: float) -> bool:
        similar = self._similar.get(key)
        if similar is None or now - similar.last > _SIMILAR_SECONDS:
            similar = self._similar.put(key, _Similar(now))
        similar.last = now
        if mark in similar.marks:
            return False
        if len(similar.marks) >= _MOST_SIMILAR:
            return True
        similar.marks.add(mark)
        return False

    def _tell(self, key: tuple[str, ...], ref: ObjectRef, wall: float) -> tuple[_Told, bool]:
        told = self._told.get(key)
        if told is not None:
            told.count += 1
            return told, True
        return self._told.put(key, _Told(self._new_name(ref, wall), _timestamp(wall), 1)), False

    def _new_name(self, ref: ObjectRef, wall: float) -> str:
        """As client-go does: the object's name and the time in nanoseconds, which is unique even within one tick of the clock."""
        self._last_stamp = max(int(wall * 1e9), self._last_stamp + 1)
        suffix = f".{self._last_stamp:x}"
        return ref.name[: _LONGEST_NAME - len(suffix)].rstrip(".-") + suffix

    def _body(self, ref: ObjectRef, told: _Told, type_: str, reason: str, message: str, wall: float) -> Json:
        return {
            "apiVersion": "v1",
            "kind": names.EVENT,
            "metadata": {"name": told.name, "namespace": ref.event_namespace},
            "involvedObject": ref.as_json(),
            "type": type_,
            "reason": reason,
            "message": message,
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": told.first,
            "lastTimestamp": _timestamp(wall),
            "count": told.count,
        }


class _Lru(Generic[K, V]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: K, value: V) -> V:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._most:
            self._items.popitem(last=False)
        return value


def _shortened(message: str) -> str:
    """Beginning and end of a long message: a driver's tool mostly prints the cause last."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    half = _LONGEST_MESSAGE // 2
    return f"{message[: half - 3]} … {message[-half:]}"


def _timestamp(wall: float) -> str:
    return _second(int(wall))


@lru_cache(2)  # in a burst every event of a second has the same one
def _second(wall: int) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
