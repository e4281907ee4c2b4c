"""Slim records of what is scheduled where: nodes, pods, disruption budgets, snapshots. Projected from plain JSON at once, as in `objects`.

Only drain decisions read them, and only a sidecar that makes such decisions keeps any.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sidecar.model import names
from sidecar.model.objects import Notes, Owner, controller_of, notes_of
from sidecar.model.topology import Requirement, Term, terms_of

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """As the scheduler reads it: an empty key with Exists covers all keys, an empty effect all effects."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.operator in ("", "Equal") and self.value == taint.value


@dataclass(frozen=True, slots=True)
class Node:
    """A Node, with the annotations of our own group and the few that other programs set when they drain."""

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: str
    """True, False or Unknown; Unknown also if there is no such condition."""
    ready_since: str
    deleting: bool
    annotations: Mapping[str, str]
    version: int = field(default=0, compare=False)
    """The later of two states of one Node has the larger one; 0 if the server's version is not a number."""
    created: str = ""

    @property
    def cordoned(self) -> bool:
        return self.unschedulable or any(taint.key == names.CORDON_TAINT for taint in self.taints)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Node":
        meta, spec = obj["metadata"], obj.get("spec") or {}
        conditions = {item.get("type"): item for item in (obj.get("status") or {}).get("conditions") or ()}
        ready = conditions.get("Ready") or {}
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            labels=MappingProxyType(dict(meta.get("labels") or {})),
            taints=tuple(Taint(item.get("key", ""), item.get("value") or "", item.get("effect", "")) for item in spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            ready=ready.get("status") or UNKNOWN,
            ready_since=ready.get("lastTransitionTime") or "",
            deleting="deletionTimestamp" in meta,
            annotations=MappingProxyType(
                {key: str(value) for key, value in (meta.get("annotations") or {}).items() if _concerns_drains(key)}
            ),
            version=int(version) if (version := str(meta.get("resourceVersion", ""))).isdecimal() else 0,
            created=meta.get("creationTimestamp") or "",
        )


def _concerns_drains(key: str) -> bool:
    domain = key.partition("/")[0]
    return (
        domain == names.GROUP
        or domain.endswith(f".{names.GROUP}")
        or key in (names.SCALE_DOWN_DISABLED, names.DO_NOT_DISRUPT, names.KURED_REBOOTS)
    )


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, with what decides where it can run and which volumes it uses."""

    uid: str
    namespace: str
    name: str
    node: str
    phase: str
    deleting_since: str
    """Its deletion timestamp, which is the end of its grace period: when it was asked to end is not stored."""
    ready: bool
    labels: Mapping[str, str]
    owner: Owner | None
    claims: tuple[str, ...]
    """Names of the claims it mounts, including those of generic ephemeral volumes."""
    inline: tuple[str, ...]
    """Drivers of its CSI inline volumes."""
    local: tuple[str, ...]
    """Kinds of its volumes that lie on the node without a driver: emptyDir, hostPath."""
    tolerations: tuple[Toleration, ...]
    node_selector: Mapping[str, str]
    affinity: tuple[Term, ...] | None
    """Required node affinity; None if there is none. A term with node fields, as a DaemonSet's pods have, matches no labels."""
    static: bool
    ephemeral: tuple[str, ...] = ()
    """Names of the claims, among `claims`, that are made for its generic ephemeral volumes."""
    ready_since: str = ""
    """When it became Ready; empty: it is not, or nobody has written since when."""
    conditions: frozenset[str] = frozenset()
    """Types of those that are True."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def claim_names(self) -> tuple[str, ...]:
        """The full names of `claims`."""
        return tuple(f"{self.namespace}/{claim}" for claim in self.claims)

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def of_daemon_set(self) -> bool:
        """Of Kubernetes' own DaemonSet: other groups have kinds of that name, whose pods are evicted by whoever drains a node."""
        return self.owner is not None and self.owner.kind == names.DAEMON_SET and self.owner.api_version.startswith(f"{names.APPS_GROUP}/")

    @property
    def stays(self) -> bool:
        """No drain evicts it: kubectl and autoscalers leave static pods and those of DaemonSets where they are."""
        return self.static or self.of_daemon_set

    def tolerates(self, taints: Iterable[Taint]) -> bool:
        """No taint among these keeps it out."""
        keeping_out = (taint for taint in taints if taint.effect in (names.NO_SCHEDULE, names.NO_EXECUTE))
        return all(any(toleration.covers(taint) for toleration in self.tolerations) for taint in keeping_out)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Pod":
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        volumes = spec.get("volumes") or ()
        required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        are_true = {item.get("type"): item for item in status.get("conditions") or () if item.get("status") == TRUE}
        return cls(
            uid=meta.get("uid", ""),
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            node=spec.get("nodeName") or "",
            phase=status.get("phase") or "",
            deleting_since=meta.get("deletionTimestamp") or "",
            ready="Ready" in are_true,
            ready_since=str(are_true.get("Ready", {}).get("lastTransitionTime") or ""),
            conditions=frozenset(str(name) for name in are_true),
            labels=MappingProxyType(dict(meta.get("labels") or {})),
            owner=controller_of(meta),
            claims=tuple(filter(None, (_claim_of(meta["name"], volume) for volume in volumes))),
            ephemeral=tuple(_claim_of(meta["name"], volume) for volume in volumes if volume.get("ephemeral") is not None),
            inline=tuple(volume["csi"].get("driver", "") for volume in volumes if volume.get("csi")),
            local=tuple(kind for volume in volumes for kind in ("emptyDir", "hostPath") if volume.get(kind) is not None),
            tolerations=tuple(
                Toleration(item.get("key") or "", item.get("operator") or "", item.get("value") or "", item.get("effect") or "")
                for item in spec.get("tolerations") or ()
            ),
            node_selector=MappingProxyType(dict(spec.get("nodeSelector") or {})),
            affinity=None if required is None else terms_of(required),
            static=names.MIRROR_POD in (meta.get("annotations") or {}),
        )


