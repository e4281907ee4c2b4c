"""The gate of a node whose own sidecar gives no sign of life: who looks after it, and when it may be opened.

A gate is opened from elsewhere only where no fact that the dead sidecar alone could know is needed: people have said so, or all
that can be read proves that nothing lies there. Otherwise it stays, and says why. It is never built from elsewhere.
"""

from dataclasses import dataclass
from typing import Final

from sidecar.drain import lifesign
from sidecar.drain.assessment import Verdict
from sidecar.drain.blockers import some
from sidecar.drain.leases import DURATION, Lease
from sidecar.drain.words import Reason, Status
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

# After the lease has run out: whoever was only late has this time to come back.
_PATIENCE: Final = 90.0
# Besides, drawn once by each process: of hundreds of neighbours one is first.
_SPREAD: Final = 60.0


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One neighbour's sign of life, as this process sees it."""

    now: float
    """Monotonic: no other node's clock is trusted."""
    me: str
    """Identity of this node's sidecar."""
    driver: str
    lease: Lease
    unchanged_since: float
    """Since when this process has seen this version of it."""
    chance: float
    """From [0, 1), of this process."""


@dataclass(frozen=True, slots=True)
class Leave:
    """It is not for this process, or not yet."""

    why: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Nobody looks after the gate: take the lease, guarded by its resourceVersion."""

    why: str


@dataclass(frozen=True, slots=True)
class Mind:
    """This process has the lease, so the gate is for it to judge."""

    why: str = "this node's sidecar looks after the gate"


def whose(view: LeaseView) -> Leave | TakeOver | Mind:
    """Who looks after the gate."""
    lease = view.lease
    if lease.name != lifesign.name(lease.node_uid, view.driver):
        return Leave("this lease is no sign of life of a node with a gate")
    if lease.holder == view.me:
        return Mind()
    due = view.unchanged_since + min(max(lease.duration, 1.0), float(DURATION)) + _PATIENCE + _SPREAD * view.chance
    if view.now < due:
        return Leave(f"{lease.holder or 'its last holder'} looks after the gate")
    return TakeOver(
        f"the gate of node {lease.node} is not looked after: its lease was not renewed for {view.now - view.unchanged_since:.0f} s"
    )


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What can be known of a neighbour's gate from here."""

    lease: Lease
    node: Node | None
    """As it is stored now; None: there is none."""
    gate: tuple[Json, ...]
    """The budget and the Deployment, in this order, as far as they are there and stay."""
    override: str
    """Why people want the node let go regardless; empty: they do not."""
    retire: Verdict | None
    """As it is seen from outside; None: not judged in this look."""
    strays: tuple[str, ...]
    """Volumes of the driver that may lie on the node as well as elsewhere."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Delete these in this order, on condition of their uid, and then the lease."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Keep:
    """The gate stays."""

    why: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is no gate to look after. The lease goes, unless it goes by itself."""

    why: str
    by_itself: bool


Judgement = LetGo | Keep | Nothing


def judge(facts: GateFacts) -> Judgement:
    node = facts.node
    if node is None or node.uid != facts.lease.node_uid:
        return Nothing("its node is gone, and what was made for it goes with it", by_itself=True)
    if not facts.gate:
        return Nothing("the gate is gone", by_itself=False)
    if facts.override:
        return LetGo(facts.gate, f"{names.FORCE_DRAIN}: {facts.override}")
    if why := _unproven(facts):
        return Keep(why)
    assert facts.retire is not None
    return LetGo(facts.gate, f"{facts.retire.reason}: {facts.retire.message}")


def _unproven(facts: GateFacts) -> str:
    """Why it cannot be said from here that nothing lies there that must not be lost."""
    retire = facts.retire
    if retire is None:
        return f"{Reason.NOT_KNOWN}: what lies on the node has not been looked at yet"
    if retire.status is not Status.TRUE:
        return f"{retire.reason}: {retire.message}"
    if facts.strays:
        return f"{Reason.NOT_KNOWN}: these volumes may lie on the node, for labels of nodes do not tell: {some(facts.strays)}"
    return ""


def body(view: LeaseView, node: Node, *, namespace: str, wall: float) -> Json:
    """The lease in this process's hands, taken or renewed."""
    version = view.lease.resource_version
    return lifesign.body(node, view.driver, namespace=namespace, holder=view.me, now=wall, resource_version=version)
