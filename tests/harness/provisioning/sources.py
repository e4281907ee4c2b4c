"""A snapshot, a claim and an attributes class that a volume is made from, with everything they lead to."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_SNAPSHOT, CREATE_DELETE_VOLUME, MODIFY_VOLUME
from sidecar.local.here import Here
from sidecar.model.names import SNAPSHOT_GROUP
from sidecar.model.objects import Claim
from sidecar.provisioning.needs import ATTRIBUTES_CLASS, CLAIM, CONTENT, SNAPSHOT, VOLUME, Absent, Facts, Json, Need, Ref
from sidecar.provisioning.requests.sources import content_of
from tests.harness import samples
from tests.harness.provisioning.room import Room

ABLE = samples.here(driver=samples.info(controller=(CREATE_DELETE_VOLUME, CREATE_DELETE_SNAPSHOT, CLONE_VOLUME, MODIFY_VOLUME)))
THE_SNAPSHOT, THE_CONTENT = Ref(SNAPSHOT, "snap", "fake-ns"), Ref(CONTENT, "content")
THE_SOURCE, THE_VOLUME = Ref(CLAIM, "source", "fake-ns"), Ref(VOLUME, "source-pv")
THE_ATTRIBUTES = Ref(ATTRIBUTES_CLASS, "gold")
FAR = "far-ns"
FROM_SNAPSHOT = {"apiGroup": SNAPSHOT_GROUP, "kind": SNAPSHOT, "name": "snap"}
FROM_CLAIM = {"kind": CLAIM, "name": "source"}
_SNAPSHOT: Json = {
    "metadata": {"name": "snap", "namespace": "fake-ns", "uid": "snap-uid"},
    "status": {"boundVolumeSnapshotContentName": "content", "readyToUse": True, "restoreSize": "100"},
}
_CONTENT: Json = {
    "metadata": {"name": "content"},
    "spec": {"driver": samples.DRIVER, "volumeSnapshotRef": {"uid": "snap-uid", "namespace": "fake-ns", "name": "snap"}},
    "status": {"snapshotHandle": "snap-handle"},
}
_SOURCE: Json = {
    "metadata": {"name": "source", "namespace": "fake-ns", "uid": "source-uid"},
    "spec": {"storageClassName": "another-class", "resources": {"requests": {"storage": "100"}}, "volumeName": "source-pv"},
    "status": {"phase": "Bound"},
}
_PV: Json = {
    "metadata": {"name": "source-pv"},
    "spec": {
        "csi": {"driver": samples.DRIVER, "volumeHandle": "source-handle"},
        "claimRef": {"uid": "source-uid", "namespace": "fake-ns", "name": "source"},
    },
    "status": {"phase": "Bound"},
}
_ATTRIBUTES: Json = {"metadata": {"name": "gold"}, "driverName": samples.DRIVER, "parameters": {"iops": "100"}}
GONE = object()


def changed(obj: Json, changes: Mapping[str, Any]) -> Json:
    """The object with what lies at each dotted way replaced, or gone."""
    copy = deepcopy(obj)
    for way, value in changes.items():
        *steps, last = way.split(".")
        at = copy
        for step in steps:
            at = at.setdefault(step, {})
        if value is GONE:
            del at[last]
        else:
            at[last] = value
    return copy


def world(ref: Ref | None = None, /, **changes: Any) -> dict[Ref, Json | Absent]:
    """Everything a healthy source needs, with one object changed."""
    facts: dict[Ref, Json | Absent] = {
        THE_SNAPSHOT: _SNAPSHOT,
        THE_CONTENT: _CONTENT,
        THE_SOURCE: _SOURCE,
        THE_VOLUME: _PV,
        THE_ATTRIBUTES: _ATTRIBUTES,
    }
    if ref is not None:
        obj = facts[ref]
        assert not isinstance(obj, Absent)
        facts[ref] = changed(obj, {way.replace("__", "."): value for way, value in changes.items()})
    return facts


def asks_until_answered(decide: Callable[[Facts], Any], world: Facts) -> tuple[Any, list[Ref]]:
    """As a controller does: fetch what is needed and ask again. What the world lacks does not exist."""
    facts: dict[Ref, Json | Absent] = {}
    asked: list[Ref] = []
    while isinstance(answer := decide(facts), Need):
        fresh = sorted(answer.refs - facts.keys())
        assert fresh, f"asked again for {answer.refs}"
        asked += fresh
        facts |= {ref: world.get(ref, Absent("not found", exists=False)) for ref in fresh}
    return answer, asked


def content(claim: Claim, world: Facts, *, here: Here = ABLE, **options: bool) -> Any:
    return asks_until_answered(lambda facts: content_of(here, claim, facts, **options), world)[0]


def size(count: str) -> Json:
    return {"requests": {"storage": count}}


PLURALS = {
    "VolumeSnapshot": "volumesnapshots",
    "VolumeSnapshotContent": "volumesnapshotcontents",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "VolumeAttributesClass": "volumeattributesclasses",
}


def fill(room: Room, facts: dict[Ref, Json | Absent]) -> Room:
    """Puts what `world` gave on the room's API server."""
    for ref, obj in facts.items():
        if not isinstance(obj, Absent):
            room.add(PLURALS[ref.kind], obj)
    return room
