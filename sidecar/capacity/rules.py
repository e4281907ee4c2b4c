"""What to write about one class next: one look, one decision. Applied again and again it ends in exactly one right object."""

from dataclasses import dataclass, replace

from sidecar.capacity.view import CapacityView, Publisher
from sidecar.csi.api import CapacityAnswer, CapacityQuery
from sidecar.csi.outcome import Unmeasured
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, CapacityRecord, Class, Json, Owner
from sidecar.model.quantity import format_bytes


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to write. Look again at that time (None: when something changes)."""

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
    """The driver did not answer: what is published stays, and it is asked again with back-off."""

    why: str


Decision = Rest | Measure | Publish | Update | Withdraw | Retry


def decide(view: CapacityView) -> Decision:
    """The next step towards exactly one right object for an eligible class, and none for any other."""
    if excluded := _excluded(view):
        return Withdraw(view.records[0], excluded) if view.records else Rest(None, excluded)
    right, wrong = _sort(view)
    if wrong:
        return Withdraw(wrong[0], "a duplicate, or for a segment that is not this node's")
    match view.answer:
        case None if right is None and view.now < view.settling_until:
            return Rest(view.settling_until, "the object was created a moment ago and the watch has not shown it yet")
        case None:
            return Measure(_query(view), "the published figure may be old")
        case Unmeasured(why):
            return Retry(why)
        case CapacityAnswer() as answer:
            return _compare(view, right, answer)


def eligible(class_: Class | None, *, for_immediate: bool) -> bool:
    """Classes the scheduler asks about: late binding ones, and with the flag Immediate ones too. No mode counts as late."""
    return class_ is not None and (for_immediate or class_.binding_mode != IMMEDIATE)


def is_managed(record: CapacityRecord, publisher: Publisher) -> bool:
    """Whether the object carries this program's labels for this driver and node."""
    labels = record.labels
    return (labels.get(names.CAPACITY_DRIVER_LABEL), labels.get(names.CAPACITY_MANAGER_LABEL)) == (publisher.driver, publisher.manager)


def selector(publisher: Publisher) -> str:
    """The label selector that finds them."""
    return f"{names.CAPACITY_DRIVER_LABEL}={publisher.driver},{names.CAPACITY_MANAGER_LABEL}={publisher.manager}"


def _excluded(view: CapacityView) -> str:
    if view.class_ is None:
        return f"StorageClass {view.class_name!r} does not exist for this driver"
    if not eligible(view.class_, for_immediate=view.publisher.for_immediate):
        return f"StorageClass {view.class_name!r} binds immediately, and --capacity-for-immediate-binding is off"
    return ""


def _sort(view: CapacityView) -> tuple[CapacityRecord | None, list[CapacityRecord]]:
    """The one object to keep, the oldest name first, and the ones that must go."""
    wanted = view.publisher.segment.labels()
    ordered = sorted(view.records, key=lambda record: (record.node_topology != wanted, record.name))
    keep = ordered[0] if ordered and ordered[0].node_topology == wanted else None
    return keep, [record for record in ordered if record is not keep]


def _query(view: CapacityView) -> CapacityQuery:
    """Parameters as the driver gets them at creation; upstream sends the reserved ones here too, which no driver can know."""
    given = view.class_.parameters if view.class_ else {}
    own = {key: value for key, value in given.items() if not key.startswith(names.RESERVED_PARAMETER_PREFIX)}
    return CapacityQuery(own, view.publisher.segment if view.publisher.with_topology else None)


def _compare(view: CapacityView, right: CapacityRecord | None, answer: CapacityAnswer) -> Decision:
    body = _body(view, right, answer)
    if right is None:
        return Publish(body, f"{answer.available} bytes free, nothing is published")
    if (right.capacity, right.maximum) != (max(answer.available, 0), answer.maximum):
        return Update(right, body, f"{answer.available} bytes free, {right.capacity} are published")
    if view.publisher.owner is not None and view.publisher.owner.uid not in {owner.uid for owner in right.owners}:
        return Update(right, body, f"the owner {view.publisher.owner.kind} {view.publisher.owner.name} is missing")
    return Rest(view.now + view.publisher.poll_interval, f"{answer.available} bytes free, as published")


def _owners(ours: Owner | None, others: tuple[Owner, ...]) -> list[Owner]:
    """The server takes one controlling owner: with another level than before, the one of then becomes an ordinary one."""
    if ours is None:
        return list(others)
    return [*(replace(owner, controller=False) for owner in others if owner.uid != ours.uid), ours]


def _body(view: CapacityView, right: CapacityRecord | None, answer: CapacityAnswer) -> Json:
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
    body: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": meta,
        "storageClassName": view.class_name,
        "nodeTopology": {"matchLabels": publisher.segment.labels()},
        "capacity": format_bytes(max(answer.available, 0)),
    }
    return body if answer.maximum is None else body | {"maximumVolumeSize": format_bytes(max(answer.maximum, 0))}
