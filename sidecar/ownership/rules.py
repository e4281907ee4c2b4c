"""Decides what this node does about an Immediate claim that no node has yet: each look at the race gives one decision.

To wait is a decision too, so no worker ever sleeps on a claim. The caller keeps the state of the race, a `Race`, per claim and passes it
in; a decision that changes it carries the new one. A node that loses learns so from the watch, which brings the claim here again.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Unmeasured
from sidecar.model.objects import IMMEDIATE, Claim, Class
from sidecar.model.standing import OPEN, Standing
from sidecar.model.topology import Segment, allows
from sidecar.ownership import user_notice
from sidecar.ownership.placement import SINGLE_STEPS, Placement, RandomDelay, Ranked
from sidecar.ownership.roster import Roster
from sidecar.ownership.tries import Tries
from sidecar.ownership.waiting import Want

# A node without room looks again after 1, 2, 4 … seconds at the earliest; this is the most that this floor grows to. Without a floor, a
# full node would ask its driver again and again without a pause if the delays of the race are zero.
_LONGEST_RECHECK: Final = 60.0
# However far a node lags behind, it bids after this many seconds of putting off, and after fewer where it only cannot hear: a conflict is
# better than a claim without a node.
_LONGEST_PUT_OFF: Final = 300.0
_LONGEST_WITHOUT_WATCH: Final = 60.0
# A node that puts off its turn looks so often whether it still lags as far: what made it lag may be over.
_LAG_LOOKED_AT_EVERY: Final = 20.0
_ELSEWHERE_RECHECK: Final = 1800.0
_UNFIT_RECHECK: Final = 60.0


@dataclass(frozen=True, slots=True)
class Race:
    """Where this node stands in the race for a claim: how often it has drawn a delay, and when it may bid."""

    attempt: int
    bid_at: float
    """Infinity for a node that may not bid, for now or ever."""
    hindered_since: float | None = None
    """Since when this node could not bid although the claim was open; None if nothing has hindered it yet."""
    why: str = ""
    """What hindered this node."""
    told: bool = False
    """The claim's user has been told."""
    beaten: str = ""
    """The claim's resourceVersion with which a bid met a conflict: no other bid with this version can succeed."""
    asks: bool = False
    """The change behind that conflict has not been seen: before the next bid the API server is asked."""
    shaken: bool = False
    """The driver's last answer left open whether it is still there. After a second such answer this node bids all the same."""
    put_off: float = 0.0
    """For how many seconds in all this node's turn was postponed because it lags behind."""
    put_off_from: float | None = None
    """When its turn had come that is postponed now; None if none is."""
    share: float = 0.0
    """By which part of a turn it was postponed further, so that those who share one do not look together."""
    source_elsewhere: bool = False
    """What hindered this node is not a lack of room: the source lies on another node, or cannot be used yet."""
    source_unseen: bool = False
    """The delay was drawn while nothing told that the source lies here; nodes that have it come first."""
    blind: bool = False
    """The delay was drawn while the contenders were not known; it may be far longer than one by their order."""
    want: Want | None = None
    """What could not be had, if something has hindered it."""


@dataclass(frozen=True, slots=True)
class OwnershipView:
    """Everything that the rule looks at."""

    now: float
    node: str
    segment: Segment
    with_topology: bool
    bids: bool
    """Whether this node takes part in races at all."""
    placement: Placement
    chance: float
    """Drawn from [0, 1) for this look."""
    claim: Claim
    class_: Class | None
    race: Race | None
    free: CapacityAnswer | Unmeasured | None
    """None: the driver was not asked yet in this look."""
    promised: int = 0
    """Bytes of that space that will go to other claims, which this node has taken or is bidding for."""
    roster: Roster | None = None
    """The nodes that may bid; None if they are not known."""
    local_delay: float = 0.0
    """Seconds by which this node lags behind: how late its writes or its turns lately were."""
    watch_down: bool = False
    """The watch of claims is down, so another node may have the claim by now."""
    source_here: bool = True
    """False: nothing tells that the volume to be cloned lies on this node. Another node may have it, or it says nothing of its place."""
    source_elsewhere: str = ""
    """Why this node cannot fill the volume from the claim's source, as was found when it was looked up in this look."""
    source_unfit: str = ""
    """Why no node can fill it as things are now: as was found in this look, too."""
    standing: Standing = OPEN


@dataclass(frozen=True, slots=True)
class NotForUs:
    """This node does nothing about the claim as it is now."""

    why: str


@dataclass(frozen=True, slots=True)
class LostTo:
    """Another node has the claim."""

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
    """Ask the driver for free space, then decide again."""

    why: str = "the delay is over; is there room?"


