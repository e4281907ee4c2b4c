"""The thin model: a heap of events in virtual time, in which only those nodes act whose actions can matter.

Of the API server it keeps who owns each claim and since which event; of a node its free space, what is promised of it, and whether the
node is there. Nodes decide by the same `ownership` rules as the program.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from sidecar.csi.api import CapacityAnswer
from sidecar.model.objects import IMMEDIATE, Claim, Class
from sidecar.model.topology import Segment
from sidecar.ownership.placement import SINGLE_STEPS, Placement, RandomDelay, Ranked
from sidecar.ownership.roster import Roster
from sidecar.ownership.rules import Bid, Decision, Measure, OwnershipView, Race, Tell, Wait, decide, step_back
from sidecar.simulation.swarm.counts import Counts
from sidecar.simulation.swarm.lines import Lines
from sidecar.simulation.swarm.lists import Lists
from sidecar.simulation.swarm.scenario import RANKED, Part, Scenario, Trouble
from sidecar.simulation.swarm.turns import Turn, merged, random_turns, ranked_turns
from sidecar.simulation.world.network import Latency

_CLASS: Final = Class(
    name="immediate", uid="", provisioner="", parameters={}, reclaim_policy="Delete", binding_mode=IMMEDIATE, mount_options=(), allowed=()
)
_HERE: Final = Segment()
_CHECK: Final = 10.0
"""Seconds between two checks whether an open claim can still get a volume."""
# Of a claim, of which all nodes hear: made by its user and annotated by the volume controller; later its binding, in two steps.
# Of a volume, of which its own node hears: made, and bound.
_CLAIM_EVENTS: Final = 2
_BINDING_EVENTS: Final = 2
_VOLUME_EVENTS: Final = 2
_PUBLISHED_EVERY: Final = 1.0
_NOW: Final = Latency(0.0, 0.0)


@dataclass(slots=True, eq=False)
class _Node:
    number: int
    name: str
    free: int
    list_: int
    """The list of contenders that the node holds."""
    upstream: bool
    dead: bool
    promised: int = 0
    kept: int = 0
    """Bytes of promises that were kept or given up, ever."""
    published_at: float = -1.0
    back_at: float = 0.0
    waiting: "dict[_Race, tuple[_Seat, Race]]" = field(default_factory=dict)
    """Claims that it had no space for, and the next look that is due at each."""
    bidding: "set[_Race]" = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Race:
    """One claim, from its creation until it has a volume."""

    claim: Claim
    size: int
    came: float
    opened: float = 0.0
    """The last time at which it had no owner."""
    round: int = 0
    """How often it was given back."""
    owner: _Node | None = None
    named_at: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Seat:
    """A node that may bid for one claim."""

    race: _Race
    node: _Node
    round: int


class Swarm:
    """One race. `run` plays it to the end."""

    def __init__(self, scenario: Scenario, *, again: int = 0) -> None:
        self._scenario = scenario
        self._dice = scenario.dice(f"thin {again}")
        self._now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._lines = Lines(scenario.watch, scenario.dice("watch"))
        self._events = 0
        """Those that every running node hears."""
        self._own_events = 0
        self.counts = Counts()
        self._cast = scenario.cast()
        self._lists = Lists(scenario, self._cast)
        self._nodes = {part.name: _node(number, part, self._lists.of(number)) for number, part in enumerate(self._cast)}
        self._running = [node for node in self._nodes.values() if not node.dead]
        self._random = RandomDelay(scenario.base_delay, scenario.max_delay)
        self._ranked = Ranked(self._random) if scenario.step is None else Ranked(self._random, scenario.step)
        self._by_chance = [node for node in self._running if self._bids_by_chance(node)]
        self._by_rank = self._sorted_by_list()
        self._unbound: dict[_Race, None] = {}
        self._to_come = scenario.claims
        fixed = scenario.window is not None
        self._capacity = _NOW if fixed else scenario.capacity
        self._write = Latency(scenario.window, scenario.window) if scenario.window is not None else scenario.write

    def run(self) -> Counts:
        arrivals = self._scenario.arrivals()
        for number, at in enumerate(arrivals):
            self._at(at, self._come, number)
        for trouble in self._scenario.troubles():
            self._at(trouble.at, self._befall, trouble)
        for at, number in self._lists.renewals(arrivals[-1] + self._scenario.patience):
            self._at(at, self._renew, number)
        self._at(_CHECK, self._check, arrivals[-1] + self._scenario.patience)
        while self._heap and (self._to_come or self._unbound):
            self._now, _, act, about = heapq.heappop(self._heap)
            act(*about)
        return self._conclude()

    def share(self) -> float:
        return 1.0 - (self._to_come + len(self._unbound)) / self._scenario.claims

    def _conclude(self) -> Counts:
        counts = self.counts
        counts.fits = sum(self._fits_somewhere(race) for race in self._unbound)
        counts.events = self._events * len(self._running) + self._own_events
        counts.ended = self._now
        return counts

    def _at(self, when: float, act: Callable[..., None], *about: object) -> None:
        heapq.heappush(self._heap, (when, next(self._numbers), act, about))

    def _after(self, latency: Latency, act: Callable[..., None], *about: object) -> None:
        self._at(self._now + latency.draw(self._dice), act, *about)

    # --- a claim is created ------------------------------------------------------------------------------------------------

    def _come(self, number: int) -> None:
        self._to_come -= 1
        self._events += _CLAIM_EVENTS
        race = _Race(_claim(f"{self._dice.getrandbits(128):032x}", number, self._scenario.size), self._scenario.size, self._now)
        self._unbound[race] = None
        self._open(race)

    def _open(self, race: _Race, *, besides: _Node | None = None) -> None:
        race.opened, race.owner = self._now, None
        turns = self._turns(race)
        self._next_turn(race, race.round, turns if besides is None else (turn for turn in turns if turn[1] is not besides))

    def _turns(self, race: _Race) -> Iterator[Turn[_Node]]:
        kinds = [random_turns(self._by_chance, self._random, self._dice)] if self._by_chance else []
        for roster, nodes in self._by_rank:
            kinds.append(ranked_turns(nodes, roster, self._ranked, self._dice, uid=race.claim.uid, needed=race.size))
        return merged(kinds)

    def _placement(self, node: _Node) -> Placement:
        return self._random if self._bids_by_chance(node) else self._ranked

    def _bids_by_chance(self, node: _Node) -> bool:
        return node.upstream or self._scenario.placement != RANKED

    def _sorted_by_list(self) -> list[tuple[Roster, dict[str, _Node]]]:
        """The nodes that bid by rank, those with the same list together."""
        found: dict[int, tuple[Roster, dict[str, _Node]]] = {}
        for node in self._running:
            if not self._bids_by_chance(node):
                roster = self._lists.roster(node.list_)
                found.setdefault(id(roster), (roster, {}))[1][node.name] = node
        return list(found.values())

    def _next_turn(self, race: _Race, number: int, turns: Iterator[Turn[_Node]]) -> None:
        if (turn := next(turns, None)) is not None:
            delay, node = turn
            self._at(race.opened + delay, self._turn, race, number, turns, delay, node)

    def _turn(self, race: _Race, number: int, turns: Iterator[Turn[_Node]], delay: float, node: _Node) -> None:
        """The delay of this node is over, if it had heard of the claim at once."""
        if race.round != number or (race.owner is not None and self._now > race.named_at + self._lines.longest):
            return  # everybody knows the owner
        self._next_turn(race, number, turns)
        if node.back_at <= self._now:
            due = self._placement(node).due(self._hears_of(race, node), delay)
            self._at(due, self._look, _Seat(race, node, number), Race(0, due))

    # --- a node looks at it -------------------------------------------------------------------------------------------

    def _look(self, seat: _Seat, turn: Race) -> None:
        race, node = seat.race, seat.node
        if self._is_over(seat) or race in node.bidding or _is_old(node.waiting.get(race), seat, turn):
            return
        node.waiting.pop(race, None)
        decision = decide(self._view(seat, turn))
        if isinstance(decision, Measure):
            self.counts.measured += 1
            self._after(self._capacity, self._measured, seat, turn, node.kept)
        else:
            self._follow(seat, decision)

    def _is_over(self, seat: _Seat) -> bool:
        """Whether the race is over for this node: it is away, or knows who has the claim."""
        race, node = seat.race, seat.node
        if node.back_at > self._now or race.round != seat.round or race.owner is node:
            return True
        return race.owner is not None and self._hears_of_owner(race, node) <= self._now

    def _hears_of(self, race: _Race, node: _Node) -> float:
        """When the node hears that the claim is open."""
        return self._lines.heard(node.number, race.opened) if self._scenario.window is None else race.opened + self._lines.usual

    def _hears_of_owner(self, race: _Race, node: _Node) -> float:
        return self._lines.heard(node.number, race.named_at) if self._scenario.window is None else race.named_at

    def _measured(self, seat: _Seat, turn: Race, kept: int) -> None:
        """The driver has answered. Space that was promised when it was asked counts too, even if it has been given up since."""
        node = seat.node
        if node.back_at <= self._now:
            promised = 0 if node.upstream else node.promised + node.kept - kept
            self._follow(seat, decide(self._view(seat, turn, CapacityAnswer(node.free), promised=promised)))

    def _view(self, seat: _Seat, turn: Race, free: CapacityAnswer | None = None, *, promised: int = 0) -> OwnershipView:
        node = seat.node
        return OwnershipView(
            now=self._now,
            node=node.name,
            segment=_HERE,
            with_topology=False,
            bids=True,
            placement=self._placement(node),
            chance=self._dice.random(),
            claim=seat.race.claim,
            class_=_CLASS,
            race=turn,
            free=free,
            promised=promised,
            roster=None if self._bids_by_chance(node) else self._lists.roster(node.list_),
        )

    def _follow(self, seat: _Seat, decision: Decision) -> None:
        race, node = seat.race, seat.node
        match decision:
            case Bid() if not node.upstream and self._is_over(seat):
                pass  # the event came while the driver was asked, so there is no write
            case Bid(_, out_of_turn):
                node.promised += race.size
                node.bidding.add(race)
                if out_of_turn:
                    self.counts.requests["look"] += 1
                    self._after(self._write, self._looked, seat)
                else:
                    self._write_bid(seat)
            case Wait(until, turn) if node.free >= race.size:
                self._wait(seat, turn, until)
            case Wait():
                pass  # nothing is deleted here: it would look in vain for ever
            case Tell(turn):
                self.counts.requests["event"] += 1
                self._wait(seat, turn, self._now)
            case _:
                raise AssertionError(f"a claim that is open led to {decision}")

    def _wait(self, seat: _Seat, turn: Race, until: float) -> None:
        seat.node.waiting[seat.race] = seat, turn
        self._at(until, self._look, seat, turn)

    # --- the write of a bid, and what follows ----------------------------------------------------------------------------------

    def _looked(self, seat: _Seat) -> None:
        """The API server has said whether it is still open."""
        race, node = seat.race, seat.node
        if race.owner is None and race.round == seat.round:
            self._write_bid(seat)
        else:
            node.bidding.discard(race)
            _end_promise(node, race.size)

    def _write_bid(self, seat: _Seat) -> None:
        self.counts.requests["bid"] += 1
        self._after(self._write, self._land, seat)

    def _land(self, seat: _Seat) -> None:
        race, node = seat.race, seat.node
        node.bidding.discard(race)
        if race.owner is None and race.round == seat.round:
            if not race.round:
                self.counts.latencies.append(self._now - race.came)
            race.owner, race.named_at = node, self._now
            self._events += 1
            self._publish(node)
            # Upstream's waits for its own write to come back by the watch.
            self._at(self._hears_of_owner(race, node) if node.upstream else self._now, self._create, seat)
        else:
            self.counts.conflicts += 1
            _end_promise(node, race.size)

    def _create(self, seat: _Seat) -> None:
        if seat.node.back_at > self._now:
            self._at(seat.node.back_at, self._create, seat)
            return
        self.counts.requests["event"] += 1
        self._after(self._scenario.creation, self._created, seat)

    def _created(self, seat: _Seat) -> None:
        race, node = seat.race, seat.node
        if node.free >= race.size:
            node.free -= race.size
            self._send(seat, "volume", self._stored)
        else:
            self.counts.failed += 1
            self._send(seat, "give back", self._given_back)
        _end_promise(node, race.size)
        self.counts.requests["event"] += 1

    def _publish(self, node: _Node) -> None:
        """What is left is less than before; its driver is asked how much. Figures are written at most once in so long."""
        if self._scenario.placement == RANKED and self._scenario.figures and node.published_at <= self._now:
            node.published_at = max(self._now, node.published_at + _PUBLISHED_EVERY)
            self.counts.requests["figure"] += 1
            self.counts.measured += 1

    def _send(self, seat: _Seat, what: str, then: Callable[[_Seat], None]) -> None:
        """As soon as the node can."""
        self.counts.requests[what] += 1
        away = max(seat.node.back_at - self._now, 0.0)
        self._at(self._now + away + self._scenario.write.draw(self._dice), then, seat)

    def _stored(self, seat: _Seat) -> None:
        """The volume controller binds."""
        del self._unbound[seat.race]
        self.counts.volumes[seat.node.name] += 1
        self._events += _BINDING_EVENTS
        self._own_events += _VOLUME_EVENTS

    def _given_back(self, seat: _Seat) -> None:
        """A node that had the claim and no space lets the others bid first, except under upstream's rule."""
        race, node = seat.race, seat.node
        race.round += 1
        self._events += 1
        self._open(race, besides=None if node.upstream else node)
        if not node.upstream:
            again = _Seat(race, node, race.round)
            turn = step_back(self._view(again, Race(0, self._now)))
            self._wait(again, turn, turn.bid_at)

    # --- what happens to nodes ----------------------------------------------------------------------------------------

    def _befall(self, trouble: Trouble) -> None:
        """A process that restarts has lost its place in every race; one that was cut off has missed events."""
        node = self._nodes[trouble.node]
        node.back_at = max(node.back_at, self._now + self._scenario.away)
        node.waiting.clear()
        self._at(node.back_at, self._return, node)

    def _return(self, node: _Node) -> None:
        if node.back_at > self._now:
            return
        for race in self._unbound:
            if race.owner is None:
                heard = max(self._hears_of(race, node), self._now)
                turn = Race(0, self._placement(node).due(heard, self._delay(node, race)))
                self._at(turn.bid_at, self._look, _Seat(race, node, race.round), turn)

    def _delay(self, node: _Node, race: _Race) -> float:
        if self._bids_by_chance(node):
            return self._random.delay(0, self._dice.random())
        rank = self._lists.roster(node.list_).rank(node.name, race.claim.uid, race.size, exact=SINGLE_STEPS)
        return self._ranked.delay(rank, self._dice.random())

    def _renew(self, number: int) -> None:
        """Renews that list for the nodes that hold it. Dead nodes stay on it, because their objects outlive them."""
        self._lists.renew(number, {node.name: node.free for node in self._nodes.values()})
        self._by_rank = self._sorted_by_list()

    def _check(self, end: float) -> None:
        """Ends the race for claims that fit nowhere, if nothing is under way."""
        over = self._now >= end or not (self._to_come or any(self._may_come_right(race) for race in self._unbound))
        if over:
            self._heap.clear()
        else:
            self._at(self._now + _CHECK, self._check, end)

    def _may_come_right(self, race: _Race) -> bool:
        return race.owner is not None or self._fits_somewhere(race)

    def _fits_somewhere(self, race: _Race) -> bool:
        return any(node.free >= race.size for node in self._running)


