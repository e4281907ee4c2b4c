"""What is held of promises beside a walk over all of them."""

from collections import Counter
from collections.abc import Collection, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.ownership.promises import Promise, held

CLASSES, NAMESPACES = ("a", "b"), ("x", "y", "z")
PROMISES = st.builds(Promise, st.sampled_from(CLASSES), st.integers(1, 12), st.sampled_from(NAMESPACES))
WAITING = st.sets(st.sampled_from((*NAMESPACES, "other")), max_size=2)


def by_walk(owed: Iterable[Promise], free: int, waiting: Collection[str]) -> int:
    """One after another, the largest first."""
    taken, by_namespace = 0, Counter[str]()
    for promise in sorted(owed, key=lambda item: (-item.size, item.namespace)):
        if promise.size > free - taken:
            continue
        others_wait = any(namespace != promise.namespace for namespace in waiting)
        left = free // 2 - by_namespace[promise.namespace] if others_wait else promise.size
        taken += (part := max(min(promise.size, left), 0))
        by_namespace[promise.namespace] += part
    return taken


@settings(max_examples=100)
@given(st.lists(PROMISES, max_size=14), st.integers(-2, 80), WAITING)
def test_equal_promises_are_held_together_as_one_after_another(owed: list[Promise], free: int, waiting: set[str]) -> None:
    assert held(owed, free, waiting=waiting) == by_walk(owed, free, waiting)
