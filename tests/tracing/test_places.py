"""Places for open spans are there for newcomers, whoever has come before and with however much."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.tracing.places import Places

NAMESPACES = st.sampled_from(["a", "b", "c", "d"])


def filled(most: int, *namespaces: str) -> tuple[Places, dict[str, int]]:
    """With as many spans of each as find a place, one namespace after the other."""
    places, got = Places(most), dict[str, int]()
    for namespace in namespaces:
        got[namespace] = 0
        while places.take((namespace, str(got[namespace])), namespace):
            got[namespace] += 1
    return places, got


def test_one_namespace_leaves_half_and_each_that_follows_half_of_the_rest() -> None:
    assert filled(4096, "a", "b", "c")[1] == {"a": 2048, "b": 1024, "c": 512}


@given(st.integers(1, 40), st.lists(st.tuples(NAMESPACES, st.integers(0, 9), st.booleans())))
def test_whatever_comes_and_goes_there_are_never_too_many_and_they_are_counted_right(most: int, steps: list[tuple[str, int, bool]]) -> None:
    places, held = Places(most), dict[tuple[str, str], str]()
    for namespace, number, comes in steps:
        key = (namespace, str(number))
        if not comes:
            places.give_back(key)
            held.pop(key, None)
        elif key not in held and places.take(key, namespace):
            held[key] = namespace
        assert len(held) <= most
    others_leave = most - sum(1 for owner in held.values() if owner != "a")
    has_room = sum(1 for owner in held.values() if owner == "a") < (others_leave + 1) // 2
    assert places.take(("a", "new"), "a") is has_room
