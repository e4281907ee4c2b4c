"""A lock before a replica's data: what all of them look at, how one answers, and their names. The locks themselves are elsewhere."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.machine_mark import Machine
from sidecar.drain.reprovision.facts import Facts, FoundClaim
from sidecar.drain.reprovision.record import Target
from sidecar.drain.vocabulary import Hindrance
from sidecar.model.nodes import Pod


@dataclass(frozen=True, slots=True)
class LocksView:
    """All that the locks look at."""

    allowed: bool
    machine: Machine
    """This one."""
    snapshot: Snapshot
    places: Mapping[str, Place]
    """By volume: where it would go; a volume that is missing has not been looked at."""
    target: Target
    facts: Facts
    deleted: frozenset[str] = frozenset()
    """Names of claims of the pod that were deleted already. They are made again, and no part of `target` any more."""
    slow: frozenset[str] = frozenset()
    """Full names of leaving pods whose namespace has had others wait for so long that they hold up no other one any more."""
    now: float = 0.0
    """Wall clock: when a replica became Ready is stored."""
    pause: float = 0.0
    """Seconds that each other replica has to be Ready, where its owner names no condition that says that it is in sync."""
    alone: bool = False
    """The lease of the workload was another node's, which has not been heard of: fewer ready replicas than all others are not enough."""

    @property
    def pod(self) -> Pod | None:
        return self.facts.pod(self.target.pod)

    @property
    def claims(self) -> Iterable[tuple[str, FoundClaim | None]]:
        return ((claim.name, self.facts.claims.get(claim.name)) for claim in self.target.claims)


@dataclass(frozen=True, slots=True)
class Refusal:
    hindrance: Hindrance
    why: str


@dataclass(frozen=True, slots=True)
class Lock:
    """One lock as it is now."""

    name: str
    refusal: Refusal | None

    @property
    def open(self) -> bool:
        return self.refusal is None

    def __str__(self) -> str:
        return f"{self.name}: open" if self.refusal is None else f"{self.name}: shut, {self.refusal.hindrance}: {self.refusal.why}"


class Name(StrEnum):
    ALLOWED = "allowed here"
    SURE = "all is known"
    SAME = "the judged claims"
    POLICY = "drain policy"
    MARKS = "marks"
    MADE_AGAIN = "made again"
    REPLICAS = "other replicas"
    IN_SYNC = "in sync"
    NOT_ROLLING = "no rollout"
    ON_THIS_NODE = "on this node alone"
    PLACE = "place elsewhere"
    KEPT_OFF = "kept off this node"
    BUDGET = "budget"
    FINALIZERS = "finalizers"
    SNAPSHOTS = "snapshots"
    NOBODY_LEAVES = "one pod at a time"
    NOBODY_ELSE = "no other user"


Check = Callable[[LocksView], Refusal | None]
