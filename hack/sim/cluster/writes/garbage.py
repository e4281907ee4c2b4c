"""The garbage collector and the namespace controller, as far as tests and the demo need them. One call does all that is due."""

from collections.abc import Iterator, Sequence

from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.storage.history import Stored
from hack.sim.cluster.writes import deletion
from hack.sim.cluster.writes.deletion import FOREGROUND, ORPHAN, Options
from hack.sim.cluster.writes.objects import Objects
from sidecar.kube.api import NAMESPACES
from sidecar.model.objects import Json


def collect(objects: Objects) -> int:
    """Deletes dependents whose owners are all gone, and empties terminating namespaces, until a round changes nothing."""
    went, before = 0, -1
    while before != objects.revision:
        before = objects.revision
        for kind, stored in list(_everything(objects)):
            went += _attend(objects, kind, stored)
    return went


def _everything(objects: Objects) -> Iterator[tuple[Kind, Stored]]:
    for kind in objects.store.kinds.values():
        for stored in objects.store.history(kind).all():
            yield kind, stored


def _attend(objects: Objects, kind: Kind, stored: Stored) -> int:
    if stored.obj["metadata"].keys().isdisjoint(("ownerReferences", "deletionTimestamp")):
        return 0  # most objects: what is given one of these meanwhile is met in the next round
    current = objects.store.stored(kind, stored.obj["metadata"]["name"], stored.obj["metadata"].get("namespace", ""))
    if current is None:
        return 0
    meta = current.obj["metadata"]
    if kind.resource == NAMESPACES:
        return _empty_namespace(objects, kind, current) if "deletionTimestamp" in meta else 0
    if "deletionTimestamp" in meta:
        _release(objects, kind, current)
        return 0
    return _judge(objects, kind, current)


def _judge(objects: Objects, kind: Kind, stored: Stored) -> int:
    owners = stored.obj["metadata"].get("ownerReferences") or []
    alive = [owner for owner in owners if _owner(objects, stored.obj, owner) is not None or not _known(objects, owner)]
    if not owners or len(alive) == len(owners):
        return 0
    if alive:
        _set_owners(objects, kind, stored, alive)
        return 0
    return int(deletion.delete(objects, kind, stored, Options(uid=stored.obj["metadata"]["uid"], propagation="Background"))[1])


def _release(objects: Objects, kind: Kind, owner: Stored) -> None:
    """An owner in deletion with a finalizer of the collector: its dependents are orphaned, or are deleted before it."""
    words = owner.obj["metadata"].get("finalizers") or []
    if ORPHAN in words:
        for other, dependent in _dependents(objects, owner):
            uid = owner.obj["metadata"]["uid"]
            left = [item for item in dependent.obj["metadata"]["ownerReferences"] if item["uid"] != uid]
            _set_owners(objects, other, dependent, left)
        _drop_finalizer(objects, kind, owner, ORPHAN)
    elif FOREGROUND in words:
        dependents = _dependents(objects, owner)
        for other, dependent in dependents:
            deletion.delete(objects, other, dependent, Options(propagation="Foreground"))
        if not dependents:
            _drop_finalizer(objects, kind, owner, FOREGROUND)


def _empty_namespace(objects: Objects, kind: Kind, namespace: Stored) -> int:
    name, went, left = namespace.obj["metadata"]["name"], 0, 0
    for other, stored in list(_everything(objects)):
        if other.resource.namespaced and stored.obj["metadata"]["namespace"] == name:
            gone = deletion.delete(objects, other, stored, Options())[1]
            went, left = went + gone, left + (not gone)
    if not left:
        objects.rewrite(kind, namespace, namespace.obj | {"spec": {}})
    return went


def _dependents(objects: Objects, owner: Stored) -> list[tuple[Kind, Stored]]:
    uid = owner.obj["metadata"]["uid"]
    return [
        (kind, stored)
        for kind, stored in _everything(objects)
        if any(item["uid"] == uid for item in stored.obj["metadata"].get("ownerReferences") or ())
    ]


def _known(objects: Objects, owner: Json) -> bool:
    """Whether the owner's kind is served. Of another kind nobody can say that the owner is gone."""
    return _kind_of(objects, owner) is not None


def _kind_of(objects: Objects, owner: Json) -> Kind | None:
    wanted = owner["apiVersion"], owner["kind"]
    return next((kind for kind in objects.store.kinds.values() if (kind.resource.api_version, kind.resource.kind) == wanted), None)


def _owner(objects: Objects, dependent: Json, owner: Json) -> Stored | None:
    kind = _kind_of(objects, owner)
    if kind is None:
        return None
    found = objects.store.stored(kind, owner["name"], dependent["metadata"].get("namespace", ""))
    return found if found is not None and found.obj["metadata"]["uid"] == owner["uid"] else None


def _set_owners(objects: Objects, kind: Kind, stored: Stored, owners: Sequence[Json]) -> None:
    meta = {key: value for key, value in stored.obj["metadata"].items() if key != "ownerReferences"}
    objects.rewrite(kind, stored, stored.obj | {"metadata": meta | ({"ownerReferences": list(owners)} if owners else {})})


def _drop_finalizer(objects: Objects, kind: Kind, stored: Stored, word: str) -> None:
    meta = {key: value for key, value in stored.obj["metadata"].items() if key != "finalizers"}
    words = [other for other in stored.obj["metadata"]["finalizers"] if other != word]
    objects.rewrite(kind, stored, stored.obj | {"metadata": meta | ({"finalizers": words} if words else {})})
