"""What the rules of emptying look at, and what they may decide: nouns alone."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from sidecar.drain.emptying.rivals import Rivals
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.budgets import BudgetFindings
from sidecar.drain.judgement.volumes import LocalItem
from sidecar.drain.vocabulary import Hindrance
from sidecar.eviction.rules import May
from sidecar.model.nodes import Pod
from sidecar.model.objects import Owner


@dataclass(frozen=True, slots=True)
class Looked:
    """What follows from a snapshot alone. With thousands of pods and budgets that takes a while."""

    users: Sequence[tuple[Pod, tuple[LocalItem, ...]]]
    findings: BudgetFindings


@dataclass(frozen=True, slots=True)
class EmptyingView:
    """All that the rule looks at. A workload is named as `workload_of` says."""

    snapshot: Snapshot
    peers: Mapping[str, tuple[Pod, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By namespace: all its pods, as the API server has them now. What is missing has not been asked for."""
    sizes: Mapping[str, int | None] = field(default_factory=lambda: MappingProxyType({}))
    """By workload: how many pods its controller wants now; None: there is no such object, or not of that uid."""
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a pod among `peers` that has no node: its resourceVersion."""
    unread: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By namespace or workload that could not be asked about in this look: why."""
    expected: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By workload that lost a pod by an eviction of this process: how many pods it had."""
    paused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a pod that is not to be tried for a while: what the API server said."""
    waiting_evicted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By workload: how many of its pods this process has evicted that waited for a node."""
    rivals: Rivals = field(default_factory=Rivals)
    """Other nodes that are emptied at the same time."""
    leaving: Set[str] = frozenset()
    """Uids of pods that were evicted, or may have been, and of which the snapshot need not show it yet."""
    unanswered: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By workload: the uid of its pod whose eviction was not answered and may still be carried out."""
    in_doubt: bool = False
    """An earlier process may have asked for an eviction that may still be carried out."""
    failures: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a pod: how often its eviction has failed otherwise than by a budget."""
    slow: Set[str] = frozenset()
    """Namespaces whose pods take so long to leave that they hold up no other namespace any more."""
    passed: Set[str] = frozenset()
    """Workloads that earlier looks have asked about in vain, while others were not asked about yet."""
    late: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By uid of a pod that came after the first look: how many of those of its namespace have been evicted, and itself."""
    looked: Looked | None = None
    """Where it was worked out before: a look decides again after each answer."""
    ours: Set[str] = frozenset()
    """Full names of this program's own pods."""
    reprovisions: bool = False
    """Replicas whose policy says it are made anew elsewhere, once nothing else keeps them here."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict this pod."""

    pod: May
    workload: str
    replicas: int
    """How many pods that has, this one among them."""
    here: frozenset[str]
    """The uids of those that are on this node."""
    volumes: tuple[str, ...]
    why: str
    passed: frozenset[str] = frozenset()
    """Workloads before it that had to wait."""
    waits: bool = False
    """It has no node, and waits for one with a volume that is here."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Read all pods of this namespace, then decide again."""

    namespace: str
    pod: str
    """Full name of the one whose turn it is."""
    why: str
    passed: frozenset[str] = frozenset()
    waits: bool = False
    """As of `Evict`."""
    again: bool = False
    """So it was asked for in an earlier look, in vain, and so was everybody before."""


@dataclass(frozen=True, slots=True)
class AskController:
    """Read the object that makes these pods, then decide again."""

    namespace: str
    owner: Owner
    pod: str
    why: str
    passed: frozenset[str] = frozenset()
    again: bool = False
    """As of `Ask`."""

    @property
    def workload(self) -> str:
        return f"{self.namespace}/{self.owner.uid}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Evict nobody now: this is why, and it may pass."""

    hindrance: Hindrance
    pod: str
    """`namespace/name`; empty: it is not about one pod."""
    why: str


@dataclass(frozen=True, slots=True)
class Finished:
    """No pod here is ours to evict."""

    why: str


Decision = Evict | Ask | AskController | Hold | Finished


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod of which nothing says yet that it has to stay."""

    pod: Pod
    may: May | None
    """None: it waits for a node, and whether it has one by now is to be asked."""
    held: tuple[LocalItem, ...]

    @property
    def waits(self) -> bool:
        return self.may is None

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.held)

    @property
    def workload(self) -> str:
        return workload_of(self.pod)


def workload_of(pod: Pod) -> str:
    """Pods with the same controller, which is in their namespace: a pod elsewhere that names the same uid is none of them."""
    return f"{pod.namespace}/{pod.owner.uid}" if pod.owner else ""
