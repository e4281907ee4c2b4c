"""What is promised counts once, for the classes that draw on it, and whoever needs to know is told."""

from dataclasses import dataclass, field

from sidecar.csi.api import CapacityAnswer
from sidecar.model.objects import Class
from sidecar.ownership.promises import Promise, held
from sidecar.ownership.reserved_space import Pools, ReservedSpace
from tests.harness import samples

FAST, SLOW, TWIN = "fast", "slow", "twin"
ENOUGH = CapacityAnswer(2**40)
CLASSES = {
    FAST: samples.class_(parameters={"pool": "fast"}),
    SLOW: samples.class_(parameters={"pool": "slow"}),
    TWIN: samples.class_(parameters={"pool": "fast", "fs": "ext4"}),
}


@dataclass
class Heard:
    """A space, and what it has told."""

    promises: dict[str, Promise] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=lambda: dict(CLASSES))
    changes: list[set[str]] = field(default_factory=list)
    urgent: list[bool] = field(default_factory=list)
    growth: list[tuple[set[str], int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.space = ReservedSpace(classes=lambda: self.classes)
        self.promise(**self.promises)
        self.space.on_change = self.told
        self.space.on_growth = lambda names, answer, promised: self.growth.append((set(names), answer.available, promised))

    def promise(self, **promises: Promise | None) -> None:
        for uid, promise in promises.items():
            self.space.promises.put(uid, promise)

    def told(self, classes: frozenset[str], *, at_once: bool) -> None:
        self.changes.append(set(classes))
        self.urgent.append(at_once)


def test_a_class_draws_on_its_own_space_until_more_is_known() -> None:
    assert Pools().sharing(FAST, CLASSES) == {FAST}


def said(pools: Pools, **answers: int) -> Pools:
    """What the driver says now."""
    for name, free in answers.items():
        pools.heard(name, CapacityAnswer(free))
    return pools


def share_a_pool(pools: Pools) -> Pools:
    """A volume of one class was made, and the other's figure fell with it."""
    said(pools, fast=10, twin=10)
    pools.changed(FAST)
    return said(pools, fast=9, twin=9)


def test_a_figure_that_moves_with_the_volumes_of_another_class_is_the_same_pool_until_they_differ() -> None:
    pools = share_a_pool(Pools())
    assert pools.sharing(FAST, CLASSES) == {FAST, TWIN} == pools.sharing(TWIN, CLASSES)
    assert pools.sharing(SLOW, CLASSES) == {SLOW}
    pools.changed(FAST)
    said(pools, fast=8)
    assert pools.sharing(FAST, CLASSES) == {FAST, TWIN}, "the other has not been asked since, so nothing speaks against it"
    said(pools, twin=9)
    assert pools.sharing(FAST, CLASSES) == {FAST}


def test_promises_of_classes_that_share_count_and_ones_own_does_not() -> None:
    heard = Heard({"a": Promise(FAST, 1), "b": Promise(TWIN, 2), "c": Promise(SLOW, 4)})
    share_a_pool(heard.space._pools)
    assert heard.space.promised(FAST, ENOUGH) == 3
    assert heard.space.promised(FAST, ENOUGH, besides="a") == 2
    assert heard.space.promised(SLOW, ENOUGH) == 4


def test_what_was_promised_when_the_driver_was_asked_counts_too_and_once() -> None:
    heard = Heard({"a": Promise(FAST, 1)})
    with heard.space.promises.moment() as asked:
        heard.promise(b=Promise(FAST, 2))
        assert heard.space.promised(FAST, ENOUGH, since=asked) == 3
        heard.promise(a=None)
        assert heard.space.promised(FAST, ENOUGH, since=asked) == 3
        assert heard.space.promised(FAST, ENOUGH, besides="a", since=asked) == 2


def test_C16_a_volume_that_came_or_went() -> None:
    for placed, wanted in [(True, set(CLASSES)), (False, {FAST})]:
        heard = Heard()
        heard.space.changed(FAST, placed=placed)
        assert heard.changes == [wanted]


def test_another_answer_before_a_bid_says_that_what_is_published_may_be_old() -> None:
    heard = Heard()
    for answer in (10, 10, 9):
        heard.space.bid_for(FAST, CapacityAnswer(answer))
    assert heard.changes == [{FAST}]
    heard.space.published(FAST, CapacityAnswer(5))
    assert heard.changes == [{FAST}], "whoever publishes has just been told"


def test_growth_is_told_and_only_growth() -> None:
    heard = Heard({"a": Promise(FAST, 5)})
    for answer in (10, 9, 9, 12):
        heard.space.published(FAST, CapacityAnswer(answer))
    assert heard.growth == [({FAST}, 12, 5)]


def test_a_larger_largest_volume_is_growth_too() -> None:
    """A negative one means that there is none, as none at all does."""
    for before, after, told in [
        (99, 100, True),
        (99, None, True),
        (0, 1, True),
        (100, 99, False),
        (100, 100, False),
        (None, 100, False),
        (-1, 100, False),
        (None, -1, False),
        (99, -1, True),
    ]:
        heard = Heard()
        for maximum in (before, after):
            heard.space.bid_for(FAST, CapacityAnswer(1000, maximum=maximum))
        assert heard.growth == ([({FAST}, 1000, 0)] if told else [])


def test_a_volume_that_went_makes_room_for_who_waits_at_once() -> None:
    heard = Heard({"a": Promise(FAST, 1)})
    heard.space.freed(FAST, 4, placed=True)
    heard.space.bid_for(FAST, CapacityAnswer(10))
    heard.space.freed(FAST, 4, placed=False)
    assert heard.growth == [(set(CLASSES), 4, 1), ({FAST}, 14, 1)]


def test_what_cannot_be_taken_holds_nothing() -> None:
    heard = Heard({"a": Promise(FAST, 50), "b": Promise(FAST, 3)})
    assert heard.space.promised(FAST, CapacityAnswer(10)) == 3
    assert heard.space.promised(FAST, CapacityAnswer(60)) == 53
    assert heard.space.promised(FAST, CapacityAnswer(60, maximum=40)) == 3
    assert heard.space.promised(FAST, CapacityAnswer(60, maximum=-1)) == 53, "a negative largest volume is none"
    assert heard.space.promised(FAST, CapacityAnswer(-1)) == 0


def test_a_namespace_holds_half_while_others_wait() -> None:
    owed = [*(Promise(FAST, 10, "greedy") for _ in range(10)), Promise(FAST, 5, "modest")]
    assert held(owed, 100) == 100
    assert held(owed, 100, waiting={"greedy"}) == 100, "nobody else waits"
    assert held(owed, 100, waiting={"third"}) == 55
    assert held(owed, 105, waiting={"greedy", "modest"}) == 57
