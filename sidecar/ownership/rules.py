"""Who takes an Immediate claim: one look at the race, one decision. Waiting is an answer here, never a sleeping worker.

The race itself is a value, `Race`, which the caller keeps per claim and hands back: a decision that changes it carries the
new one. Whoever loses learns it from the watch, which brings the claim here again.
"""

from dataclasses import dataclass
from typing import Final

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Unmeasured
from sidecar.model.objects import IMMEDIATE, Claim, Class
from sidecar.model.topology import Segment, allows
from sidecar.ownership.placement import RandomDelay

# A node without room looks again after 1, 2, 4 … seconds at the earliest, however short the delays of the race are.
_LONGEST_RECHECK: Final = 60.0


@dataclass(frozen=True, slots=True)
class Race:
    """How often this node has drawn a delay for the claim, and when it may bid."""

    attempt: int
    bid_at: float


@dataclass(frozen=True, slots=True)
class OwnershipView:
    """All that the rule looks at."""

    now: float
    node: str
    segment: Segment
    with_topology: bool
    bids: bool
    """Whether this node takes part in races at all."""
    placement: RandomDelay
    chance: float
    """Drawn from [0, 1) for this look."""
    claim: Claim
    class_: Class | None
    race: Race | None
    free: CapacityAnswer | Unmeasured | None
    """None: not asked yet in this look."""
    promised: int = 0
    """Bytes of that space that claims this node has taken, or is bidding for, are yet to take."""


@dataclass(frozen=True, slots=True)
class NotForUs:
    """This node has no part in the claim as it is now."""

    why: str


@dataclass(frozen=True, slots=True)
class LostTo:
    """Another node has it."""

    node: str

    @property
    def why(self) -> str:
        return f"node {self.node} is selected"


@dataclass(frozen=True, slots=True)
class Ours:
    """The claim names this node."""

    why: str = "this node is selected"


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at that time, or when the claim changes. The race goes on as given."""

    until: float
    race: Race
    why: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Ask the driver how much is free, then decide again."""

    why: str = "the delay is over; is there room?"


@dataclass(frozen=True, slots=True)
class Bid:
    """Write this node into the claim."""

    why: str


Decision = NotForUs | LostTo | Ours | Wait | Measure | Bid


def decide(view: OwnershipView) -> Decision:
    """The claim's provisioner is this driver and it is not bound; everything else is judged here."""
    if view.claim.selected_node:
        return Ours() if view.claim.selected_node == view.node else LostTo(view.claim.selected_node)
    return _excluded(view) or _race(view)


def after_conflict(view: OwnershipView) -> Wait:
    """The claim changed between look and write. The next delay is longer; the watch most likely ends it early with a winner."""
    return _draw_again(view, "the claim changed while this node was bidding", floor=0.0)


def _excluded(view: OwnershipView) -> NotForUs | None:
    class_ = view.class_
    if class_ is None:
        return NotForUs(f"StorageClass {view.claim.class_name!r} does not exist for this driver")
    if class_.binding_mode != IMMEDIATE:
        return NotForUs("no node is selected yet: the claim waits for its first consumer")
    if not view.bids:
        return NotForUs("no node is selected and --node-deployment-immediate-binding=false leaves that to others")
    if class_.allowed and view.with_topology and not allows(class_.allowed, view.segment):
        return NotForUs(f"allowedTopologies of StorageClass {class_.name!r} leave out this node ({view.segment})")
    return None


def _race(view: OwnershipView) -> Decision:
    race = view.race
    if race is None:
        race = Race(0, view.now + view.placement.delay(0, view.chance))
    if view.now < race.bid_at:
        return Wait(race.bid_at, race, "the claim is open to every node; this node's delay runs")
    return _judge_room(view)


def _judge_room(view: OwnershipView) -> Decision:
    needed = view.claim.requested or 0
    match view.free:
        case _ if needed <= 0:
            return Bid("nothing has to be free for a claim of 0 bytes")
        case None:
            return Measure()
        case Unmeasured(why, away=True):
            return _draw_again(view, f"this node's driver is away ({why})", floor=1.0)
        case Unmeasured(why):
            # Somebody must own the claim so that its user sees the failure.
            return Bid(f"free space is not known ({why})")
        case CapacityAnswer() as answer if _lacks_room(answer, needed, view.promised):
            floor = min(2.0 ** min(view.race.attempt if view.race else 0, 6), _LONGEST_RECHECK)
            return _draw_again(view, f"no room on this node: {_room(answer, needed, view.promised)}", floor=floor)
        case CapacityAnswer() as answer:
            return Bid(_room(answer, needed, view.promised))


def _lacks_room(answer: CapacityAnswer, needed: int, promised: int) -> bool:
    return needed > answer.available - promised or (answer.maximum is not None and needed > answer.maximum)


def _room(answer: CapacityAnswer, needed: int, promised: int) -> str:
    owed = f", {promised} of them promised to other claims" if promised else ""
    limit = "" if answer.maximum is None else f", largest volume {answer.maximum}"
    return f"{needed} bytes needed, {answer.available} free{owed}{limit}"


def _draw_again(view: OwnershipView, why: str, *, floor: float) -> Wait:
    attempt = view.race.attempt + 1 if view.race else 1
    race = Race(attempt, view.now + max(view.placement.delay(attempt, view.chance), floor))
    return Wait(race.bid_at, race, why)
