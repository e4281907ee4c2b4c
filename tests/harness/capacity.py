"""Capacity objects as they stand in the cluster."""

from dataclasses import replace
from typing import Any

from sidecar.capacity.view import Publisher
from sidecar.model.objects import CapacityRecord, Owner
from sidecar.model.topology import Segment
from tests.harness import samples

SEGMENT = Segment.of({samples.KEY: "foo"})
POD = Owner("v1", "Pod", "pod-1", "pod-uid", controller=True)
PUBLISHER = Publisher(
    driver=samples.DRIVER,
    manager="external-provisioner-foo",
    owner=POD,
    for_immediate=False,
    poll_interval=60.0,
)
LABELS = {"csi.storage.k8s.io/drivername": samples.DRIVER, "csi.storage.k8s.io/managed-by": "external-provisioner-foo"}


def record(name: str = "csisc-1", *, capacity: int | None = 2**30, maximum: int | None = None, **changes: Any) -> CapacityRecord:
    base = CapacityRecord("ns", name, f"uid-{name}", "5", LABELS, (POD,), "fake-class", SEGMENT.labels(), capacity, maximum)
    return replace(base, **changes)
