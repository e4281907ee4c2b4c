"""What keeps fail-over from doing too much at once."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.failover.brakes import (
    DEBOUNCE,
    HOLD,
    PODS,
    SAME,
    TWICE,
    VICTIM_FOR,
    VICTIMS,
    WITHIN,
    Record,
    held_since,
    is_storm,
    rank,
    share,
)
from sidecar.failover.evidence import MOST_AGE, Fact
from sidecar.model import names
from tests.failover.test_survivor import NOW, node

HOLDS = Fact(True, "may_promote")


def why_not(record: Record, *write: Any) -> str:
    return record.after(*write)[1]


def after(record: Record, *write: Any) -> Record:
    return record.after(*write)[0]


@pytest.mark.parametrize("relapse", [Fact(False, "connected"), Fact(None, "not known"), Fact(True, "old", age=MOST_AGE + 0.1), None])
def test_f05_whatever_else_than_a_fresh_proof_begins_the_debounce_anew(relapse: Fact | None) -> None:
    since = held_since({}, {"a": HOLDS}, 0.0)
    since = held_since(since, {"a": HOLDS}, 4.0)
    assert since == {"a": 0.0}
    since = held_since(since, {"a": relapse} if relapse is not None else {}, 4.9)
    assert since == {}
    assert held_since(since, {"a": HOLDS}, 5.0) == {"a": 5.0}


def test_f06_each_peer_and_each_volume_has_a_debounce_of_its_own() -> None:
    since = held_since({}, {("pv", "a"): HOLDS}, 0.0)
    assert held_since(since, {("pv", "a"): HOLDS, ("pv", "c"): HOLDS}, 100.0) == {("pv", "a"): 0.0, ("pv", "c"): 100.0}


@given(st.lists(st.tuples(st.floats(0.0, 4.0), st.sampled_from([True, True, True, False, None])), max_size=20))
def test_f42_no_proof_counts_that_has_not_held_at_every_look_of_the_last_five_seconds(looks: list[tuple[float, bool | None]]) -> None:
    since, now, seen = dict[str, float](), 0.0, list[tuple[float, bool | None]]()
    for later, value in looks:
        now += later
        since = held_since(since, {"a": Fact(value, "")}, now)
        seen.append((now, value))
        if now - since.get("a", now) >= DEBOUNCE:
            assert all(value for at, value in seen if at > now - DEBOUNCE)


def test_three_nodes_at_a_time_and_sixty_pods_a_minute() -> None:
    record = Record()
    for number in range(3):
        assert not why_not(record, f"n{number}", "claim", "pod", NOW)
        record = after(record, f"n{number}", f"claim-{number}", f"pod-{number}", NOW)
    assert why_not(record, "n3", "claim", "pod", NOW)
    assert not why_not(record, "n1", "claim", "pod", NOW) and not why_not(record, "n3", "claim", "pod", NOW + 601)
    for number in range(60):
        record = after(record, "n0", f"c{number}", f"p{number}", NOW)
    assert why_not(record, "n0", "claim", "pod", NOW)
    assert not why_not(record, "n0", "c3", "p3", NOW), "what was begun goes on"
    assert not why_not(record, "n0", "claim", "pod", NOW + 61)


def test_f42_the_same_claim_waits_a_minute_and_after_two_times_a_person_decides() -> None:
    record = after(after(Record(), "a", "claim", "pod-1", NOW), "a", "claim", "pod-1", NOW + 40)
    assert why_not(record, "a", "claim", "pod-2", NOW + 59)
    assert not why_not(record, "a", "claim", "pod-2", NOW + 60) and not why_not(record, "a", "claim", "pod-1", NOW + 1)
    record = after(record, "b", "claim", "pod-2", NOW + 60)
    assert "a person decides" in why_not(record, "a", "claim", "pod-3", NOW + 1000)
    assert not why_not(record, "a", "claim", "pod-3", NOW + 1861)


BEYOND = [json.dumps({"victims": {"a": number}, "pods": [], "claims": {}}) for number in (10**400, -(10**400))]


@pytest.mark.parametrize("text", ["{", "[]", '{"victims": 3}', '{"victims": {"a": "x"}, "pods": [], "claims": {}}', "[" * 5000, *BEYOND])
def test_a_record_that_somebody_else_has_written_permits_nothing(text: str) -> None:
    assert names.FAILOVER_RECORD in why_not(Record.of(text), "a", "claim", "pod", NOW)


def test_f41_the_record_comes_back_as_it_was_written_and_the_future_counts_as_now() -> None:
    record = after(Record(), "a", "claim", "pod", NOW)
    assert Record.of(record.as_text()) == record
    assert why_not(record, "a", "claim", "other", NOW - 3600)
    many = Record(claims={f"c{number}": ((NOW, "p"),) for number in range(2000)})
    assert len(many.as_of(NOW).claims) == 250


def test_f44_those_with_a_copy_have_each_a_place_of_their_own() -> None:
    places = [rank("pv", "a", me, ["b", "c", "d", "a"]) for me in "bcd"]
    assert sorted(places) == [0, 1, 2]
    assert len({tuple(rank(f"pv-{number}", "a", me, list("bcd")) for me in "bcd") for number in range(50)}) > 3


def test_f37_a_storm_begins_at_three_nodes_and_fifty_five_percent() -> None:
    def frozen(lost: int, of: int) -> bool:
        return is_storm([node(f"n{number}", "Unknown" if number < lost else "True") for number in range(of)])

    shapes = ((2, 2), (2, 3), (3, 3), (3, 5), (3, 7), (5, 9), (6, 11), (0, 0))
    assert [shape for shape in shapes if frozen(*shape)] == [(3, 3), (3, 5), (5, 9)]


def test_every_victim_gives_each_node_another_share() -> None:
    assert all(0.0 <= share(f"n{number}", "b") < 1.0 for number in range(50))
    assert len({share(f"n{number}", "b") for number in range(50)}) > 45


ACTS = st.lists(
    st.tuples(st.floats(0.0, 200.0), st.sampled_from("abcdef"), st.integers(0, 8), st.integers(0, 40)), min_size=1, max_size=150
)  # fmt: skip


@given(ACTS)
def test_whatever_is_asked_for_the_record_keeps_its_limits(asked: list[tuple[float, str, int, int]]) -> None:
    """Pods that were made before the claim was failed over last are those beside which its pod was used: they are no other time."""
    record, now, done, times = Record(), NOW, list[tuple[float, str, str]](), dict[str, list[float]]()
    for later, victim, claim, number in asked:
        now += later
        pod = f"pod-{claim}-{number}"
        made = NOW - HOLD if number % 2 else now
        if not why_not(record, victim, f"claim-{claim}", pod, now, made):
            record = Record.of(after(record, victim, f"claim-{claim}", pod, now, made).as_text())
            before = times.setdefault(f"claim-{claim}", [])
            goes_with = before and made <= before[-1] - HOLD and now - before[-1] <= SAME
            if all(pod != begun for _, _, begun in done) and not goes_with:
                before.append(now)
            done.append((now, victim, pod))
        assert len({victim for at, victim, _ in done if now - at < VICTIM_FOR}) <= VICTIMS
        begun = {pod: at for at, _, pod in reversed(done)}  # by pod, the first write for it
        assert sum(now - at < 60.0 for at in begun.values()) <= PODS
        for each in times.values():
            assert sum(now - at < WITHIN for at in each) <= TWICE
            assert all(later - earlier >= HOLD for earlier, later in pairwise(each))


def test_a_clock_that_is_minutes_ahead_of_the_api_servers_lets_no_later_pod_go_with_the_first() -> None:
    record = after(Record(), "a", "claim", "first", NOW, NOW - 3600.0)
    assert not why_not(record, "a", "claim", "beside", NOW + SAME, NOW - 300.0)
    assert why_not(record, "a", "claim", "next", NOW + SAME + 1.0, NOW - 300.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["victims", "pods", "claims", "a"]), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.sampled_from(["victims", "pods", "claims"]))
def test_whatever_stands_in_the_lease_is_read_or_permits_nothing(said: Any, where: str) -> None:
    for text in (json.dumps(said), json.dumps({"victims": {}, "pods": [], "claims": {}} | {where: said})):
        record = Record.of(text)
        assert record.readable or names.FAILOVER_RECORD in why_not(record, "a", "claim", "pod", NOW)
        assert Record.of(after(record, "a", "claim", "pod", NOW).as_text()).readable


def test_pods_of_one_claim_go_together_and_count_once_for_it_but_not_one_that_was_made_in_place_of_the_first() -> None:
    record, old, new = after(Record(), "a", "claim", "pod-1", NOW), NOW - 61, NOW + 1
    assert not why_not(record, "a", "claim", "pod-2", NOW + 10, old)
    assert not any(not why_not(record, "a", "claim", "pod-2", NOW + 2, made) for made in (new, NOW - 59, None))
    record = after(record, "a", "claim", "pod-2", NOW + 3, old)
    assert not why_not(record, "a", "claim", "pod-2", NOW + 40, old), "what was begun goes on"
    record = after(record, "a", "claim", "pod-2", NOW + 40, old)
    assert len(record.pods) == 2 and not why_not(record, "b", "claim", "pod-3", NOW + HOLD, new)


def test_f42_however_many_pods_use_the_claim_after_two_times_a_person_decides() -> None:
    record = Record()
    for at in (NOW, NOW + 300):
        for number in range(6):
            record, forbidden = record.after("a", "claim", f"{at}-{number}", at, at - 200)
            assert not forbidden
    assert "a person decides" in why_not(record, "a", "claim", "another", NOW + 600, NOW + 400)


def test_a_full_record_can_still_be_read() -> None:
    record = Record(
        dict.fromkeys((f"node-{number}" for number in range(3)), NOW),
        (NOW + 0.123456,) * 5000,
        {f"{number:036}": tuple((NOW + 0.123456, f"{other:036}") for other in range(9)) for number in range(3000)},
    )
    text = record.as_of(NOW + 1).as_text()
    assert Record.of(text).readable and len(text) < 100_000
