"""Lists what this room watches, and which class each change has looked at again."""

from collections.abc import Callable
from typing import Protocol

from sidecar.capacity import rules
from sidecar.capacity.view import Publisher
from sidecar.kube.api import CAPACITIES, CLASSES, Change
from sidecar.kube.store import Store
from sidecar.local.watch import Watch
from sidecar.model.objects import CapacityRecord, Class, Json


class Renew(Protocol):
    """Has classes looked at: now, or a second later, together with whatever changes until then."""

    def __call__(self, classes: frozenset[str], *, at_once: bool = True) -> None: ...


def records() -> Store[CapacityRecord]:
    """An empty store for this node's objects, indexed by class."""
    return Store({"class": lambda record: (record.class_name,)})


def watch_classes(classes: Store[Class], renew: Renew) -> Watch[Class]:
    """A class that is new, changed or gone changes what has to be published. Provisioning keeps the records."""
    return Watch(resource=CLASSES, store=classes, wakes=lambda change: renew(frozenset({change.key})), required=True)


def watch_records(
    publisher: Publisher, store: Store[CapacityRecord], *, namespace: str, appeared: Callable[[str], None], renew: Renew
) -> Watch[CapacityRecord]:
    """This node's own objects: the selector spares it those of all other nodes."""

    def project(obj: Json) -> CapacityRecord | None:
        record = CapacityRecord.of(obj)
        return record if rules.is_managed(record, publisher) else None

    def wakes(change: Change[CapacityRecord]) -> None:
        if change.new is not None:
            appeared(change.new.class_name)
        for record in (change.old, change.new):
            if record is not None:
                # Usually our own write coming back, which needs nothing more. A second's delay lets it melt with other reasons.
                renew(frozenset({record.class_name}), at_once=False)

    selector = rules.selector(publisher)
    return Watch(resource=CAPACITIES, store=store, project=project, wakes=wakes, namespace=namespace, label_selector=selector)
