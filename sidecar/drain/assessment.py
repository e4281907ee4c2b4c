"""What a judgement says. The report, the conditions, events, metrics and `explain` are renderings of this and say nothing of their own."""

from dataclasses import dataclass

from sidecar.drain.words import End, Intent, Policy, Reason, Status, VolumeClass


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of the two answers."""

    status: Status
    reason: Reason
    message: str
    """One line for people: what blocks most, and how much else does."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that keeps a verdict from being True."""

    kind: str
    """Of the object: PersistentVolumeClaim, PersistentVolume, Pod, VolumeSnapshotContent, or Volume for what only the driver knows."""
    namespace: str
    name: str
    uid: str
    volume: str
    """The PersistentVolume's name, or the handle of what has none; empty where it is about a pod alone."""
    bytes: int
    class_: VolumeClass | None
    reason: Reason
    policy: Policy | None
    policy_source: str
    """Where it was found: `PersistentVolume`, `PersistentVolumeClaim`, `StorageClass NAME`, `Namespace NAME`, `driver`, `default`."""
    blocks: tuple[Intent, ...]
    """Which of the two it blocks."""
    since: float
    message: str
    """What is special about this one; the general meaning and the remedy are the reason's."""
    remedy: str

    @property
    def key(self) -> str:
        """The same from one judgement to the next."""
        return f"{self.kind}/{self.uid or f'{self.namespace}/{self.name}'}"


@dataclass(frozen=True, slots=True)
class HeldVolume:
    """One volume of this node and what it was found to be."""

    name: str
    """Of the PersistentVolume; of what has none, the claim, the snapshot or the handle."""
    claim: str
    """`namespace/name`, or empty."""
    class_: VolumeClass
    bytes: int
    policy: Policy | None
    policy_source: str
    pods: tuple[str, ...]
    """`namespace/name` of those that use it."""


@dataclass(frozen=True, slots=True)
class PodEnd:
    """What becomes of a pod, if the node is rebooted and if it is retired."""

    namespace: str
    name: str
    uid: str
    reboot: End
    retire: End
    volumes: tuple[str, ...]
    """Of ours, by name."""
    budgets: tuple[str, ...]
    """`namespace/name` of those that select it."""
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where the volumes of one pod, or an idle one, could go together."""

    volumes: tuple[str, ...]
    node: str
    """Empty: nowhere."""
    shortfall: int
    """Bytes missing on the node that comes closest; 0 where it fits, or where no node comes into question."""
    excluded: tuple[tuple[str, str], ...]
    """(node, why it does not come into question), or (volume, why it keeps these here); at most ten of them, when it fits nowhere."""


@dataclass(frozen=True, slots=True)
class BudgetFall:
    """A budget that would allow nothing more while this node is away: draining another node would wait."""

    budget: str
    """`namespace/name`."""
    allowed_now: int
    stranded: int
    """How many of its pods this node would take with it."""
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assessment:
    """The judgement on one node by one driver's sidecar."""

    node: str
    node_uid: str
    driver: str
    at: float
    drain: Verdict
    retire: Verdict
    blockers: tuple[Blocker, ...]
    """Those of reboots first, then by bytes, the greatest first; then by key. What only informs is not among them."""
    volumes: tuple[HeldVolume, ...]
    pods: tuple[PodEnd, ...]
    places: tuple[Place, ...]
    budgets: tuple[BudgetFall, ...]
    notes: tuple[str, ...]
    """What is worth knowing and blocks nothing: volumes of other drivers, ignored ones, what was not looked at."""
    complete: bool = True
    """Nothing that should be known was left unread: what is not among the blockers does not block."""

    def verdict(self, intent: Intent) -> Verdict:
        return self.drain if intent is Intent.REBOOT else self.retire