def play(scenario: Scenario, *, again: int = 0, watched: Callable[[Callable[[], float]], None] = lambda _: None) -> Counts:
    """`again` draws the nodes' delays anew, with the same claims and the same network. `watched` is handed what tells, from any thread,
    which share of the race is over."""
    swarm = Swarm(scenario, again=again)
    watched(swarm.share)
    return swarm.run()


def _end_promise(node: _Node, size: int) -> None:
    node.promised -= size
    node.kept += size


def _is_old(due: tuple[_Seat, Race] | None, seat: _Seat, turn: Race) -> bool:
    """Whether another look of the same race has replaced this one."""
    return due is not None and due[0].round == seat.round and due[1] is not turn


def _node(number: int, part: Part, list_: int) -> _Node:
    return _Node(number, part.name, free=0 if part.full else part.space, list_=list_, upstream=part.upstream, dead=part.dead)


def _claim(uid: str, number: int, size: int) -> Claim:
    return Claim(
        uid=f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}",
        namespace="default",
        name=f"data-{number}",
        resource_version="",
        provisioner="",
        class_name=_CLASS.name,
        selected_node="",
        volume_name="",
        deleting=False,
        requested=size,
        volume_mode="Filesystem",
        access_modes=("ReadWriteOnce",),
        has_selector=False,
        source=None,
        attributes_class="",
    )
