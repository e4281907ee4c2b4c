"""All objects under one counter of revisions, and the watches to wake at a change."""

from collections.abc import Callable, Iterable

from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.storage.history import History, Key, Stored, key_of
from sidecar.kube.api import Resource
from sidecar.model.objects import Json

Wake = Callable[[], None]


class Store:
    """Objects by kind and key. It checks no rules; `Cluster` has checked them before it writes."""

    def __init__(self, kinds: Iterable[Kind], *, history: int) -> None:
        self.kinds = {kind.resource: kind for kind in kinds}
        self._histories = {resource: History(limit=history) for resource in self.kinds}
        # A dict serves as an ordered set: the order of waking must not depend on addresses in memory.
        self._wakes: dict[Resource, dict[Wake, None]] = {resource: {} for resource in self.kinds}
        self.revision = 1

    def history(self, kind: Kind) -> History:
        return self._histories[kind.resource]

    def stored(self, kind: Kind, name: str, namespace: str) -> Stored | None:
        return self._histories[kind.resource].get(key_of(name, namespace if kind.resource.namespaced else ""))

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        found = self._histories[resource].get(key_of(name, namespace))
        return None if found is None else found.obj

    def all_of(self, resource: Resource) -> Iterable[Json]:
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

    def subscribe(self, kind: Kind, wake: Wake) -> None:
        self._wakes[kind.resource][wake] = None

    def unsubscribe(self, kind: Kind, wake: Wake) -> None:
        self._wakes[kind.resource].pop(wake, None)

    def _write(self, kind: Kind, key: Key, stored: Stored | None) -> None:
        self._histories[kind.resource].write(key, stored, self.revision)
        for wake in tuple(self._wakes[kind.resource]):
            wake()
