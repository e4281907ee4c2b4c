"""What the flags say to the drain room, as values; `config` reads them."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.drain.marks import NodePolicy
from sidecar.drain.words import Intent, Policy


class Expiry(StrEnum):
    """What happens when blockers are left at the deadline."""

    REPORT = "Report"
    OVERRIDE = "Override"


@dataclass(frozen=True, slots=True)
class Settings:
    node: str
    driver: str
    namespace: str  # where leases and the objects of gates are created
    agent: str  # this program's version, as the report names it
    policy: NodePolicy = NodePolicy.IGNORE
    judges: bool = False  # False: the room decides only whether the node takes volumes
    provisions: bool = True  # False: another program makes volumes, and gives this node some whatever its standing is
    default_policy: Policy | None = None  # for volumes for which nobody has set one
    allowed: float = 0.0  # seconds that an evacuation may take; 0: any number
    expiry: Expiry = Expiry.REPORT
    limit: int = 1  # how many nodes may be emptied at the same time; 0: any number
    maintains: bool = False  # PlannedMaintenances that select this node are carried out
    drains_guests: bool = False  # the Kubernetes nodes in virtual machines of this node are drained before these are moved
    gate: bool = False
    gate_image: str = ""
    gate_assumes: Intent = Intent.RETIRE  # what a drainer that announces no intent is taken for
    protects: bool = False  # autoscalers are asked to leave a node alone while retiring it would lose data
    evicts: bool = False  # pods that keep a node that is being retired from being empty are evicted, as far as nothing is lost
    follows_loss: bool = False  # nodes that are gone are looked for, and what they have left is told
    clears: bool = False  # with `follows_loss`: it is cleared away, as far as somebody has said that the disks do not come back
    gone_after: float = 3600.0  # seconds that a node is missed until anything is cleared away
    reprovisions: bool = False  # replicas whose policy is Reprovision are made anew on other nodes, and their data here is deleted
    reprovision_pause: float = 1800.0  # seconds that the other replicas of a workload have to be Ready before one is made anew
    own_pods: frozenset[str] = frozenset()  # full names of this program's own pods
    dry_run: bool = False
