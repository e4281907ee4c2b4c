"""All that a judgement about one node looks at, at one moment. Whoever made it, a running sidecar or `explain`, it is judged the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sidecar.drain.signals import NodePolicy
from sidecar.drain.words import Policy, Reason
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Volume


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InFlight:
    """A volume that is being created here, or is about to be."""

    claim_uid: str
    namespace: str
    name: str
    class_name: str
    size: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The rest of the cluster, for where volumes could go. Looked at only when somebody wants to know."""

    nodes: tuple[Node, ...] = ()
    """All nodes but this one."""
    capacities: tuple[CapacityRecord, ...] = ()
    """Of this driver, all nodes'."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One node, one driver. The order of what is in it means nothing: a judgement of a permuted snapshot is equal."""

    now: float
    """Wall clock, seconds since 1970."""
    driver: str
    node_name: str
    node: Node | None
    """None: there is no such Node."""
    expected_uid: str = ""
    """The uid of the node this process belongs to; empty for who asks from outside."""
    volumes: tuple[Volume, ...] = ()
    """PersistentVolumes of this driver that lie on this node, of whatever phase."""
    claims: Mapping[str, Claim] = field(default_factory=lambda: MappingProxyType({}))
    """By `namespace/name`: those the volumes are bound to, as far as they exist."""
    pods: tuple[Pod, ...] = ()
    """Of this node, ended ones included."""
    contents: tuple[SnapshotContent, ...] = ()
    """Whose data lies on this node."""
    classes: Mapping[str, Class] = field(default_factory=lambda: MappingProxyType({}))
    in_flight: tuple[InFlight, ...] = ()
    untracked: tuple[str, ...] = ()
    """Handles of volumes that the driver has here and nobody else knows of."""
    untracked_unknown: str = ""
    """Why there may be others. It makes no verdict Unknown: a driver need not list its volumes."""
    never_used: frozenset[str] = frozenset()
    """Names of volumes of which it is known that no pod has ever used them."""
    namespace_policies: Mapping[str, str] = field(default_factory=_nothing)
    """The words of the annotation, by namespace."""
    default_policy: Policy | None = None
    """What the driver's operator chose for all; None: AllowIdle for a reboot, Block for retiring."""
    budgets: tuple[Budget, ...] | None = None
    """None: not looked at."""
    surroundings: Surroundings | None = None
    """None: not looked at."""
    ready_peers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a StatefulSet: how many of its pods are ready on other nodes."""
    unread: frozenset[str] = frozenset()
    """What could not be read; a source of policies is called as `policy.called` has it. All of it is among the ignorance too."""
    ignorance: tuple[str, ...] = ()
    """What should be known and could not be read: with any of this, neither verdict is True."""
    since: Mapping[tuple[str, Reason], float] = field(default_factory=lambda: MappingProxyType({}))
    """By what blocks (`Blocker.key`) and reason: since when, as far as was noted before."""
    node_policy: NodePolicy | None = None
    """What the flag says for nodes that say nothing themselves; None: not known."""
    untracked_blocks: bool = False
    skip_terminating_after: float = 300.0
    """Pods of a node that does not answer, asked to end longer ago than this, count as gone."""
    terminating_too_long: float = 300.0
    """A pod of a node that answers is overdue when it should have ended so many seconds ago."""
