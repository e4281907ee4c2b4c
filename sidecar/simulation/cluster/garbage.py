"""The garbage collector and the namespace controller, as far as tests and the demo need them: one step that goes on to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sidecar.kube.api import NAMESPACES
from sidecar.model.objects import Json
from sidecar.simulation.cluster import deletion
from sidecar.simulation.cluster.deletion import FOREGROUND, ORPHAN, Options
from sidecar.simulation.cluster.history import Stored
from sidecar.simulation.cluster.kind import Kind

if TYPE_CHECKING:
    from sidecar.simulation.cluster.cluster import Cluster


def collect(cluster: Cluster) -> int:
    """Dependents whose owners are all gone go; namespaces that terminate are emptied. Ends when a round changes nothing."""
    went, before = 0, -1
    while before != cluster.revision:
        before = cluster.revision
        for kind, stored in list(_everything(cluster)):
            went += _attend(cluster, kind, stored)
    return went


def _everything(cluster: Cluster) -> Iterator[tuple[Kind, Stored]]:
    for kind in cluster.store.kinds.values():
        for stored in cluster.store.history(kind).all():
            yield kind, stored


def _attend(cluster: Cluster, kind: Kind, stored: Stored) -> int:
    current = cluster.store.stored(kind, stored.obj["metadata"]["name"], stored.obj["metadata"].get("namespace", ""))
    if current is None:
        return 0
    meta = current.obj["metadata"]
    if kind.resource == NAMESPACES:
        return _empty_namespace(cluster, kind, current) if "deletionTimestamp" in meta else 0
    if "deletionTimestamp" in meta:
        _release(cluster, kind, current)
        return 0
    return _judge(cluster, kind, current)


def _judge(cluster: Cluster, kind: Kind, stored: Stored) -> int:
    owners = stored.obj["metadata"].get("ownerReferences") or []
    alive = [owner for owner in owners if _owner(cluster, stored.obj, owner) is not None or not _known(cluster, owner)]
    if not owners or len(alive) == len(owners):
        return 0
    if alive:
        _set_owners(cluster, kind, stored, alive)
        return 0
    return int(deletion.delete(cluster, kind, stored, Options(uid=stored.obj["metadata"]["uid"], propagation="Background"))[1])


def _release(cluster: Cluster, kind: Kind, owner: Stored) -> None:
    """An owner that goes first lets its dependents go free, or waits until they are gone."""
    words = owner.obj["metadata"].get("finalizers") or []
    if ORPHAN in words:
        for other, dependent in _dependents(cluster, owner):
            uid = owner.obj["metadata"]["uid"]
            left = [item for item in dependent.obj["metadata"]["ownerReferences"] if item["uid"] != uid]
            _set_owners(cluster, other, dependent, left)
        _drop_finalizer(cluster, kind, owner, ORPHAN)
    elif FOREGROUND in words:
        dependents = _dependents(cluster, owner)
        for other, dependent in dependents:
            deletion.delete(cluster, other, dependent, Options(propagation="Foreground"))
        if not dependents:
            _drop_finalizer(cluster, kind, owner, FOREGROUND)


def _empty_namespace(cluster: Cluster, kind: Kind, namespace: Stored) -> int:
    name, went, left = namespace.obj["metadata"]["name"], 0, 0
    for other, stored in list(_everything(cluster)):
        if other.resource.namespaced and stored.obj["metadata"]["namespace"] == name:
            gone = deletion.delete(cluster, other, stored, Options())[1]
            went, left = went + gone, left + (not gone)
    if not left:
        cluster.rewrite(kind, namespace, namespace.obj | {"spec": {}})
    return went


def _dependents(cluster: Cluster, owner: Stored) -> list[tuple[Kind, Stored]]:
    uid = owner.obj["metadata"]["uid"]
    return [
        (kind, stored)
        for kind, stored in _everything(cluster)
        if any(item["uid"] == uid for item in stored.obj["metadata"].get("ownerReferences") or ())
    ]


def _known(cluster: Cluster, owner: Json) -> bool:
    """Of a kind that is not served nobody can say that it is gone."""
    return _kind_of(cluster, owner) is not None


def _kind_of(cluster: Cluster, owner: Json) -> Kind | None:
    wanted = owner["apiVersion"], owner["kind"]
    return next((kind for kind in cluster.store.kinds.values() if (kind.resource.api_version, kind.resource.kind) == wanted), None)


def _owner(cluster: Cluster, dependent: Json, owner: Json) -> Stored | None:
    kind = _kind_of(cluster, owner)
    if kind is None:
        return None
    found = cluster.store.stored(kind, owner["name"], dependent["metadata"].get("namespace", ""))
    return found if found is not None and found.obj["metadata"]["uid"] == owner["uid"] else None


def _set_owners(cluster: Cluster, kind: Kind, stored: Stored, owners: Sequence[Json]) -> None:
    meta = {key: value for key, value in stored.obj["metadata"].items() if key != "ownerReferences"}
    cluster.rewrite(kind, stored, stored.obj | {"metadata": meta | ({"ownerReferences": list(owners)} if owners else {})})


def _drop_finalizer(cluster: Cluster, kind: Kind, stored: Stored, word: str) -> None:
    meta = {key: value for key, value in stored.obj["metadata"].items() if key != "finalizers"}
    words = [other for other in stored.obj["metadata"]["finalizers"] if other != word]
    cluster.rewrite(kind, stored, stored.obj | {"metadata": meta | ({"finalizers": words} if words else {})})
