"""What `hack/bench race --impossible` says of claims that can be made beside some that never can."""

import math

from hack.benchmarks.race import beside
from hack.benchmarks.race.load import Played, Seen


def played(*bound: float, open_: int = 0) -> Played:
    """Each claim came at 0, was opened to the programs at 1, and was bound so many seconds later."""
    seen = [Seen(0.0, asked=1.0, bound=1.0 + seconds) for seconds in bound]
    return Played({f"fits-{number}": item for number, item in enumerate([*seen, *[Seen(0.0, asked=1.0)] * open_])})


def row(these: Played) -> beside.Row:
    return beside.row("peer", 3, 100, these, late=False, requests=7, calls=8)


def test_times_count_from_when_the_programs_could_begin():
    assert (row(played(4.0, 2.0, 9.0)).median, row(played(4.0, 2.0, 9.0)).longest) == (4.0, 9.0)


def test_one_that_is_never_bound_is_the_longest_and_counts_in_the_median():
    left = row(played(4.0, 2.0, open_=1))
    assert (left.median, left.longest, left.left_open) == (4.0, math.inf, 1)
    assert row(played(open_=2)).median == math.inf


def test_the_table_has_a_row_for_each_turn():
    lines = beside.table([row(played(4.0, 2.0, open_=1))]).splitlines()
    assert lines[2] == "| immediate | 3 | 100 | peer | 4.00 | never | 1 | 7 | 8 |"
    assert {text.count("|") for text in lines} == {10}
