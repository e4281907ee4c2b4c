"""What the flags say to the drain room, as values; `config` reads them."""

from dataclasses import dataclass

from sidecar.drain.course import Expiry
from sidecar.drain.marks import NodePolicy
from sidecar.drain.words import Intent, Policy


@dataclass(frozen=True, slots=True)
class Settings:
    """For one node and one driver."""

    node: str
    driver: str
    namespace: str
    """Where leases and the objects of gates are created."""
    agent: str
    """This program's version, as the report names it."""
    policy: NodePolicy = NodePolicy.IGNORE
    judges: bool = False
    """False: the room decides only whether the node takes volumes."""
    provisions: bool = True
    """False: another program makes volumes, and gives this node some whatever its standing is."""
    default_policy: Policy | None = None
    """For volumes for which nobody has set one."""
    allowed: float = 0.0
    """Seconds that an evacuation may take; 0: any number."""
    expiry: Expiry = Expiry.REPORT
    limit: int = 1
    """How many nodes may be emptied at the same time; 0: any number."""
    maintains: bool = False
    """PlannedMaintenances that select this node are carried out."""
    drains_guests: bool = False
    """The Kubernetes nodes in virtual machines of this node are drained before these are moved."""
    gate: bool = False
    gate_image: str = ""
    gate_assumes: Intent = Intent.RETIRE
    """What a drainer that announces no intent is taken for."""
    protects: bool = False
    """Autoscalers are asked to leave a node alone while retiring it would lose data."""
    evicts: bool = False
    """Pods that keep a node that is being retired from being empty are evicted, as far as nothing is lost that may not be."""
    follows_loss: bool = False
    """Nodes that are gone are looked for, and what they have left is told."""
    clears: bool = False
    """With `follows_loss`: it is cleared away, as far as somebody has said that the disks do not come back."""
    gone_after: float = 3600.0
    """Seconds that a node is missed until anything is cleared away."""
    reprovisions: bool = False
    """Replicas whose policy is Reprovision are made anew on other nodes, and their data here is deleted."""
    reprovision_pause: float = 1800.0
    """Seconds that the other replicas of a workload have to be Ready before one is made anew."""
    own_pods: frozenset[str] = frozenset()
    """Full names of this program's own pods."""
    dry_run: bool = False
