"""Keeps the book of promises right: what this node's claims will take that is not taken yet.

A claim is looked at anew whenever the claim itself, a volume with its volume's name, or this process's progress with it has changed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.model.objects import Claim
from sidecar.ownership.promises import Promise
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.provisioning.progress_table import ProgressTable


class Promises:
    """Made before the caches are filled, for it hears of changes alone."""

    def __init__(self, *, here: Callable[[], Here], caches: Caches, table: ProgressTable, space: ReservedSpace) -> None:
        self._here = here
        self._caches = caches
        self._table = table
        self._space = space
        self._names: dict[str, str] = {}
        """By uid: the names that the volumes will have of those claims that this node owes one."""
        self._claims: dict[str, tuple[str, ...]] = {}
        """By such a name: the uids. Flags may cut names so short that two claims have one."""
        caches.claims.on_change.append(self._look_at)
        caches.volumes.on_change.append(self._volume_changed)
        table.on_change = self._look_at

    def of(self, uid: str) -> Promise | None:
        return self._space.promises.get(uid)

    @contextmanager
    def told(self, uid: str) -> Iterator[None]:
        """What a look changes about the bytes this node owes, whoever publishes hears."""
        before = self.of(uid)
        try:
            yield
        finally:
            after = self.of(uid)
            if (promise := before or after) and before != after:
                self._space.promise_changed(promise.class_name)

    def _volume_changed(self, name: str) -> None:
        for uid in self._claims.get(name, ()):
            self._look_at(uid)

    def _look_at(self, uid: str) -> None:
        claim = self._owed(uid)
        if claim is None:
            if (name := self._names.pop(uid, None)) is not None:
                self._unlist(uid, name)
                self._space.promises.put(uid, None)
            return
        if uid not in self._names:
            name = self._names[uid] = self._here().volume_name(uid)
            self._claims[name] = (*self._claims.get(name, ()), uid)
        made = self._names[uid] in self._caches.volumes
        self._space.promises.put(uid, None if made else Promise(claim.class_name, claim.requested or 0, claim.namespace))

    def _owed(self, uid: str) -> Claim | None:
        """The claim, if it will take space unless it has: it names this node, is being bid for, or is perhaps in creation."""
        cached = self._caches.claims.get(uid)
        mine = cached is not None and cached.selected_node == self._here().node and not cached.volume_name
        claim = cached if mine else self._table.pending_of(uid)
        if claim is None or not claim.requested or claim.requested < 0 or not self._table.takes_space(uid):
            return None
        return claim

    def _unlist(self, uid: str, name: str) -> None:
        others = tuple(other for other in self._claims[name] if other != uid)
        if others:
            self._claims[name] = others
        else:
            del self._claims[name]