@dataclass(frozen=True, slots=True)
class Bid:
    """Write this node into the claim."""

    why: str
    out_of_turn: bool = False
    """Another node probably has the claim by now: read it from the API server before writing."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the claim's user that no node has taken the claim for a while: it is this node's turn to say so. The race goes on."""

    race: Race
    why: str


Decision = NotForUs | LostTo | Ours | Wait | Measure | Bid | Tell


def decide(view: OwnershipView) -> Decision:
    """Expects an unbound claim whose provisioner is this driver; everything else is checked here."""
    # A selected node counts whatever the class or this node says: whoever wrote it has decided.
    if view.claim.selected_node:
        return Ours() if view.claim.selected_node == view.node else LostTo(view.claim.selected_node)
    return _excluded(view) or _race(view)


def after_conflict(view: OwnershipView) -> Wait:
    """The claim changed between look and write. The next delay is longer; most likely the watch ends it early by showing a winner."""
    wait = _again(view, _drawn(view), "the claim changed while this node was bidding")
    return replace(wait, race=replace(wait.race, beaten=view.claim.resource_version))


def step_back(view: OwnershipView) -> Race:
    """This node had the claim and lacked the room to create its volume: the other nodes come first now. Otherwise the node that is first in
    the order could take the claim again at once."""
    noted = view.node in Tries.of(view.claim.notes).nodes
    delay = _first_delay(view) if noted else _after_the_others(view, floor=0.0)
    return Race(_attempt(view), _due(view, delay), blind=_is_blind(view), source_unseen=not view.source_here)


def waits_for_room(race: Race) -> bool:
    """Whether more free space may help."""
    return race.want is not None and math.isfinite(race.bid_at) and not race.source_elsewhere


def room_grew(race: Race, at: float) -> Race:
    """Ends the delay of a race that found no room: there is more now."""
    return replace(race, bid_at=min(race.bid_at, at)) if waits_for_room(race) else race


def _excluded(view: OwnershipView) -> NotForUs | Wait | Tell | None:
    class_ = view.class_
    if class_ is None:
        return NotForUs(f"StorageClass {view.claim.class_name!r} does not exist for this driver")
    if class_.binding_mode != IMMEDIATE:
        return NotForUs("no node is selected yet: the claim waits for its first consumer")
    if not view.bids:
        return NotForUs("no node is selected and --node-deployment-immediate-binding=false leaves that to others")
    if view.with_topology and not view.segment:
        return _left_out(view, f"the driver of node {view.node} reports no topology, so a volume of it could not be tied to that node")
    if view.with_topology and (flaw := view.segment.flaw()):
        return _left_out(view, f"the driver of node {view.node} reports a topology that no PersistentVolume can name: {flaw}")
    if class_.allowed and view.with_topology and not allows(class_.allowed, view.segment):
        return _left_out(view, f"allowedTopologies of StorageClass {class_.name!r} leave out this node ({view.segment})")
    if view.standing.closed:
        return _left_out(view, f"node {view.node} takes no volumes: {view.standing.why}")
    return None


def _left_out(view: OwnershipView, why: str) -> NotForUs | Wait | Tell:
    """This node must not bid. If no other node does, one of them has to tell the user why; those that may bid get time to do so first."""
    before = view.race or Race(0, math.inf)
    since = view.now + user_notice.PATIENCE if before.hindered_since is None else before.hindered_since
    race = Race(before.attempt, math.inf, since, why, told=before.told)
    turn = _turn_to_tell(view, race)
    if race.told or turn is None:
        return NotForUs(why)
    return Tell(replace(race, told=True), f"{why}, and no other node has taken the claim") if view.now >= turn else Wait(turn, race, why)


def _race(view: OwnershipView) -> Decision:
    race = view.race
    if race is None or math.isinf(race.bid_at):
        # A node that was left out until now begins as if the claim were new.
        race = _opened(view, told=race is not None and race.told)
    elif race.source_unseen and view.source_here:
        race = _opened(view, told=race.told)
    elif race.blind and not _is_blind(view):
        # The random delay may be far longer than the one by order, so the earlier of the two counts.
        race = replace(race, bid_at=min(race.bid_at, _due(view, _opening_delay(view))), blind=False)
    elif race.put_off_from is not None:
        race = _brought_forward(view, race, race.put_off_from)
    if view.now < race.bid_at:
        turn = _turn_to_tell(view, race)
        if turn is not None and view.now >= turn:
            return Tell(replace(race, told=True), f"no node has taken the claim yet: {race.why}")
        looks_at = math.inf if race.put_off_from is None else view.now + _LAG_LOOKED_AT_EVERY
        return Wait(min(race.bid_at, looks_at, math.inf if turn is None else turn), race, race.why or _while_it_waits(view))
    if race.beaten and race.beaten == view.claim.resource_version:
        # The cache still holds the version that met a conflict. A write with it would only meet the next one.
        wait = _again(view, max(_drawn(view), 1.0), "the claim has changed, and the watch has not shown it yet")
        return replace(wait, race=replace(wait.race, beaten="", asks=True))
    return _put_off(view, race) or _judge_room(view)


