"""One order for all who have the same list, nearly the same for those who have nearly the same one."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.ownership.roster import Roster

NODES = [f"node-{number}" for number in range(30)]
EQUAL = Roster.of(NODES, {})
CLAIMS = [f"uid-{number}" for number in range(3000)]


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
