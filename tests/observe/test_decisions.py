import tracemalloc
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.observe.decisions import BYTES, Decisions


@dataclass(frozen=True)
class Wait:
    until: float
    why: str


@dataclass(frozen=True)
class Create:
    name: str
    keep_off_pages: str = field(repr=False, default="")


class Silent:
    pass


def test_a_decision_says_its_class_name_its_reason_and_its_effect():
    decisions = Decisions()
    for key, decision in (("1", Create("pvc-1", "hidden")), ("2", Silent())):
        decisions.note(decision, at=1.0, room="r", key=key)
    shown = [(row["decision"], row["why"], row["fields"]) for row in decisions.rows()]
    assert shown == [("Create", "", {"name": "pvc-1"}), ("Silent", "", {})]


def test_a_row_has_what_the_page_shows():
    decisions = Decisions()
    assert decisions.note(Wait(3.0, "not yet"), at=100.0, room="ownership", key="uid-1", name="ns/data").decision == "Wait"
    assert decisions.rows() == [
        {
            "time": 100.0,
            "since": 100.0,
            "count": 1,
            "room": "ownership",
            "key": "uid-1",
            "name": "ns/data",
            "decision": "Wait",
            "why": "not yet",
            "fields": {"until": 3.0},
        }
    ]


def test_the_same_decision_for_the_same_key_is_counted_up_and_moves_to_the_end():
    decisions = Decisions()
    decisions.note(Create("a"), at=1.0, room="r", key="1")
    decisions.note(Create("b"), at=2.0, room="r", key="2")
    decisions.note(Create("a"), at=3.0, room="r", key="1")
    assert [(row["key"], row["count"], row["since"], row["time"]) for row in decisions.rows()] == [("2", 1, 2.0, 2.0), ("1", 2, 1.0, 3.0)]


def test_what_only_has_other_fields_is_counted_too_and_shows_the_latest():
    """As an age that is another one at each look: it must not push out what was decided of others."""
    decisions = Decisions(10)
    decisions.note(Wait(1, "other"), at=0.0, room="r", key="2")
    for number in range(100):
        decisions.note(Wait(number, "a"), at=float(number), room="r", key="1")
    assert [(row["key"], row["count"], row["fields"]) for row in decisions.rows()] == [("2", 1, {"until": 1}), ("1", 100, {"until": 99})]


def test_another_reason_another_decision_or_another_room_is_a_row_of_its_own():
    decisions = Decisions()
    for number, (room, decision) in enumerate([("r", Wait(1, "a")), ("r", Wait(1, "b")), ("r", Wait(1, "a")), ("s", Wait(1, "a"))]):
        decisions.note(decision, at=float(number), room=room, key="1")
    assert [row["count"] for row in decisions.rows()] == [1, 1, 1, 1]


def test_the_oldest_goes_first_and_a_memory_of_nothing_is_refused():
    decisions = Decisions(capacity=2)
    for key in "abc":
        decisions.note(Silent(), at=0.0, room="r", key=key)
    assert [row["key"] for row in decisions.rows()] == ["b", "c"]
    with pytest.raises(ValueError, match="none would be kept"):
        Decisions(capacity=0)


@dataclass(frozen=True)
class Large:
    why: str
    words: object
    body: bytes = field(repr=False)


def test_what_is_kept_is_bounded_in_bytes_whatever_drivers_and_tenants_say():
    decisions = Decisions()
    deep = {str(key): ["x" * 600] * 100 for key in range(100)}
    tracemalloc.start()
    try:
        for number in range(500):
            words = deep if number % 50 == 0 else f"{number}" * 600
            decisions.note(Large(f"{number}" * 400_000, words, b"x" * 250_000), at=0.0, room="r", key=str(number), name="n" * 300)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 1.5 * BYTES
    rows = decisions.rows()
    assert 100 < len(rows) <= 400 and rows[-1]["key"] == "499"
    assert next(row["fields"] for row in rows if "…" in row["fields"])["…"].endswith(" characters")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), max_size=60), st.integers(1, 6))
def test_nothing_recent_is_lost_and_nothing_else_is_kept(history, capacity):
    decisions = Decisions(capacity)
    for at, (key, why) in enumerate(history):
        decisions.note(Wait(0.0, why), at=float(at), room="r", key=key)
        rows = decisions.rows()
        assert len(rows) == len(decisions) <= capacity
        assert (rows[-1]["key"], rows[-1]["why"], rows[-1]["time"]) == (key, why, at)
        assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
        assert len(decisions._newest) <= len(decisions)


def test_rows_are_found_by_key_and_by_name():
    decisions = Decisions()
    decisions.note(Silent(), at=1.0, room="r", key="uid-1", name="ns/a")
    decisions.note(Silent(), at=2.0, room="r", key="uid-2", name="ns/b")
    assert [row["key"] for row in decisions.rows("uid-2")] == ["uid-2"]
    assert [row["key"] for row in decisions.rows("ns/a")] == ["uid-1"]
    assert decisions.rows("ns") == []
