"""All that a judgement of one driver on one node looks at, at one moment. `assembly` builds it, `judgement/assess` reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sidecar.drain.facts.node_marks import NodePolicy
from sidecar.drain.vocabulary import Policy
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Notes, Volume

CLAIM, CLASS, NAMESPACE = "claim", names.STORAGE_CLASS, "namespace"
"""Kinds of objects that have a say in policies and have to be asked for."""


def unread_key(kind: str, name: str) -> str:
    """How `Snapshot.unread` and the messages call such an object. A claim's name is the full one."""
    return f"{kind} {name}"


@dataclass(frozen=True, slots=True)
class InFlight:
    """A volume that is being created here, or is about to be."""

    claim_uid: str
    namespace: str
    name: str
    class_name: str
    size: int
    begun: bool = True
    """The driver may have something of it already. Otherwise it is only asked for, and could succeed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The rest of the cluster, for where volumes could move to. Read only when some volume is to move."""

    nodes: tuple[Node, ...] = ()
    """All nodes but this one."""
    capacities: tuple[CapacityRecord, ...] = ()
    """Of this driver, all nodes'."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One node, one driver. The order of its tuples means nothing: a judgement of a permuted snapshot is equal."""

    now: float
    """Wall clock, seconds since 1970."""
    driver: str
    node_name: str
    node: Node | None
    """None: there is no such Node."""
    volumes: tuple[Volume, ...] = ()
    """PersistentVolumes of this driver that are on this node, in whatever phase."""
    claims: Mapping[str, Claim] = field(default_factory=lambda: MappingProxyType({}))
    """By `namespace/name`: those the volumes are bound to, as far as they exist."""
    pods: tuple[Pod, ...] = ()
    """Of this node, ended ones included."""
    claimants: tuple[Pod, ...] = ()
    """Pods without a node, or of other nodes, that have not ended and name a claim of a volume that is here."""
    attached: frozenset[str] = frozenset()
    """Names of PersistentVolumes that are attached to this node."""
    lately_used: frozenset[str] = frozenset()
    """`namespace/name` of claims that a pod named a moment ago: a controller may be about to make that pod again."""
    lately_named: frozenset[str] = frozenset()
    """Those of `lately_used` of which it is certain: a process that has just begun takes claims for used that it knows nothing of."""
    lately_until: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By claim among `lately_used`: until when it counts as used, if no pod names it again."""
    shared_with: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By PersistentVolume among `volumes`: other nodes that reach it too, and stay."""
    renamed: frozenset[str] = frozenset()
    """Names of PersistentVolumes among `volumes` that name another node, though the driver lists them here."""
    hidden: frozenset[str] = frozenset()
    """Names of PersistentVolumes that are here, or were when an earlier process looked, and that no label and no maker places here: no
    other node can tell that they are."""
    foreign: tuple[Volume, ...] = ()
    """Volumes of other drivers that pods of this node mount. They are told and not judged."""
    contents: tuple[SnapshotContent, ...] = ()
    """Snapshots whose data is on this node."""
    unplaced_contents: tuple[SnapshotContent, ...] = ()
    """Snapshots of this driver whose data may be on this node: nothing says where it is."""
    unplaced: tuple[tuple[Volume, Claim | None], ...] = ()
    """PersistentVolumes of this driver that may be here, and of which nothing says where they are, each with its claim, as far as that is
    known."""
    classes: Mapping[str, Class] = field(default_factory=lambda: MappingProxyType({}))
    in_flight: tuple[InFlight, ...] = ()
    untracked: tuple[str, ...] = ()
    """Handles of volumes that the driver has here and that have no PersistentVolume."""
    untracked_unknown: str = ""
    """Why there may be more of them. This makes no verdict Unknown by itself: a driver need not be able to list its volumes."""
    not_listed: str = ""
    """Why the driver, which can list its volumes, has not said yet which it has here. Until it has, nobody knows whether it has some
    under the name of another node, and retiring is Unknown."""
    never_used: frozenset[str] = frozenset()
    """Names of volumes that no pod has ever used, as far as that is certain."""
    namespace_policies: Mapping[str, Notes] = field(default_factory=lambda: MappingProxyType({}))
    """By namespace: its annotations of our group; namespaces without any are left out."""
    unheeded_namespaces: frozenset[str] = frozenset()
    """Namespaces whose own word for Block, and that of their claims, is not heeded (`--drain-tenant-policies`)."""
    void_acknowledgements: frozenset[str] = frozenset()
    """Uids of objects that were used again after they had been acknowledged as dispensable, or may have been."""
    not_remembered: str = ""
    """Why acknowledgements of volumes here may not be believed, whatever they say; empty: they may, or there are none."""
    pods_seen: str = ""
    """The resourceVersion up to which it is known which pods of this node began to use which claims; empty: something is missing."""
    default_policy: Policy | None = None
    """What the driver's operator chose for all; None: AllowIdle for a reboot, Block for retiring."""
    budgets: tuple[Budget, ...] | None = None
    """None: not looked at."""
    surroundings: Surroundings | None = None
    """None: not looked at."""
    unread: frozenset[str] = frozenset()
    """What could not be read; objects that have a say in policies by their `unread_key`. All of it is in `ignorance` too."""
    ignorance: tuple[str, ...] = ()
    """What should be known and could not be read, in sentences: with any of this, neither verdict is True."""
    node_policy: NodePolicy | None = None
    """The policy of the flag, for nodes that have none of their own; None: not known."""
    untracked_blocks: bool = False
    put_back: frozenset[str] = frozenset()
    """Uids of pods that were put here after this sidecar had evicted another pod of their workload."""
    reprovisions: bool = False
    """The node's sidecar makes replicas anew whose policy is Reprovision. False also where that is not known."""
    skip_terminating_after: float = 300.0
    """Seconds. Pods of a node that does not answer count as gone when they should have ended so long ago."""
    terminating_too_long: float = 300.0
    """Seconds. A pod of a node that answers is overdue when it should have ended so long ago."""
