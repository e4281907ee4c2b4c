"""What is known of one replica that is to be made anew, as the API server has just told it. `facts_io` reads it, `locks` judges it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sidecar.drain.reprovision.marks import Words, read
from sidecar.drain.reprovision.spread import Apart
from sidecar.drain.reprovision.workload import Workload
from sidecar.model import names
from sidecar.model.nodes import Budget, Pod
from sidecar.model.objects import Claim, Class, Notes, Volume


@dataclass(frozen=True, slots=True)
class FoundClaim:
    """A claim that the pod uses, with its volume."""

    claim: Claim
    finalizers: tuple[str, ...] = ()
    of_pod: bool = False
    """A pod owns it: it goes with that pod."""
    volume: Volume | None = None
    """None: it has none, or it is gone."""

    @property
    def words(self) -> Words:
        return read(self.claim.notes)

    @classmethod
    def of(cls, obj: Mapping[str, Any], volume: Volume | None) -> "FoundClaim":
        meta = obj["metadata"]
        owners = meta.get("ownerReferences") or ()
        return cls(Claim.of(obj), tuple(meta.get("finalizers") or ()), any(ref.get("kind") == names.POD for ref in owners), volume)


@dataclass(frozen=True, slots=True)
class Facts:
    """All of one moment, as nearly as several requests can be."""

    pods: tuple[Pod, ...] = ()
    """All of the namespace."""
    leaving: tuple[str, ...] = ()
    """Full names of pods of this node that are ending and have a volume of this driver."""
    workload: Workload | None = None
    """The StatefulSet of this name; None: there is none."""
    claims: Mapping[str, FoundClaim] = field(default_factory=lambda: MappingProxyType({}))
    """By name: those that are made anew, and all others of the pod."""
    classes: Mapping[str, Class] = field(default_factory=lambda: MappingProxyType({}))
    """Of these claims, and those that the templates of the workload name."""
    default_class: str = ""
    """For a template that names none; empty: there is none, or none is needed."""
    namespace: Notes = ()
    namespace_ends: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Of the namespace."""
    beyond: Mapping[Apart, tuple[Pod, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Pods of other namespaces that the workload's anti-affinity concerns."""
    budgets: tuple[Budget, ...] = ()
    """Of the namespace, as long as the pod is there; later nobody asks them."""
    emptied: frozenset[str] = frozenset()
    """Names of other nodes that are being emptied, as long as the pod is there."""

    def pod(self, name: str) -> Pod | None:
        return next((pod for pod in self.pods if pod.name == name), None)


def keeping(pod: Pod) -> Sequence[str]:
    """Names of its claims that may keep it where it is. What goes with a pod keeps none that is evicted, but one that waits for a node."""
    return [name for name in pod.claims if not pod.node or name not in pod.ephemeral]


def ends(namespace: Mapping[str, Any]) -> bool:
    """It is being deleted."""
    return "deletionTimestamp" in namespace["metadata"] or (namespace.get("status") or {}).get("phase") == "Terminating"


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return MappingProxyType(dict(obj["metadata"].get("labels") or {}))
