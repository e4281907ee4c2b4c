"""Decides which sidecar looks after the gate of a node whose own sidecar has stopped, and when that gate is opened.

Another node's sidecar opens a gate only if it needs no fact that the stopped one alone could know: because people have said so, because
the deadline of the node's evacuation is over, or because all that can be read proves, twice, that nothing there would be lost. Otherwise
the gate stays. It never builds one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.drain.evacuation import rules as evacuation
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.gate import lease as gate_lease
from sidecar.drain.judgement.assessment import Verdict
from sidecar.drain.leases import Lease, Terms
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason, Status
from sidecar.drain.wording import first_few
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

# After the lease has run out. A sidecar that was only late has this time to come back.
_PATIENCE: Final = 90.0
# Added to that, times a chance that each process draws once, so that not all neighbours come at the same moment.
_SPREAD: Final = 60.0
# A gate opens by proof once two judgements so far apart agree: between eviction and creation of a pod its volume looks unused.
CONFIRMED_AFTER: Final = 60.0


@dataclass(frozen=True, slots=True)
class NeighbourView:
    """The lease of one neighbour's gate, as this process sees it."""

    now: float
    """Monotonic: no other node's clock is trusted."""
    me: str
    """Identity of this node's sidecar."""
    driver: str
    lease: Lease
    unchanged_since: float
    """Since when this process has seen the lease unchanged."""
    chance: float
    """In [0, 1), drawn once by this process."""


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """The gate is not for this process, or not yet."""

    why: str
    until: float | None = None
    """When this process may take it at the earliest, if its lease stays as it is, by the clock of the view; None: never."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Nobody looks after the gate: take its lease."""

    why: str


@dataclass(frozen=True, slots=True)
class LookAfter:
    """This process has the lease, so it judges the gate."""

    why: str = "this node's sidecar looks after the gate"


def responsible(view: NeighbourView) -> LeaveAlone | TakeOver | LookAfter:
    """Whether this process looks after the gate."""
    lease = view.lease
    if lease.name != gate_lease.name(lease.node, lease.node_uid, view.driver):
        return LeaveAlone("this is not the lease of a gate")
    if lease.holder == view.me:
        return LookAfter()
    # Bounded, because people may edit it: a long one must not leave the gate to nobody, nor a short one have it taken at once.
    due = view.unchanged_since + lease.term + _PATIENCE + _SPREAD * view.chance
    if view.now < due:
        return LeaveAlone(f"{lease.holder or 'its last holder'} looks after the gate", due)
    return TakeOver(
        f"the gate of node {lease.node} is not looked after: its lease was not renewed for {view.now - view.unchanged_since:.0f} s"
    )


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What can be known of a neighbour's gate from here."""

    lease: Lease
    node: Node | None
    """As it is stored now; None: there is no such Node."""
    gate: tuple[Json, ...]
    """The budget and the Deployment, in this order, if they are there and not being deleted."""
    override: str
    """Why the node is let go whatever blocks, as `override` says; empty: it is not."""
    draining: bool
    """Somebody empties the node."""
    retire: Verdict | None
    """As judged from outside; None: not judged in this look."""
    holds_volumes: bool | None
    """Anything of the driver is on the node; None: not known."""
    strays: tuple[str, ...]
    """Volumes of the driver of which it is not known whether they lie on this node."""
    orphans: tuple[str, ...] = ()
    """Volumes of the driver that no living node reaches. The driver of this node may have them under a former name of the node."""
    known: int | None = None
    """Volumes that the node's own sidecar counted when it last judged; None: it did not say."""
    seen: int = 0
    """Those that this judgement counts."""
    unseen: tuple[str, ...] = ()
    """Volumes that only the node's own sidecar knew to be there, that exist, and that this judgement does not see there."""
    proven_for: float = 0.0
    """How many seconds ago this process first saw proven what this look proves too; no judgement has denied it since."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Open the gate: delete these in this order, on condition of their uid, and then the lease."""

    objects: tuple[Json, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """All speaks for opening the gate. It stays until another judgement, a minute later, says the same."""

    why: str


@dataclass(frozen=True, slots=True)
class Keep:
    """The gate stays."""

    why: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is no gate to look after. Delete the lease, unless it is deleted with the node."""

    why: str
    by_itself: bool


Judgement = LetGo | Confirm | Keep | Nothing


def override(signals: Signals, settings: Settings, *, clocks: Iterable[float]) -> str:
    """Why the node is let go whatever blocks; empty: it is not. Either people say so, or the deadline of its evacuation is over.

    The deadline follows from the marks on the node and from flags, which are the same on all nodes. `clocks` are what may be taken for
    the time: this node's, and that of the node itself if it is known. The one that leaves more time counts.
    """
    if signals.override:
        return f"{names.FORCE_DRAIN}: {signals.override}"
    return evacuation.override_due(signals, policy=settings.policy, allowed=settings.allowed, expiry=settings.expiry, clocks=tuple(clocks))


def judge(facts: GateFacts) -> Judgement:
    node = facts.node
    if node is None or node.uid != facts.lease.node_uid:
        return Nothing("its node is gone, and what was made for it is deleted with it", by_itself=True)
    if not facts.gate:
        return Nothing("the gate is gone", by_itself=False)
    if facts.override:
        return LetGo(facts.gate, facts.override)
    if why := unproven(facts):
        return Keep(why)
    assert facts.retire is not None
    proof = f"{facts.retire.reason}: {facts.retire.message}"
    if facts.holds_volumes is not False and not facts.draining:
        return Keep(f"volumes are on the node and nobody drains it; it opens when a drain begins ({proof})")
    if facts.proven_for < CONFIRMED_AFTER:
        return Confirm(f"{proof}; it opens when the next judgement says the same")
    return LetGo(facts.gate, proof)


def unproven(facts: GateFacts) -> str:
    """Why it is not proven that nothing there would be lost; empty: it is."""
    retire = facts.retire
    if retire is None:
        return f"{Reason.NOT_KNOWN}: the node has not been judged from here yet"
    if retire.status is not Status.TRUE:
        return f"{retire.reason}: {retire.message}"
    if facts.strays:
        return f"{Reason.NOT_KNOWN}: these volumes may lie on the node, and node labels do not say where: {first_few(facts.strays)}"
    return _hidden(facts)


def _hidden(facts: GateFacts) -> str:
    """What the node's own sidecar may know of and nobody else does. Where it has counted its volumes, orphans are on another node."""
    if facts.known is None and facts.orphans:
        nobody = "no living node reaches these volumes, and the node's own sidecar left no report that says whether they are there"
        return f"{Reason.NOT_KNOWN}: {nobody}: {first_few(facts.orphans)}"
    if facts.unseen:
        return f"{Reason.NOT_KNOWN}: the node's own sidecar alone knew that these volumes are there: {first_few(facts.unseen)}"
    if facts.known is not None and facts.known > facts.seen:
        counted = f"volumes that the node's own sidecar counted there: {facts.known}; that can be seen from another node: {facts.seen}"
        return f"{Reason.NOT_KNOWN}: {counted}"
    return ""


def terms(view: NeighbourView, *, namespace: str) -> Terms:
    """The same lease, held by this process. It stays about the same node, and is deleted with that."""
    return gate_lease.terms(view.lease.node, view.lease.node_uid, view.driver, namespace=namespace, holder=view.me)