def _opened(view: OwnershipView, *, told: bool) -> Race:
    return Race(0, _due(view, _opening_delay(view)), told=told, blind=_is_blind(view), source_unseen=not view.source_here)


def _opening_delay(view: OwnershipView) -> float:
    """Where the source of a clone lies, its node knows. What no node knows to be its own is looked up after those have had their turn: so
    a clone costs the other nodes of its source nothing."""
    return _first_delay(view) if view.source_here else _after_the_others(view, floor=0.0)


def _while_it_waits(view: OwnershipView) -> str:
    if view.source_here:
        return "the claim is open to every node; this node's delay runs"
    return f"what the claim is to be cloned from has no volume that is known to lie on node {view.node}; nodes that have it come first"


def _is_blind(view: OwnershipView) -> bool:
    return isinstance(view.placement, Ranked) and not view.roster


def _put_off(view: OwnershipView, race: Race) -> Wait | None:
    """Postpones the bid of a node that is not first, if it lags behind or its watch of claims is down.

    Such a node bids because those before it have had time to bid. While writes are slow, or their result cannot be seen, they may not
    have had that time. The first node never waits: it bids against nobody.
    """
    if view.free is not None or not isinstance(view.placement, Ranked) or not _rank(view):
        return None
    late, step = _lag(view, view.placement), view.placement.step
    enough = _LONGEST_WITHOUT_WATCH if view.watch_down else _patience(view, view.placement, share=0.0)
    if 2.0 * late < step or race.put_off >= enough:
        return None
    delay = max(_patience(view, view.placement, share=view.chance) - race.put_off, (1.0 + view.chance) * step)
    began = view.now if race.put_off_from is None else race.put_off_from
    bid_at = _due(view, delay)
    moved = replace(race, bid_at=bid_at, put_off=race.put_off + delay, put_off_from=began, share=view.chance)
    why = "the watch of claims is down" if view.watch_down else f"this node lags {view.local_delay:.1f} s; bid postponed"
    return Wait(min(bid_at, view.now + _LAG_LOOKED_AT_EVERY), moved, why)


def _brought_forward(view: OwnershipView, race: Race, began: float) -> Race:
    """Its turn was postponed by what it lagged then, which may be less by now."""
    if view.now >= race.bid_at or not isinstance(view.placement, Ranked):
        return race
    bid_at = max(view.now, began + _patience(view, view.placement, share=race.share))
    return race if bid_at >= race.bid_at else replace(race, bid_at=bid_at, put_off=max(0.0, race.put_off - (race.bid_at - bid_at)))


def _lag(view: OwnershipView, placement: Ranked) -> float:
    return max(view.local_delay, placement.step if view.watch_down else 0.0)


def _patience(view: OwnershipView, placement: Ranked, *, share: float) -> float:
    """Seconds for which it leaves the claim to those before it, by what it lags now."""
    longest = _LONGEST_WITHOUT_WATCH if view.watch_down else _LONGEST_PUT_OFF
    return min(placement.patience(_rank(view) or 0, _lag(view, placement), share), longest)


def _turn_to_tell(view: OwnershipView, race: Race) -> float | None:
    if race.told or race.hindered_since is None:
        return None
    turn = user_notice.turn(view.node, view.claim.uid, view.roster.cluster if view.roster else None)
    return None if turn is None else race.hindered_since + turn


def _judge_room(view: OwnershipView) -> Decision:
    if view.source_elsewhere:
        # Sources do not move. One that is made anew under its name may lie here, so it is looked up again, ever more seldom.
        wait = _hindered(view, _ELSEWHERE_RECHECK * 2.0 ** min(_attempt(view) - 1, 5) * (0.5 + view.chance), view.source_elsewhere)
        return replace(wait, race=replace(wait.race, source_elsewhere=True))
    if view.source_unfit:
        wait = _hindered(view, _UNFIT_RECHECK * 2.0 ** min(_attempt(view) - 1, 5) * (0.5 + view.chance), view.source_unfit)
        return replace(wait, race=replace(wait.race, source_elsewhere=True))
    needed = view.claim.requested or 0
    match view.free:
        case _ if needed <= 0:
            return _bid(view, "nothing has to be free for a claim of 0 bytes")
        case None:
            return Measure()
        case Unmeasured(why, away=True):
            # A driver that is away could not create the volume either.
            return _hindered(view, max(_drawn(view), 1.0), f"the driver of node {view.node} is away ({why})")
        case Unmeasured(why, perhaps=True) if view.race is None or not view.race.shaken:
            wait = _again(view, max(_drawn(view), 1.0), f"the driver of node {view.node} may have gone ({why})")
            return replace(wait, race=replace(wait.race, shaken=True))
        case Unmeasured(why) if isinstance(view.placement, Ranked) and view.roster and _attempt(view) == 1:
            return _again(view, _after_the_others(view, floor=0.0), f"free space is not known ({why}), so the others come first")
        case Unmeasured(why):
            # Some node must own the claim, so that a creation is tried and its user sees the failure.
            return _bid(view, f"free space is not known ({why})")
        case CapacityAnswer() as answer if lacks_room(answer, needed, view.promised):
            floor = min(2.0 ** min(_attempt(view) - 1, 6), _LONGEST_RECHECK)
            why = f"no room on node {view.node}: {_room(answer, needed, view.promised)}"
            return _hindered(view, _after_the_others(view, floor=floor), why)
        case CapacityAnswer() as answer:
            return _bid(view, _room(answer, needed, view.promised))


