"""What `hack/bench emptying` says of its turns."""

from hack.benchmarks.emptying import DRAIN, OURS, SHAPES, Turn, broken_limits, table

ALIKE = {(shape, program): [Turn(seconds, 5.0) for seconds in (9.0, 10.0, 50.0)] for shape in SHAPES for program in (OURS, DRAIN)}


def test_each_shape_has_a_row_for_both_programs_with_medians() -> None:
    _, _, *rows = table(ALIKE).splitlines()
    assert len(rows) == 4
    assert rows[0] == f"| {SHAPES[0].name} | {OURS} | 10.0 | 5.0 |"


def test_the_limits_are_by_medians_and_one_shape_that_breaks_them_is_named() -> None:
    assert broken_limits(ALIKE, more=5.0) == []
    slow = ALIKE | {(SHAPES[1], OURS): [Turn(12.5, 5.0)]}
    (said,) = broken_limits(slow, more=0.0)
    assert said.startswith(f"{SHAPES[1].name}: 1.25 times")
    assert len(broken_limits(slow, more=5.1)) == 2
