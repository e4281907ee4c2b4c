"""All objects under one counter of revisions: the newest version of each, the changes that led there, and the watches to wake at one."""

import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hack.sim.cluster.kinds import Kind
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

_REMEMBERED: Final = 10_000
_WRITTEN_FIRST: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")

Wake = Callable[[], None]
Key = str
"""`namespace/name`, or the name alone: the order of lists."""


def key_of(name: str, namespace: str = "") -> Key:
    return f"{namespace}/{name}" if namespace else name


class Stored:
    """One version of an object. It never changes, and its bytes are made only once."""

    def __init__(self, obj: Json) -> None:
        self.obj = obj

    @cached_property
    def bare(self) -> Json:
        """As in a list, whose items do not name their kind."""
        return {key: value for key, value in self.obj.items() if key not in ("kind", "apiVersion")}

    @cached_property
    def item(self) -> bytes:
        """With what identifies it at the beginning, where API servers have it."""
        meta = self.obj["metadata"]
        first = {field: meta[field] for field in _WRITTEN_FIRST if field in meta}
        others = {key: value for key, value in self.bare.items() if key != "metadata"}
        return json.dumps({"metadata": first | meta} | others, separators=(",", ":"), ensure_ascii=False).encode()

    @cached_property
    def whole(self) -> bytes:
        kind, version = self.obj["kind"], self.obj["apiVersion"]
        return f'{{"kind":"{kind}","apiVersion":"{version}",'.encode() + self.item[1:]

    def at(self, revision: int) -> "Stored":
        """The same content with another version."""
        return Stored(self.obj | {"metadata": self.obj["metadata"] | {"resourceVersion": str(revision)}})


@dataclass(frozen=True)
class Record:
    """One change. `old` is None for a creation, `new` for a deletion."""

    revision: int
    key: Key
    old: Stored | None
    new: Stored | None

    @cached_property
    def gone(self) -> Stored:
        """What a watch shows of an object that has left its sight: its last state, with the version of the change."""
        assert self.old is not None
        return self.old.at(self.revision)


class History:
    """All of one kind, with the last changes."""

    def __init__(self) -> None:
        self._now: dict[Key, Stored] = {}
        self._keys: list[Key] = []
        self._records: list[Record] = []
        self._dropped = 0
        self.forgotten = 0
        """Changes up to this revision have been forgotten."""

    def get(self, key: Key) -> Stored | None:
        return self._now.get(key)

    def all(self) -> Iterator[Stored]:
        return (self._now[key] for key in self._keys)

    def write(self, key: Key, stored: Stored | None, revision: int) -> Record:
        record = Record(revision, key, self._now.get(key), stored)
        if stored is None:
            del self._now[key]
            self._keys.pop(bisect_left(self._keys, key))
        else:
            if key not in self._now:
                insort(self._keys, key)
            self._now[key] = stored
        self._records.append(record)
        if len(self._records) > 2 * _REMEMBERED:
            self.forget(self._records[-_REMEMBERED - 1].revision)
        return record

    def forget(self, revision: int) -> None:
        """Compaction: forgets the changes up to that revision."""
        count = self._up_to(revision)
        del self._records[:count]
        self._dropped += count
        self.forgotten = max(self.forgotten, revision)

    def since(self, revision: int) -> int:
        """The position of the first change after that revision, for `read`."""
        return self._dropped + self._up_to(revision)

    def read(self, position: int, limit: int) -> list[Record] | None:
        """Changes from a position on; None when some of them are forgotten already."""
        start = position - self._dropped
        return self._records[start : start + limit] if start >= 0 else None

    def at(self, revision: int) -> tuple[list[Key], dict[Key, Stored]]:
        """All objects as they were right after that revision, which must not have been forgotten."""
        later = self._records[self._up_to(revision) :]
        if not later:
            return self._keys, self._now
        then = dict(self._now)
        for record in reversed(later):
            if record.old is None:
                then.pop(record.key, None)
            else:
                then[record.key] = record.old
        return sorted(then), then

    def _up_to(self, revision: int) -> int:
        """How many of the changes that are remembered it has."""
        return bisect_right(self._records, revision, key=lambda record: record.revision)


class Store:
    """Objects by kind and key. It checks no rules; `ApiServer` has checked them before it writes."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.kinds = {kind.resource: kind for kind in kinds}
        self._histories = {resource: History() for resource in self.kinds}
        # A dict serves as an ordered set: the order of waking must not depend on addresses in memory.
        self.wakes: dict[Resource, dict[Wake, None]] = {resource: {} for resource in self.kinds}
        self.revision = 1

    def history(self, kind: Kind) -> History:
        return self._histories[kind.resource]

    def stored(self, kind: Kind, name: str, namespace: str) -> Stored | None:
        return self._histories[kind.resource].get(key_of(name, namespace if kind.resource.namespaced else ""))

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        found = self._histories[resource].get(key_of(name, namespace))
        return None if found is None else found.obj

    def all_of(self, resource: Resource) -> list[Json]:
        return [stored.obj for stored in self._histories[resource].all()]

    def put(self, kind: Kind, key: Key, obj: Json) -> Stored:
        """`obj` belongs to the store from now on."""
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        stored = Stored(obj)
        self._write(kind, key, stored)
        return stored

    def drop(self, kind: Kind, key: Key) -> None:
        self.revision += 1
        self._write(kind, key, None)

    def forget(self) -> None:
        """Forgets the history of all kinds up to now."""
        for history in self._histories.values():
            history.forget(self.revision)

    def _write(self, kind: Kind, key: Key, stored: Stored | None) -> None:
        self._histories[kind.resource].write(key, stored, self.revision)
        for wake in tuple(self.wakes[kind.resource]):
            wake()
