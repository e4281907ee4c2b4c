"""One order for all who have the same list, nearly the same for those who have nearly the same one."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sidecar.ownership.roster import Roster

NODES = [f"node-{number}" for number in range(30)]
EQUAL = Roster.of(NODES, {})
CLAIMS = [f"uid-{number}" for number in range(3000)]


def firsts(roster: Roster, needed: int = 1) -> Counter[str]:
    return Counter(roster.order(uid, needed)[0] for uid in CLAIMS)


@given(nodes=st.lists(st.sampled_from(NODES), min_size=1), uid=st.uuids().map(str))
def test_the_order_does_not_depend_on_how_the_list_was_written(nodes: list[str], uid: str) -> None:
    assert Roster.of(nodes, {}) == Roster.of(reversed(nodes), {})
    assert Roster.of(nodes, {}).order(uid, 1) == Roster.of(set(nodes), {}).order(uid, 1)


@given(uid=st.uuids().map(str), needed=st.integers(0, 200), exact=st.integers(1, 40))
def test_a_rank_is_counted_as_far_as_is_asked_and_never_understated_beyond(uid: str, needed: int, exact: int) -> None:
    roster = Roster.of(NODES, {node: 100 if number % 3 else 50 * number for number, node in enumerate(NODES)})
    for place, node in enumerate(roster.order(uid, needed)):
        rank = roster.rank(node, uid, needed, exact=exact)
        assert rank == place if rank < exact else place >= exact or rank > exact


def test_shares_follow_free_space() -> None:
    roster = Roster.of(["a", "b", "c"], {"a": 100 << 30, "b": 300 << 30, "c": 400 << 30})
    found = firsts(roster)
    for node, part in (("a", 1 / 8), ("b", 3 / 8), ("c", 4 / 8)):
        assert math.isclose(found[node] / len(CLAIMS), part, rel_tol=0.12)


def test_who_publishes_too_little_comes_last_and_who_publishes_nothing_is_taken_for_usual() -> None:
    roster = Roster.of(["small", "large", "silent"], {"small": 10, "large": 1000})
    assert all(roster.order(uid, 100)[-1] == "small" for uid in CLAIMS[:50])
    assert {"silent", "large"} == {roster.order(uid, 100)[0] for uid in CLAIMS[:200]}


def test_a_node_that_comes_or_goes_changes_only_the_claims_it_has() -> None:
    fewer = Roster.of(NODES[1:], {})
    moved = [uid for uid in CLAIMS if EQUAL.order(uid, 1)[0] != fewer.order(uid, 1)[0]]
    assert all(EQUAL.order(uid, 1)[0] == NODES[0] for uid in moved)


def test_who_is_not_listed_is_last() -> None:
    assert EQUAL.rank("stranger", "uid", 1, exact=8) == len(NODES)
    assert "stranger" not in EQUAL and NODES[0] in EQUAL


def test_absurd_figures_are_borne() -> None:
    for free in [0, 1, -5, 2**63 - 1]:
        roster = Roster.of(["a", "b"], {"a": free})
        assert sorted(roster.order("uid", 1)) == ["a", "b"]
        assert roster.rank("a", "uid", 1, exact=8) in (0, 1)


@given(st.integers(0, 10**6), st.sets(st.sampled_from(NODES), max_size=12))
def test_those_who_come_last_keep_their_order_among_themselves(number: int, last: set[str]) -> None:
    uid = f"uid-{number}"
    order = EQUAL.order(uid, 1, last=last)
    usual = EQUAL.order(uid, 1)
    assert order == [*(node for node in usual if node not in last), *(node for node in usual if node in last)]
    for rank, node in enumerate(order):
        if rank < 8 or node in last:
            assert EQUAL.rank(node, uid, 1, exact=8, last=last) == rank
