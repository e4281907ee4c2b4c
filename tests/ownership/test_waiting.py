"""Claims that wait for room, found by class and size."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.ownership.waiting import Waiting, Want

WANTS = st.builds(Want, st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 4))


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | WANTS)), st.integers(0, 5), st.sets(st.sampled_from("abc")))
def test_it_finds_what_a_walk_over_all_finds(steps: list[tuple[int, Want | None]], free: int, classes: set[str]) -> None:
    waiting, plain = Waiting(), dict[str, Want]()
    for number, want in steps:
        uid = str(number)
        waiting.change(uid, plain.pop(uid, None), want)
        if want is not None:
            plain[uid] = want
    found = list(waiting.fitting(classes, lambda size: size <= free))
    assert sorted(found) == sorted(uid for uid, want in plain.items() if want.class_name in classes and want.size <= free)
    assert waiting.namespaces() == {want.namespace for want in plain.values()}
