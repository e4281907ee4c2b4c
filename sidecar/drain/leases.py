"""Leases, as drain decisions use them: a slot of those that are evacuated at a time, or the sign of life of a node that has a gate.

What one stands for, and who may take it, is told where it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain import instants
from sidecar.model.objects import Json, Owner

# Longer than nodes' clocks differ, with room for a few renewals that fail. A node that is deleted takes its leases along at once.
DURATION: Final = 900
RENEWED_EVERY: Final = DURATION / 3


@dataclass(frozen=True, slots=True)
class Lease:
    """One as it is stored."""

    name: str
    uid: str
    resource_version: str
    holder: str
    node: str
    """Whose owner reference it bears."""
    node_uid: str
    renewed: float
    """By the wall clock of whoever renewed it."""
    duration: float

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Lease":
        meta, spec = obj["metadata"], obj.get("spec") or {}
        owner: Mapping[str, str] = next((ref for ref in meta.get("ownerReferences") or () if ref.get("kind") == "Node"), {})
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion", ""),
            holder=spec.get("holderIdentity") or "",
            node=owner.get("name", ""),
            node_uid=owner.get("uid", ""),
            renewed=instants.to_seconds(spec.get("renewTime") or "") or 0.0,
            duration=float(spec.get("leaseDurationSeconds") or DURATION),
        )

    def is_fresh(self, now: float) -> bool:
        """Whether its holder may leave it as it is. A renewal from the future was made by a clock that has been set back since."""
        return self.renewed <= now < self.renewed + RENEWED_EVERY


def identity(node_uid: str, driver: str) -> str:
    """Who holds one: another machine under a node's name is another holder."""
    return f"{node_uid}/{driver}"


def body(
    name: str, *, namespace: str, labels: Mapping[str, str], node: str, node_uid: str, holder: str, now: float, resource_version: str = ""
) -> Json:
    """It goes with the node it is about. With a `resource_version` it replaces that one and no other."""
    meta: Json = {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "ownerReferences": [Owner("v1", "Node", node, node_uid).as_json()],
    }
    guard = {"resourceVersion": resource_version} if resource_version else {}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": DURATION, "renewTime": instants.to_micro_text(now)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta | guard, "spec": spec}
