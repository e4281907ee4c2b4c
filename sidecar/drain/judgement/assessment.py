"""The result of a judgement. Report, conditions, events, metrics and `explain` show it and add no judgement of their own."""

from dataclasses import dataclass

from sidecar.drain.judgement.acknowledged import Acknowledged
from sidecar.drain.vocabulary import NOT_AVAILABLE_YET, Fate, Intent, Policy, Reason, Status, VolumeClass


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of the two answers: may the node be drained, may it be retired."""

    status: Status
    reason: Reason
    message: str
    """One line for people: the first blocker, and how many more there are."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that keeps a verdict from being True."""

    kind: str
    """Kind of the object: PersistentVolumeClaim, PersistentVolume, Pod, VolumeSnapshotContent, or Volume if only the driver knows it."""
    namespace: str
    name: str
    uid: str
    volume: str
    """Name of the PersistentVolume, or the handle if it has none; empty for a volume that is being created."""
    bytes: int
    class_: VolumeClass | None
    reason: Reason
    policy: Policy | None
    policy_source: str
    """Where the policy stands: `PersistentVolume`, `PersistentVolumeClaim`, `StorageClass NAME`, `Namespace NAME`, `driver`, `default`."""
    blocks: tuple[Intent, ...]
    """Which of the two verdicts it blocks."""
    message: str
    """What is special about this one; the reason explains the rest."""
    remedy: str

    @property
    def key(self) -> str:
        """Identifies the blocker from one judgement to the next. Names are used again, uids are not."""
        return f"{self.kind}/{self.uid or f'{self.namespace}/{self.name}'}"


@dataclass(frozen=True, slots=True)
class HeldVolume:
    """One volume of this node, as the report lists it."""

    name: str
    """Name of the PersistentVolume; without one, of the claim, the snapshot content or the handle."""
    claim: str
    """`namespace/name`, or empty."""
    class_: VolumeClass
    bytes: int
    policy: Policy | None
    """None if it depends on the intent, or if there is none."""
    policy_source: str
    pods: tuple[str, ...]
    """`namespace/name` of the pods that use it, or wait for it."""
    by_intent: tuple[tuple[Intent, Policy, str], ...] = ()
    """(intent, policy, where it stands), where the policy depends on the intent."""


@dataclass(frozen=True, slots=True)
class PodFate:
    """What becomes of a pod if the node is rebooted, and if it is retired."""

    namespace: str
    name: str
    uid: str
    reboot: Fate
    retire: Fate
    volumes: tuple[str, ...]
    """Names of the volumes of this driver that it uses."""
    budgets: tuple[str, ...]
    """`namespace/name` of the budgets that select it."""
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where the volumes of one pod, or an idle volume, could move to together."""

    volumes: tuple[str, ...]
    node: str
    """Empty: no node fits."""
    shortfall: int
    """Bytes missing on the node that comes closest, for these and all like them that fit nowhere; 0 if they fit, or if no node comes into
    question."""
    excluded: tuple[tuple[str, str], ...]
    """If it fits nowhere, at most ten of: (node, why it does not come into question), or (volume, why it keeps these here)."""


@dataclass(frozen=True, slots=True)
class ExhaustedBudget:
    """A budget that would allow no disruption while this node is away, so that draining another node would wait."""

    budget: str
    """`namespace/name`."""
    allowed_now: int
    stranded: int
    """How many of its pods would stay away with this node."""
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hidden:
    """A PersistentVolume of which this node alone can tell that it is here."""

    volume: str
    listed: bool
    """Its driver lists it here. Otherwise a pod of this node has mounted it."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The judgement of one node for one driver."""

    node: str
    node_uid: str
    driver: str
    at: float
    drain: Verdict
    retire: Verdict
    blockers: tuple[Blocker, ...]
    """Those that block a reboot first, then the largest first. What only informs is in `notes`."""
    volumes: tuple[HeldVolume, ...]
    pods: tuple[PodFate, ...]
    places: tuple[Place, ...]
    budgets: tuple[ExhaustedBudget, ...]
    notes: tuple[str, ...]
    """What is worth knowing and blocks nothing: ignored volumes, volumes that belong to no driver, what was not checked."""
    complete: bool = True
    """All that should be known was read, so what is not among the blockers does not block."""
    acknowledged: tuple[Acknowledged, ...] = ()
    """Of volumes here; for who remembers them."""
    pods_seen: str = ""
    """As `Snapshot.pods_seen`."""
    hidden: tuple[Hidden, ...] = ()
    """Volumes that are here and that no other node can tell to be here."""

    def verdict(self, intent: Intent) -> Verdict:
        return self.drain if intent is Intent.REBOOT else self.retire

    @property
    def asks_for_places(self) -> bool:
        """Some volume is to be elsewhere, so that it matters where it could be."""
        policies = {policy for volume in self.volumes for policy in (volume.policy, *(policy for _, policy, _ in volume.by_intent))}
        return not policies.isdisjoint(NOT_AVAILABLE_YET)
