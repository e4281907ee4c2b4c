"""n rules play against each other over an API that is late and loses things: never two owners, and always one while there is room."""

import heapq
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Unmeasured
from sidecar.model.objects import Claim
from sidecar.ownership.placement import Placement, RandomDelay, Ranked
from sidecar.ownership.roster import Roster
from sidecar.ownership.rules import Bid, LostTo, Measure, NotForUs, Ours, OwnershipView, Race, Tell, Wait, after_conflict, decide
from tests.harness import samples

ROOM, FULL, SILENT = CapacityAnswer(2**40), CapacityAnswer(0), Unmeasured("rpc error: code = Internal")
UPSTREAM = RandomDelay(20.0, 60.0)
IMMEDIATE = samples.class_(volumeBindingMode="Immediate")


@dataclass
class Node:
    """What one node has seen and remembers."""

    name: str
    free: CapacityAnswer | Unmeasured
    roster: Roster | None
    claim: Claim | None = None
    race: Race | None = None
    looked_for: float = -1.0
    notices: int = 0


@dataclass
class Play:
    """The API server is one claim with a version; everything on the way to and from it takes as long as the dice say."""

    nodes: list[Node]
    placement: Placement
    dice: random.Random
    slowest: float
    lost: float
    local_delay: float = 0.0
    watch_down: float = 0.0
    owner: str = ""
    owned_at: float = 0.0
    version: int = 1
    events: list[tuple[float, int, str, Node, object]] = field(default_factory=list)
    count: int = 0

    def run(self, limit: float) -> None:
        for node in self.nodes:
            self.at(self.delay(), "seen", node, samples.claim(meta={"resourceVersion": "1"}))
        while self.events:
            now, _, what, node, detail = heapq.heappop(self.events)
            if now > limit:
                return
            getattr(self, what)(now, node, detail)

    def at(self, when: float, what: str, node: Node, detail: object = None) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, what, node, detail))

    def delay(self) -> float:
        return self.dice.random() * self.slowest

    def seen(self, now: float, node: Node, claim: object) -> None:
        assert isinstance(claim, Claim)
        if node.claim is None or int(claim.resource_version) > int(node.claim.resource_version):
            node.claim = claim
            self.look(now, node, None)

    def look(self, now: float, node: Node, _: object) -> None:
        assert node.claim is not None
        view = self.view(now, node)
        decision = decide(view)
        if isinstance(decision, Measure):
            decision = decide(replace(view, free=node.free))
        match decision:
            case Wait(until, race):
                node.race = race
                self.at(max(until, now + 1e-6), "look", node)
            case Tell(race):
                node.race = race
                node.notices += 1
                self.at(now, "look", node)
            case Bid():
                self.at(now + self.delay(), "arrive", node, node.claim.resource_version)
            case Ours():
                assert self.owner == node.name
            case NotForUs():
                node.race = None
            case LostTo(winner):
                assert self.owner == winner
                node.race = None

    def view(self, now: float, node: Node) -> OwnershipView:
        assert node.claim is not None
        return OwnershipView(
            now=now,
            node=node.name,
            segment=samples.info().segment,
            with_topology=True,
            bids=True,
            placement=self.placement,
            chance=self.dice.random(),
            local_delay=self.local_delay,
            watch_down=self.dice.random() < self.watch_down,
            claim=node.claim,
            class_=IMMEDIATE,
            race=node.race,
            free=None,
            roster=node.roster,
        )

    def arrive(self, now: float, node: Node, version: object) -> None:
        """The write reaches the server, or not; its answer comes back, or not. Who hears nothing looks again after a while."""
        if self.dice.random() < self.lost:
            self.at(now + 10.0, "look", node)  # no answer: it is not known what became of it
            return
        won = version == str(self.version)
        if won:
            assert not self.owner, "two owners"
            self.owner, self.owned_at, self.version = node.name, now, self.version + 1
            claim = samples.claim(selected=node.name, meta={"resourceVersion": str(self.version)})
            for other in self.nodes:
                self.at(now + self.delay(), "seen", other, claim)
        if self.dice.random() < self.lost:
            self.at(now + 10.0, "look", node)
        else:
            self.at(now + self.delay(), "answer", node, won)

    def answer(self, now: float, node: Node, won: object) -> None:
        if not won:
            wait = after_conflict(self.view(now, node))
            node.race = wait.race
            self.at(wait.until, "look", node)


@st.composite
def rosters(draw: st.DrawFn, names: list[str]) -> Roster | None:
    """Right, missing, partial, or full of nodes that are gone."""
    kind = draw(st.sampled_from(["right", "none", "partial", "stale"]))
    if kind == "none":
        return None
    some = draw(st.lists(st.sampled_from(names), min_size=1, unique=True)) if kind == "partial" else names
    gone = [f"gone-{number}" for number in range(draw(st.integers(0, 40)))] if kind == "stale" else []
    return Roster.of([*some, *gone], draw(st.dictionaries(st.sampled_from(names), st.integers(0, 2**40), max_size=len(names))))


@pytest.mark.parametrize("placement", [UPSTREAM, Ranked(UPSTREAM)], ids=["random", "ranked"])
@settings(max_examples=40)
@given(data=st.data())
def test_N22_never_two_owners_and_always_one_while_somebody_has_room(placement: Placement, data: st.DataObject) -> None:
    answers = data.draw(st.lists(st.sampled_from([ROOM, FULL, FULL, SILENT]), min_size=1, max_size=12))
    names = [f"n{number}" for number in range(len(answers))]
    play = Play(
        [Node(name, free, data.draw(rosters(names))) for name, free in zip(names, answers, strict=True)],
        placement,
        random.Random(data.draw(st.integers(0, 2**32))),
        slowest=data.draw(st.sampled_from([0.0, 0.05, 1.0, 20.0])),
        lost=data.draw(st.sampled_from([0.0, 0.3])),
        local_delay=data.draw(st.sampled_from([0.0, 0.3, 30.0])),
        watch_down=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
    )
    play.run(limit=900.0)
    has_room = any(answer is not FULL for answer in answers)
    assert bool(play.owner) == has_room
    if play.owner:
        assert next(node.free for node in play.nodes if node.name == play.owner) is not FULL
    else:
        assert sum(node.notices for node in play.nodes) >= 1, "somebody says why it waits"
        assert all(node.notices <= 1 for node in play.nodes)


def test_with_the_right_knowledge_the_first_node_has_it_at_once_and_nobody_else_bids() -> None:
    for nodes in [3, 30, 300]:
        names = [f"n{number}" for number in range(nodes)]
        play = Play([Node(name, ROOM, Roster.of(names, {})) for name in names], Ranked(UPSTREAM), random.Random(7), slowest=0.1, lost=0.0)
        play.run(limit=60.0)
        assert play.owner == Roster.of(names, {}).order("testid", 100)[0]
        assert play.owned_at <= 0.2 and play.version == 2


def test_full_nodes_nobody_knows_of_cost_seconds_not_minutes() -> None:
    for full in [10, 100, 290]:
        names = [f"n{number}" for number in range(300)]
        roster = Roster.of(names, {})
        last = set(roster.order("testid", 100)[full:])
        play = Play([Node(name, ROOM if name in last else FULL, roster) for name in names], Ranked(UPSTREAM), random.Random(7), 0.1, 0.0)
        play.run(limit=60.0)
        assert play.owner in last and play.owned_at <= 8.0
