"""Decides what to do next about the object of one class, one step at a time.

Repeated, the steps end in exactly one correct object for an eligible class and in none for any other, whatever was there before.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sidecar.capacity.figure import Figure, figure_of
from sidecar.capacity.view import CapacityView, Publisher
from sidecar.csi.api import CapacityAnswer, CapacityQuery
from sidecar.csi.outcome import Unmeasured
from sidecar.kube.api import CAPACITIES
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, CapacityRecord, Class, Json, Owner
from sidecar.model.quantity import format_bytes
from sidecar.model.topology import Segment

_STAMP: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to write. Look again at `until`; None: when something changes."""

    until: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the driver, then decide again with the answer."""

    query: CapacityQuery
    why: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Create the object."""

    body: Json
    why: str


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the object with this body, guarded by its resourceVersion."""

    record: CapacityRecord
    body: Json
    why: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Delete the object."""

    record: CapacityRecord
    why: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The driver did not answer. What is published stays published, and the driver is asked again with back-off."""

    why: str


UNPLACED: Final = (
    "the driver advertises topology and reports none for this node, so a figure would speak for all nodes; nothing is published"
)

Decision = Rest | Measure | Publish | Update | Withdraw | Retry


def decide(view: CapacityView) -> Decision:
    """The next step towards exactly one correct object for an eligible class, and none for any other."""
    if excluded := _excluded(view):
        until = view.now + view.publisher.poll_interval if view.records else None
        return _withdraw(view, view.records, excluded) or Rest(until, excluded)
    right, duplicates, wrong = _sort(view)
    if withdraw := _withdraw(view, wrong, "it is for a segment other than this node's"):
        return withdraw
    decision = _keep_right(view, right)
    if isinstance(decision, Rest):
        # Duplicates go last, so that the scheduler sees a correct figure at every moment.
        return _withdraw(view, duplicates, "a duplicate") or decision
    return decision


def _withdraw(view: CapacityView, records: tuple[CapacityRecord, ...], why: str) -> Withdraw | None:
    """The first that is not on its way out. One that a finalizer holds must not keep the rest from being done."""
    return next((Withdraw(record, why) for record in records if not _goes(view, record)), None)


def _goes(view: CapacityView, record: CapacityRecord) -> bool:
    return record.deleting or record.uid in view.leaving


def _keep_right(view: CapacityView, right: CapacityRecord | None) -> Decision:
    if right is None and view.answer is None and view.now < view.settling_until:
        return Rest(view.settling_until, "the object was created a moment ago; the watch has not shown it yet")
    match view.answer:
        case None:
            return Measure(_query(view), "the published figure may be old")
        case Unmeasured(why):
            return _unanswered(view, right, why)
        case CapacityAnswer() as answer:
            reserve = view.publisher.reserve_pending
            return _compare(view, right, figure_of(answer, promised=view.promised, reserve=reserve))


def eligible(class_: Class | None, *, for_immediate: bool) -> bool:
    """Whether the class has an object: classes with late binding, and with the flag Immediate ones too.

    A class without a binding mode counts as late, as upstream has it.
    """
    return class_ is not None and (for_immediate or class_.binding_mode != IMMEDIATE)


def is_managed(record: CapacityRecord, publisher: Publisher) -> bool:
    """Whether the object bears the labels of this driver and node. Upstream's do too, so each program adopts the other's."""
    labels = record.labels
    return (labels.get(names.CAPACITY_DRIVER_LABEL), labels.get(names.CAPACITY_MANAGER_LABEL)) == (publisher.driver, publisher.manager)


def selector(publisher: Publisher) -> str:
    """Finds exactly the objects that `is_managed` accepts."""
    return f"{names.CAPACITY_DRIVER_LABEL}={publisher.driver},{names.CAPACITY_MANAGER_LABEL}={publisher.manager}"


def _excluded(view: CapacityView) -> str:
    if view.class_ is None:
        return f"StorageClass {view.class_name!r} does not exist for this driver"
    if not eligible(view.class_, for_immediate=view.publisher.for_immediate):
        return f"StorageClass {view.class_name!r} binds immediately, and --capacity-for-immediate-binding is off"
    if is_unplaced(view.segment, has_topology=view.has_topology):
        return UNPLACED
    if view.has_topology and (flaw := view.segment.flaw()):
        return f"the driver reports a topology for this node that no object can name, so nothing is published: {flaw}"
    return ""


def is_unplaced(segment: Segment, *, has_topology: bool) -> bool:
    """Whether a figure of this node could not be tied to it. Without topology at all one is published for all nodes, as upstream does."""
    return has_topology and not segment


def _sort(view: CapacityView) -> tuple[CapacityRecord | None, tuple[CapacityRecord, ...], tuple[CapacityRecord, ...]]:
    """The object to keep, its duplicates, and those for other segments. The first by name is kept, so every look keeps the same one."""
    wanted = view.segment.labels()
    ordered = sorted(view.records, key=lambda record: (_goes(view, record), record.name))
    here = tuple(record for record in ordered if record.node_topology == wanted)
    return (here[0] if here else None), here[1:], tuple(record for record in ordered if record.node_topology != wanted)


def _query(view: CapacityView) -> CapacityQuery:
    """With the parameters that the driver is given at creation. Upstream also sends the reserved ones, which no driver can know."""
    given = view.class_.parameters if view.class_ else {}
    own = {key: value for key, value in given.items() if not key.startswith(names.RESERVED_PARAMETER_PREFIX)}
    return CapacityQuery(own, view.segment or None)


def _unanswered(view: CapacityView, right: CapacityRecord | None, why: str) -> Decision:
    """What is published while the driver does not answer.

    The figure stays, since without it no pod with a new claim would be scheduled here. After one missed poll an annotation says since
    when it is old; after --capacity-stale-after it is withdrawn.
    """
    if right is None or right.capacity is None:
        return Retry(why)
    since, lasted = _since(right, view)
    limit = view.publisher.stale_after
    if limit > 0 and lasted >= limit and not _goes(view, right):
        return Withdraw(right, f"not renewed since {_stamp(since)}, which is longer than --capacity-stale-after={limit:g}s: {why}")
    if not right.stale_since and lasted >= view.publisher.poll_interval:
        body = _body(view, right, Figure(right.capacity, right.maximum, ""))
        body["metadata"]["annotations"] = {**right.annotations, names.STALE_SINCE: _stamp(since)}
        return Update(right, body, f"the figure is marked as stale: {why}")
    return Retry(why)


def _since(right: CapacityRecord, view: CapacityView) -> tuple[float, float]:
    """Since when the figure is old, and for how long. An earlier process may have marked it; an unreadable mark, or one in the future,
    counts as none. Only what an earlier process saw is reckoned by the wall clock, which may jump."""
    seen = view.wall if view.failing_since is None else view.failing_since
    try:
        marked = datetime.strptime(right.stale_since, _STAMP).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return seen, view.failing_for
    return min(marked, seen), view.failing_for + max(0.0, seen - marked)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(_STAMP)


def _compare(view: CapacityView, right: CapacityRecord | None, figure: Figure) -> Decision:
    body = _body(view, right, figure)
    if right is None:
        return Publish(body, f"{figure.why}; not published yet")
    if (right.capacity, right.maximum) != (figure.capacity, figure.maximum):
        return Update(right, body, f"{figure.why}; {right.capacity} bytes are published")
    if right.stale_since:
        return Update(right, body, f"{figure.why}; the figure is fresh again")
    if view.publisher.owner is not None and view.publisher.owner.uid not in {owner.uid for owner in right.owners if owner.controller}:
        return Update(right, body, f"the owner {view.publisher.owner.kind} {view.publisher.owner.name} is missing")
    return Rest(view.now + view.publisher.poll_interval, f"{figure.why}, as published")


def _owners(ours: Owner | None, others: tuple[Owner, ...]) -> list[Owner]:
    """The API server accepts one controlling owner. The former one, of another --capacity-ownerref-level, goes: the garbage collector
    spares what has one owner left, so beside the pod the DaemonSet would keep the object of a node that is gone."""
    if ours is None:
        return list(others)
    return [*(owner for owner in others if owner.uid != ours.uid and not owner.controller), ours]


def _body(view: CapacityView, right: CapacityRecord | None, figure: Figure) -> Json:
    publisher = view.publisher
    owners = _owners(publisher.owner, right.owners if right else ())
    labels = dict(right.labels) if right else {}
    meta: Json = {
        "labels": labels | {names.CAPACITY_DRIVER_LABEL: publisher.driver, names.CAPACITY_MANAGER_LABEL: publisher.manager},
        "ownerReferences": [owner.as_json() for owner in owners],
    }
    if right is None:
        meta["generateName"] = names.CAPACITY_NAME_PREFIX
    else:
        meta |= {"name": right.name, "namespace": right.namespace, "uid": right.uid, "resourceVersion": right.resource_version}
        # A PUT replaces everything, so what others have put there is sent back.
        others = {key: value for key, value in right.annotations.items() if key != names.STALE_SINCE}
        meta |= {"annotations": others} if others else {}
        meta |= {"finalizers": list(right.finalizers)} if right.finalizers else {}
    body: Json = {
        "apiVersion": CAPACITIES.api_version,
        "kind": CAPACITIES.kind,
        "metadata": meta,
        "storageClassName": view.class_name,
        "nodeTopology": {"matchLabels": view.segment.labels()},
        "capacity": format_bytes(figure.capacity),
    }
    return body if figure.maximum is None else body | {"maximumVolumeSize": format_bytes(figure.maximum)}