def _bid(view: OwnershipView, why: str) -> Bid:
    return Bid(why, out_of_turn=_comes_later(view) or (view.race is not None and view.race.asks))


def _comes_later(view: OwnershipView) -> bool:
    """Whether another node comes before this one in the order."""
    return isinstance(view.placement, Ranked) and bool(_rank(view))


def lacks_room(answer: CapacityAnswer, needed: int, promised: int) -> bool:
    """Whether a claim of so many bytes does not fit into what the driver has answered, less what is promised to others."""
    # A negative maximum means that there is none. The published capacity treats it in the same way.
    return needed > answer.available - promised or (answer.maximum is not None and 0 <= answer.maximum < needed)


def _room(answer: CapacityAnswer, needed: int, promised: int) -> str:
    owed = f", {promised} of them promised to other claims" if promised else ""
    limit = "" if answer.maximum is None else f", largest volume {answer.maximum}"
    return f"{needed} bytes needed, {answer.available} free{owed}{limit}"


def _first_delay(view: OwnershipView) -> float:
    match view.placement:
        case RandomDelay() as random:
            return random.delay(0, view.chance)
        case Ranked(otherwise) as ranked:
            rank, tries = _rank(view), Tries.of(view.claim.notes)
            if view.node in tries.nodes:
                return tries.pause + _after_the_others(view, floor=0.0)
            return tries.spacing + (otherwise.delay(0, view.chance) if rank is None else ranked.delay(rank, view.chance))


def _due(view: OwnershipView, delay: float) -> float:
    return view.placement.due(view.now, delay)


def _rank(view: OwnershipView) -> int | None:
    if not view.roster:
        return None
    tried = Tries.of(view.claim.notes).nodes
    return view.roster.rank(view.node, view.claim.uid, view.claim.requested or 0, exact=SINGLE_STEPS, last=tried)


def _drawn(view: OwnershipView) -> float:
    """The next delay if all that is known is that the last one did not lead to an owner."""
    match view.placement:
        case RandomDelay() as random:
            return random.delay(_attempt(view), view.chance)
        case Ranked(otherwise) as ranked:
            longer = ranked.step * 2.0 ** min(_attempt(view) - 1, 6) * (1.0 + view.chance)
            return longer if view.roster else otherwise.delay(_attempt(view), view.chance)


def _after_the_others(view: OwnershipView, *, floor: float) -> float:
    """The next delay of a node that should let all others have their turn first."""
    match view.placement:
        case Ranked() as ranked if view.roster:
            # Each keeps its rank, so that nodes that are passed over together do not all come back at the same moment.
            turn = ranked.delay(_rank(view) or 0, view.chance)
            return max(ranked.after_all(len(view.roster), view.chance), floor) + turn
        case _:
            return max(_drawn(view), floor)


def _attempt(view: OwnershipView) -> int:
    """The number of the next attempt."""
    return view.race.attempt + 1 if view.race else 1


def _hindered(view: OwnershipView, delay: float, why: str) -> Wait:
    since = view.race.hindered_since if view.race and view.race.hindered_since is not None else view.now
    race = Race(
        _attempt(view),
        _due(view, delay),
        since,
        why,
        want=Want(view.claim.class_name, view.claim.namespace, view.claim.requested or 0),
        told=view.race.told if view.race else False,
        blind=_is_blind(view),
        source_unseen=not view.source_here,
    )
    turn = _turn_to_tell(view, race)
    return Wait(race.bid_at if turn is None else min(race.bid_at, turn), race, why)


def _again(view: OwnershipView, delay: float, why: str) -> Wait:
    before = replace(view.race or Race(0, 0.0), put_off_from=None)
    race = replace(before, attempt=_attempt(view), bid_at=_due(view, delay), blind=_is_blind(view))
    return Wait(race.bid_at, race, why)
