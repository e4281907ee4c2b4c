"""What the drain room is told of the command line."""

from dataclasses import dataclass

from sidecar.drain.evacuation import Expiry
from sidecar.drain.signals import NodePolicy
from sidecar.drain.words import Policy


@dataclass(frozen=True, slots=True)
class Settings:
    """One node, one driver."""

    node: str
    driver: str
    namespace: str
    """Where leases and gates are made."""
    agent: str
    policy: NodePolicy = NodePolicy.IGNORE
    judges: bool = False
    """Without it the room only knows whether the node takes volumes."""
    zero_when_closed: bool = True
    default_policy: Policy | None = None
    allowed: float = 0.0
    expiry: Expiry = Expiry.REPORT
    limit: int = 1
    gate: bool = False
    gate_image: str = ""
    protects: bool = False
    untracked_blocks: bool = False
    dry_run: bool = False
