import math
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.engine.queue import Counts, Row, WorkQueue

KEYS = st.sampled_from("abcdef")
MOMENTS = st.integers(-3, 12).map(float)  # whole numbers, so that equal times are common


@dataclass
class Wish:
    """What the naive model knows of a key that somebody asked for."""

    at: float
    asked: int


class QueueAgainstModel(RuleBasedStateMachine):
    """The queue beside a model that has no heap: every answer is found by looking at everything."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue[str]()
        self.now = 0.0
        self.wishes: dict[str, Wish] = {}
        self.held: dict[str, tuple[float, float]] = {}
        self.asked = 0
        self.adds = 0
        self.parties = False
        self.most_held = math.inf
        self.passed_over: dict[str, list[str]] = {}
        """By party that waits for its turn, who was served since."""

    def party(self, key: str) -> str:
        return {"a": "A", "b": "A", "c": "A", "d": "B", "e": "B", "f": "C"}[key] if self.parties else ""

    def givable(self) -> dict[str, str]:
        """By party, the key that is due for longest, unless the party holds as many as it may."""
        holders = [self.party(key) for key in self.held]
        due = sorted((wish.at, wish.asked, key) for key, wish in self.wishes.items() if key not in self.held and wish.at <= self.now)
        firsts = {self.party(key): key for _, _, key in reversed(due)}
        return {party: key for party, key in firsts.items() if holders.count(party) < self.most_held}

    def next_number(self) -> int:
        self.asked += 1
        return self.asked

    @initialize(crowd=st.booleans(), parties=st.booleans(), most_held=st.sampled_from([1, 2, math.inf]))
    def start(self, crowd: bool, parties: bool, most_held: float) -> None:
        """Sometimes with so many stale entries that the heap has been tidied."""
        self.parties, self.most_held = parties, most_held
        self.queue = WorkQueue[str](self.party, most_held=most_held)
        if crowd:
            for at in range(500, 0, -1):
                self.queue.add("a", 100.0 + at)
            self.wishes["a"] = Wish(101.0, self.next_number())
            self.adds = 1

    @rule(key=KEYS, offset=MOMENTS)
    def add(self, key: str, offset: float) -> None:
        at = self.now + offset
        wish = self.wishes.get(key)
        assert self.queue.add(key, at) == (wish is None)
        self.adds += wish is None
        if wish is None or at < wish.at:
            self.wishes[key] = Wish(at, self.next_number())

    @rule()
    def take(self) -> None:
        givable = self.givable()
        key = self.queue.take(self.now)
        assert key in givable.values() if givable else key is None
        if key is not None:
            self.count_turns(self.party(key), givable)
            assert key not in self.held, "two holders"
            self.held[key] = (self.wishes.pop(key).at, self.now)
            hold = self.queue.hold(key)
            assert (hold.due, hold.since) == self.held[key]

    def count_turns(self, served: str, givable: dict[str, str]) -> None:
        self.passed_over = {party: [*self.passed_over.get(party, []), served] for party in givable if party != served}
        for others in self.passed_over.values():
            assert len(others) == len(set(others)), "somebody had two turns while another waited"

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        _, since = self.held.pop(key)
        assert self.queue.done(key, self.now) == self.now - since
        if key in self.wishes:  # it joins the line now, behind those that want the same time
            self.wishes[key].asked = self.next_number()

    @rule(key=KEYS)
    def discard(self, key: str) -> None:
        self.queue.discard(key)
        self.wishes.pop(key, None)

    @rule(seconds=st.integers(0, 5))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def says_when_to_come_back(self) -> None:
        holders = [self.party(key) for key in self.held]
        full = {party for party in holders if holders.count(party) >= self.most_held}
        waiting = {key: wish.at for key, wish in self.wishes.items() if key not in self.held}
        told, soonest = self.queue.next_at(), min((at for key, at in waiting.items() if self.party(key) not in full), default=None)
        if soonest is None or soonest > self.now:  # a key of a full party may be told once, until it has fallen due
            assert told == soonest or (told in waiting.values() and full)
        else:
            assert told is not None
            assert told <= self.now

    @invariant()
    def counts_as_the_model_does(self) -> None:
        takeable = [wish.at for key, wish in self.wishes.items() if key not in self.held]
        ages = [self.now - since for _, since in self.held.values()]
        assert self.queue.ready(self.now) == sum(at <= self.now for at in takeable)
        assert (self.queue.waiting, self.queue.held) == (len(takeable), len(ages))
        assert self.queue.counts(self.now) == Counts(
            depth=sum(wish.at <= self.now for wish in self.wishes.values()),
            delayed=sum(at > self.now for at in takeable),
            held=len(ages),
            adds=self.adds,
            unfinished_seconds=sum(ages),
            longest_seconds=max(ages, default=0.0),
        )

    @invariant()
    def shows_every_key_once(self) -> None:
        rows = self.queue.snapshot(self.now)
        assert sorted(row.key for row in rows) == sorted(self.held.keys() | self.wishes.keys())
        assert {row.key for row in rows if row.state == "held"} == self.held.keys()

    def teardown(self) -> None:
        """Nothing is lost: let go of everything, wait long enough, and every wish is granted once."""
        for key in list(self.held):
            self.queue.done(key, self.now)
        given = []
        while (key := self.queue.take(math.inf)) is not None:
            self.queue.done(key, self.now)
            given.append(key)
        assert sorted(given) == sorted(self.wishes)


QueueAgainstModel.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestQueueAgainstModel = QueueAgainstModel.TestCase


def test_time_in_the_queue_counts_from_being_due():
    queue = WorkQueue[str]()
    queue.add("a", 10.0)
    queue.take(12.5)
    assert queue.hold("a").queued == 2.5


def test_a_time_that_never_comes_is_refused():
    for at in [math.inf, -math.inf, math.nan]:
        with pytest.raises(ValueError, match="is no time"):
            WorkQueue[str]().add("a", at)


def test_keys_that_have_failed_in_many_parties_make_a_new_one_wait_for_none_of_them():
    queue = WorkQueue[str](lambda key: key, has_failed=lambda key: key != "quiet")
    for number in range(10_000):
        queue.add(f"loud-{number}", 0.0)
    assert [queue.take(0.0) for _ in range(2)] == ["loud-0", "loud-1"]
    queue.add("quiet", 1.0)
    assert [queue.take(1.0) for _ in range(2)] == ["quiet", "loud-2"]


def test_keys_that_have_failed_do_not_hold_all_workers_however_many_parties_they_are_of():
    queue = WorkQueue[str](lambda key: key, has_failed=lambda key: key.startswith("loud"), most_held=2)
    for number in range(5):
        queue.add(f"loud-{number}", 0.0)
    assert [queue.take(0.0) for _ in range(3)] == ["loud-0", "loud-1", None]
    assert queue.next_at() is None
    queue.add("quiet", 0.0)
    assert [queue.take(0.0) for _ in range(2)] == ["quiet", None]
    queue.done("loud-0", 1.0)
    assert (queue.take(1.0), queue.take(1.0)) == ("loud-2", None)


def test_the_snapshot_reads_as_the_order_of_events():
    queue = WorkQueue[str]()
    for key, at in [("held longest", 0.0), ("held", 1.0), ("held and due again", 1.5)]:
        queue.add(key, at)
        queue.take(at)
    queue.add("held and due again", 4.0)
    queue.add("later", 60.0)
    queue.add("due", 3.0)
    assert queue.snapshot(5.0, attempts=lambda key: 3 if key == "later" else 0) == [
        Row("held longest", "held", None, 5.0, 0),
        Row("held", "held", None, 4.0, 0),
        Row("held and due again", "held", -1.0, 3.5, 0),
        Row("due", "ready", -2.0, None, 0),
        Row("later", "delayed", 55.0, None, 3),
    ]
