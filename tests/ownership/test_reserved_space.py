"""What is promised counts once, for the classes that draw on it, and whoever needs to know is told."""

from dataclasses import dataclass, field

import pytest

from sidecar.csi.api import CapacityAnswer
from sidecar.model.objects import Class
from sidecar.ownership.reserved_space import Pools, Promise, ReservedSpace
from tests.harness import samples

FAST, SLOW, TWIN = "fast", "slow", "fast-ext4"
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
    growth: list[tuple[set[str], int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.space = ReservedSpace(classes=lambda: self.classes, promises=lambda: self.promises)
        self.space.on_change = self.told
        self.space.on_growth = lambda names, free: self.growth.append((set(names), free))

    def told(self, classes: frozenset[str], *, at_once: bool) -> None:
        self.changes.append(set(classes))
        self.urgent.append(at_once)


def test_a_class_draws_on_its_own_space_until_more_is_known() -> None:
    assert Pools().sharing(FAST, CLASSES) == {FAST}


def test_equal_parameters_are_one_pool() -> None:
    classes = {**CLASSES, "again": samples.class_(parameters={"pool": "fast"})}
    assert Pools().sharing(FAST, classes) == {FAST, "again"}


def test_equal_answers_at_one_moment_are_one_pool_until_they_differ() -> None:
    pools = Pools()
    pools.heard(FAST, CapacityAnswer(10))
    pools.heard(TWIN, CapacityAnswer(10))
    pools.heard(SLOW, CapacityAnswer(20))
    assert pools.sharing(FAST, CLASSES) == {FAST, TWIN} == pools.sharing(TWIN, CLASSES)
    assert pools.sharing(SLOW, CLASSES) == {SLOW}
    pools.changed()
    pools.heard(FAST, CapacityAnswer(9))
    assert pools.sharing(FAST, CLASSES) == {FAST, TWIN}, "the other has not been asked since, so nothing speaks against it"
    pools.heard(TWIN, CapacityAnswer(10))
    assert pools.sharing(FAST, CLASSES) == {FAST}


def test_answers_from_before_and_after_a_change_are_not_compared() -> None:
    pools = Pools()
    pools.heard(FAST, CapacityAnswer(10))
    pools.changed()
    pools.heard(SLOW, CapacityAnswer(10))
    assert pools.sharing(FAST, CLASSES) == {FAST}


def test_a_class_that_comes_back_under_its_name_begins_anew() -> None:
    pools = Pools()
    pools.heard(FAST, CapacityAnswer(10))
    pools.heard(TWIN, CapacityAnswer(10))
    pools.forget(TWIN)
    assert pools.sharing(FAST, CLASSES) == {FAST}


def test_promises_of_classes_that_share_count_and_ones_own_does_not() -> None:
    heard = Heard({"a": Promise(FAST, 1), "b": Promise(TWIN, 2), "c": Promise(SLOW, 4)})
    heard.space.published(FAST, CapacityAnswer(10))
    heard.space.published(TWIN, CapacityAnswer(10))
    assert heard.space.promised(FAST) == 3
    assert heard.space.promised(FAST, besides="a") == 2
    assert heard.space.promised(SLOW) == 4


def test_what_was_promised_when_the_driver_was_asked_counts_too_and_once() -> None:
    heard = Heard({"a": Promise(FAST, 1)})
    before = heard.space.promises()
    heard.promises = {"a": Promise(FAST, 1), "b": Promise(FAST, 2)}
    assert heard.space.promised(FAST, before=before) == 3
    heard.promises = {"b": Promise(FAST, 2)}
    assert heard.space.promised(FAST, before=before) == 3


@pytest.mark.parametrize(
    ("placed", "wanted"), [pytest.param(True, set(CLASSES), id="C16-placed"), pytest.param(False, {FAST}, id="C16-not")]
)
def test_a_volume_that_came_or_went(placed: bool, wanted: set[str]) -> None:
    heard = Heard()
    heard.space.changed(FAST, placed=placed)
    assert heard.changes == [wanted]


def test_a_class_nobody_knows_changes_nothing() -> None:
    heard = Heard()
    heard.space.changed("gone", placed=False)
    assert heard.changes == [set()]


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
    assert heard.growth == [({FAST}, 7)]


def test_what_is_promised_is_not_worth_asking_for_in_the_moment_in_which_most_of_it_is_created() -> None:
    heard = Heard({"a": Promise(FAST, 5)})
    heard.space.promise_changed(FAST)
    heard.space.changed(FAST, placed=True)
    assert heard.urgent == [False, True]


def test_a_volume_that_went_makes_room_for_who_waits_at_once() -> None:
    heard = Heard({"a": Promise(FAST, 1)})
    heard.space.freed(FAST, 4, placed=True)
    heard.space.bid_for(FAST, CapacityAnswer(10))
    heard.space.freed(FAST, 4, placed=False)
    assert heard.growth == [(set(CLASSES), 3), ({FAST}, 13)]
