"""The objects of one kind: the newest version of each, in the order of their keys, and the changes that led there."""

import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sidecar.model.objects import Json

_WRITTEN_FIRST: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")

Key = str
"""`namespace/name`, or the name alone: the order of lists."""


def key_of(name: str, namespace: str = "") -> Key:
    return f"{namespace}/{name}" if namespace else name


def _as_written(obj: Json) -> Json:
    """With what identifies it at the beginning, where API servers have it."""
    meta = obj["metadata"]
    first = {field: meta[field] for field in _WRITTEN_FIRST if field in meta}
    return {"metadata": first | meta} | {field: value for field, value in obj.items() if field != "metadata"}


class Stored:
    """One version of an object. It never changes, and its bytes are made only once."""

    def __init__(self, obj: Json) -> None:
        self.obj = obj

    @cached_property
    def bare(self) -> Json:
        """The bytes as in a list, whose items do not name their kind."""
        return {key: value for key, value in self.obj.items() if key not in ("kind", "apiVersion")}

    @cached_property
    def item(self) -> bytes:
        return json.dumps(_as_written(self.bare), separators=(",", ":"), ensure_ascii=False).encode()

    @cached_property
    def whole(self) -> bytes:
        kind, version = self.obj["kind"], self.obj["apiVersion"]
        return f'{{"kind":"{kind}","apiVersion":"{version}",'.encode() + self.item[1:]

    @property
    def revision(self) -> int:
        return int(self.obj["metadata"]["resourceVersion"])

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
    """All of one kind. Keeps the last `limit` changes and sometimes more."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._now: dict[Key, Stored] = {}
        self._keys: list[Key] = []
        self._records: list[Record] = []
        self._revisions: list[int] = []
        self._dropped = 0
        self.forgotten = 0
        """Changes up to this revision have been forgotten."""

    def __len__(self) -> int:
        return len(self._now)

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
        self._revisions.append(revision)
        if len(self._records) > 2 * self._limit:
            self.forget(self._revisions[-self._limit - 1])
        return record

    def forget(self, revision: int) -> None:
        """Compaction: forgets the changes up to that revision."""
        count = bisect_right(self._revisions, revision)
        del self._records[:count], self._revisions[:count]
        self._dropped += count
        self.forgotten = max(self.forgotten, revision)

    def since(self, revision: int) -> int:
        """The position of the first change after that revision, for `read`."""
        return self._dropped + bisect_right(self._revisions, revision)

    def read(self, position: int, limit: int) -> list[Record] | None:
        """Changes from a position on; None when some of them are forgotten already."""
        start = position - self._dropped
        return self._records[start : start + limit] if start >= 0 else None

    def at(self, revision: int) -> tuple[list[Key], dict[Key, Stored]]:
        """All objects as they were right after that revision, which must not have been forgotten."""
        later = self._records[bisect_right(self._revisions, revision) :]
        if not later:
            return self._keys, self._now
        then = dict(self._now)
        for record in reversed(later):
            if record.old is None:
                then.pop(record.key, None)
            else:
                then[record.key] = record.old
        return sorted(then), then
