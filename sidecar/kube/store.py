"""An indexed cache of small records. Nothing here awaits, so reads without an await between them are consistent."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from sidecar.kube.api import Change
from sidecar.model.objects import Json

R = TypeVar("R")
Indexer = Callable[[R], Iterable[str]]


def by_uid(obj: Json) -> str:
    """An object that was deleted and created again under its name has another key: what was known of the first is not used for it."""
    return str(obj["metadata"]["uid"])


def by_name(obj: Json) -> str:
    """`namespace/name`, or the name alone for what has no namespace."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


class Store(Generic[R]):
    """Records by key, and by the values that each index gives for a record, of which there may be any number."""

    def __init__(self, indexes: Mapping[str, Indexer[R]] = MappingProxyType({})) -> None:
        self._indexers = dict(indexes)
        self._records: dict[str, R] = {}
        self.on_change: list[Callable[[str], None]] = []
        """Called with the key when its record has been replaced or is gone."""
        # Dicts as ordered sets: the same history gives the same order, which makes runs comparable.
        self._indexes: dict[str, dict[str, dict[str, None]]] = {name: {} for name in self._indexers}

    def apply(self, change: Change[R]) -> frozenset[str]:
        """Returns the keys whose record has changed: the change's key, or none.

        It compares with the held record, not with `change.old`. An equal record replaces the held one too, since records may have fields
        that their comparison leaves out.
        """
        key, new = change.key, change.new
        old = self._records.get(key)
        # Whatever may raise comes before the first change, so that an error leaves the store as it was.
        places = {} if new is None else {name: list(indexer(new)) for name, indexer in self._indexers.items()}
        if old is not None:
            self._unlist(key, old)
        if new is None:
            self._records.pop(key, None)
        else:
            self._records[key] = new
            self._enlist(key, places)
        if old is not None or new is not None:
            for tell in self.on_change:
                tell(key)
        return frozenset() if old == new else frozenset({key})

    def missing(self, seen: Collection[str | None]) -> list[str]:
        """The held keys that a complete list did not have."""
        return [key for key in self._records if key not in seen]

    def get(self, key: str) -> R | None:
        return self._records.get(key)

    def by_index(self, name: str, value: str) -> list[R]:
        """The records with this value in the index. A name without an index is a bug and raises KeyError."""
        return [self._records[key] for key in self._indexes[name].get(value, ())]

    def keys(self) -> list[str]:
        return list(self._records)

    def values(self) -> list[R]:
        return list(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: object) -> bool:
        return key in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def _enlist(self, key: str, places: Mapping[str, Iterable[str]]) -> None:
        for name, values in places.items():
            for value in values:
                self._indexes[name].setdefault(value, {})[key] = None

    def _unlist(self, key: str, old: R) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for value in indexer(old):
                held = index.get(value)
                if held is not None:
                    held.pop(key, None)
                    if not held:
                        del index[value]
