"""Finding the first that has room, and what is published for the place a node is in."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.judgement.free_space import Figures, FreeSpace, FreeSpaceTree
from tests.harness.drain import samples
from tests.harness.drain.samples import GIB

ROOMS = st.builds(FreeSpace, st.integers(0, 6), st.integers(0, 9))


@given(st.lists(ROOMS, max_size=12), st.lists(st.tuples(st.integers(0, 11), ROOMS), max_size=6), ROOMS, st.integers(0, 12))
def test_the_tree_finds_the_first_that_a_linear_search_would_find(
    rooms: list[FreeSpace], changes: list[tuple[int, FreeSpace]], asked: FreeSpace, start: int
) -> None:
    tree = FreeSpaceTree(rooms)
    for index, room in changes:
        if index < len(rooms):
            rooms[index] = tree[index] = room
    start = min(start, len(rooms))
    expected = next((index for index in range(start, len(rooms)) if rooms[index].holds(asked)), None)
    assert tree.first(asked, start) == expected


def test_what_is_published_for_a_node_its_zone_and_everywhere_is_found_by_its_labels() -> None:
    node = samples.node("n2", labels={samples.KEY: "n2", "zone": "a"})
    figures = Figures(
        [
            samples.record("n2", 1),
            samples.record("n3", 2),
            samples.record("zone-a", 3, node_topology={"zone": "a"}),
            samples.record("both", 4, node_topology={"zone": "a", samples.KEY: "n2"}),
            samples.record("none", 5, node_topology={"zone": "a", "row": ""}),
            samples.record("all", 6, node_topology={}),
            samples.record("slow", 7, of="slow", node_topology={"zone": "a"}),
        ]
    )
    found = figures.of(node)
    assert sorted(figure.capacity // GIB for figure in found["local"]) == [1, 3, 4, 6]
    assert [figure.capacity // GIB for figure in found["slow"]] == [7]


def test_what_one_class_takes_is_gone_for_the_other() -> None:
    figures = Figures([samples.record("n2", 5, of="local"), samples.record("n2", 3, of="slow")])
    ((local,), (slow,)) = (figures.of(samples.node("n2"))[name] for name in ("local", "slow"))
    figures.give({local.pool: 4 * GIB})
    assert (figures.left(local), figures.left(slow)) == (GIB, 0)
