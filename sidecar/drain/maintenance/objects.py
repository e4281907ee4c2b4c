"""What people declare: PlannedMaintenances, and the DrainRules that teams ship with their applications. Read with distrust, and bounded."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Final

from sidecar.drain.words import Intent, quoted
from sidecar.model import timestamps
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json
from sidecar.model.topology import Requirement

CAPI_LABEL: Final = "cluster.x-k8s.io/drain"  # Cluster API's label on a pod, which beats rules
MOST_PRIORITY: Final = 2**31 - 1
MOST: Final = 20  # maintenances of one node that are carried out at a time, the oldest ones first
_MOST_ENTRIES: Final = 50
_DURATION: Final = re.compile(r"(?:(\d{1,5})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?")


class Stage(StrEnum):
    """How far somebody wants a maintenance to go. It only goes forward."""

    IDLE = "Idle"
    CORDON = "Cordon"
    DRAIN = "Drain"
    COMPLETE = "Complete"

    @property
    def cordons(self) -> bool:
        return self in (Stage.CORDON, Stage.DRAIN)


class PodType(IntEnum):
    """In the order in which they are drained."""

    Default = 0
    DaemonSet = 1
    Static = 2


class Behavior(StrEnum):
    DRAIN = "Drain"
    SKIP = "Skip"  # never evicted, and nothing waits for it
    WAIT_COMPLETED = "WaitCompleted"  # never evicted, and its entry waits until it has ended


@dataclass(frozen=True, slots=True)
class Selector:
    """A LabelSelector. One that is empty selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(item.holds(labels) for item in self.requirements)

    @classmethod
    def of(cls, obj: object) -> "Selector":
        said = obj if isinstance(obj, Mapping) else {}
        equal = [Requirement(str(key), "In", (str(value),)) for key, value in (said.get("matchLabels") or {}).items()]
        terms = [
            Requirement(str(item.get("key")), str(item.get("operator")), tuple(map(str, item.get("values") or ())))
            for item in said.get("matchExpressions") or ()
        ]
        return cls((*equal, *terms))


Key = tuple[int, int, int]  # of an entry among those of all plans: its type, its priority, and 1 if it selects no pods by their labels


@dataclass(frozen=True, slots=True)
class Entry:
    """Pods that are drained together: of this type, with at most this priority, and selected."""

    type: PodType = PodType.Default
    priority: int = MOST_PRIORITY
    pods: Selector | None = None
    namespaces: Selector | None = None

    @property
    def key(self) -> Key:
        return (self.type, self.priority, int(self.pods is None and self.namespaces is None))

    def __str__(self) -> str:
        chosen = ", selected" if not self.key[2] else ""
        return f"{self.type.name} pods up to priority {self.priority}{chosen}"

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Entry":
        pods, namespaces = obj.get("podSelector"), obj.get("namespaceSelector")
        priority = obj.get("maxPriority")
        return cls(
            PodType[str(obj.get("podType") or PodType.Default.name)],
            MOST_PRIORITY if priority is None else int(priority),
            None if pods is None else Selector.of(pods),
            None if namespaces is None else Selector.of(namespaces),
        )


STANDARD: Final = tuple(Entry(priority=priority) for priority in (1_000_000_000, 2_000_000_000, 2_000_001_000, MOST_PRIORITY))
"""Pods of users first, then those that are critical for the cluster and for their node, then all others. DaemonSets' and static pods are
drained only by an entry that names them."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    name: str
    uid: str
    stage: Stage
    intent: Intent
    nodes: frozenset[str]  # by name; empty: by `labels`
    labels: Selector
    plan: tuple[Entry, ...]  # in the order in which it is carried out: what was written, and the standard entries
    deadline: float | None = None  # seconds from the beginning of the drain of a node
    overrides: bool = False  # at the deadline what blocks is overridden, not only reported
    planned_for: str = ""
    reason: str = ""
    created: str = ""
    status: Mapping[str, Any] | None = None
    version: str = ""

    def selects(self, node: str, labels: Mapping[str, str]) -> bool:
        return node in self.nodes if self.nodes else bool(self.labels.requirements) and self.labels.selects(labels)

    @classmethod
    def of(cls, obj: Json) -> "Maintenance | None":
        """None: nothing in it could be carried out. One that is being deleted counts as complete."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        try:
            written = [Entry.of(item) for item in (spec.get("drainPlan") or ())[:_MOST_ENTRIES]]
            deadline = spec.get("deadline")
            return cls(
                name=meta["name"],
                uid=meta["uid"],
                stage=Stage.COMPLETE if meta.get("deletionTimestamp") else Stage(spec.get("stage") or Stage.IDLE),
                intent=Intent(spec.get("intent") or Intent.RETIRE),
                nodes=frozenset(str(item) for item in spec.get("nodes") or ()),
                labels=Selector.of(spec.get("nodeSelector")),
                plan=effective(written),
                deadline=_seconds(str(deadline)) if deadline is not None else None,
                overrides=spec.get("onDeadline") == "Override",
                planned_for=str(spec.get("plannedFor") or ""),
                reason=str(spec.get("reason") or ""),
                created=str(meta.get("creationTimestamp") or ""),
                status=obj.get("status"),
                version=str(meta.get("resourceVersion") or ""),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def announcement(self) -> str:
        at = f", planned for {self.planned_for}" if timestamps.to_seconds(self.planned_for) is not None else ""
        return f"PlannedMaintenance {self.name}: {self.intent}{at}" + (f" ({quoted(self.reason)})" if self.reason else "")


def _seconds(text: str) -> float:
    """As `1h30m`; the type refuses anything else."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ValueError(text)
    return float(sum(int(number or 0) * unit for number, unit in zip(found.groups(), (3600, 60, 1), strict=True)))


def effective(written: Iterable[Entry]) -> tuple[Entry, ...]:
    """By type, then by priority, and of one priority those that select pods first."""
    return tuple(sorted({*written, *STANDARD}, key=lambda entry: (entry.key, str(entry.pods), str(entry.namespaces))))


@dataclass(frozen=True, slots=True)
class Rule:
    """A DrainRule: how a team wants pods of its own namespace to be drained."""

    namespace: str
    name: str
    pods: Selector
    behavior: Behavior = Behavior.DRAIN
    order: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, obj: Json) -> "Rule | None":
        meta, spec = obj["metadata"], obj.get("spec") or {}
        try:
            behavior = Behavior(spec.get("behavior") or Behavior.DRAIN)
            return cls(meta["namespace"], meta["name"], Selector.of(spec.get("podSelector")), behavior, int(spec.get("order") or 0))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Runner:
    """A pod of this node, with what decides when it is drained."""

    pod: Pod
    priority: int
    vm: str = ""  # full name of the VirtualMachineInstance that it runs; empty: none

    @property
    def type(self) -> PodType:
        return PodType.Static if self.pod.static else PodType.DaemonSet if self.pod.of_daemon_set else PodType.Default

    @classmethod
    def of(cls, obj: Json) -> "Runner":
        pod, owner = Pod.of(obj), Pod.of(obj).owner
        is_vm = owner is not None and owner.kind == "VirtualMachineInstance" and owner.api_version.startswith("kubevirt.io/")
        priority = (obj.get("spec") or {}).get("priority")
        return cls(pod, priority if isinstance(priority, int) else 0, f"{pod.namespace}/{owner.name}" if owner and is_vm else "")


def labels_of(namespace: Json) -> tuple[str, Mapping[str, str]]:
    return namespace["metadata"]["name"], namespace["metadata"].get("labels") or {}