def _claim_of(pod: str, volume: Mapping[str, Any]) -> str:
    if volume.get("persistentVolumeClaim"):
        return str(volume["persistentVolumeClaim"].get("claimName") or "")
    return f"{pod}-{volume['name']}" if volume.get("ephemeral") is not None else ""


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    expressions: tuple[Requirement, ...]
    selects: bool
    """False if it has no selector at all; then it selects nothing."""
    allowed: int
    """How many more of its pods may be disrupted now, as the server has counted."""
    observed: bool
    """Whether the server has counted since the last change; before that, what it allows is not known."""
    frees_unready: bool
    """Pods that are not ready may be evicted whatever it allows, and do not count against it."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    def covers(self, pod: Pod) -> bool:
        if not self.selects or pod.namespace != self.namespace:
            return False
        fits = all(pod.labels.get(key) == value for key, value in self.labels.items())
        return fits and all(requirement.holds(pod.labels) for requirement in self.expressions)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Budget":
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        selector = spec.get("selector")
        return cls(
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            labels=MappingProxyType(dict((selector or {}).get("matchLabels") or {})),
            expressions=tuple(
                Requirement(item.get("key", ""), item.get("operator", ""), tuple(item.get("values") or ()))
                for item in (selector or {}).get("matchExpressions") or ()
            ),
            selects=selector is not None,
            allowed=_whole(status.get("disruptionsAllowed")),
            observed=_whole(status.get("observedGeneration")) >= meta.get("generation", 0),
            frees_unready=_frees_unready(spec, status),
        )


def _frees_unready(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    match spec.get("unhealthyPodEvictionPolicy"):
        case "AlwaysAllow":
            return True
        case None | "" | "IfHealthyBudget":
            return 0 < _whole(status.get("desiredHealthy")) <= _whole(status.get("currentHealthy"))
        case _:  # the API asks clients to treat a policy that they do not know as one that frees no pod
            return False


def _whole(value: object) -> int:
    """Anything else counts as 0, the strictest: if this raised, the whole budget would be overlooked."""
    return value if isinstance(value, int) else 0


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """A VolumeSnapshotContent. Its data lies on the node where its source lies."""

    name: str
    uid: str
    driver: str
    source_handle: str
    managed_by: str
    """The node whose snapshotter manages it, if there is one snapshotter for each node."""
    size: int
    notes: Notes = ()

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "SnapshotContent":
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            driver=spec.get("driver", ""),
            source_handle=(spec.get("source") or {}).get("volumeHandle") or "",
            managed_by=(meta.get("labels") or {}).get(names.CONTENT_MANAGED_BY, ""),
            size=int(status.get("restoreSize") or 0),
            notes=notes_of(meta.get("annotations")),
        )
