"""The book of promises beside a walk over all of them."""

from collections import Counter
from collections.abc import Collection, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.ownership.promises import Promise, PromiseBook, held

CLASSES, NAMESPACES, UIDS = ("a", "b"), ("x", "y", "z"), tuple("123456")
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


class BookBesideWalk(RuleBasedStateMachine):
    """What was promised at each open moment is kept as a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.book = PromiseBook()
        self.now: dict[str, Promise] = {}
        self.moments: list[tuple[object, object, dict[str, Promise]]] = []

    @rule(uid=st.sampled_from(UIDS), promise=st.none() | PROMISES)
    def change(self, uid: str, promise: Promise | None) -> None:
        self.book.put(uid, promise)
        self.now.pop(uid, None)
        if promise is not None:
            self.now[uid] = promise

    @rule()
    def ask(self) -> None:
        opened = self.book.moment()
        self.moments.append((opened, opened.__enter__(), dict(self.now)))

    @precondition(lambda self: self.moments)
    @rule(data=st.data())
    def answered(self, data: st.DataObject) -> None:
        opened, _, _ = self.moments.pop(data.draw(st.integers(0, len(self.moments) - 1)))
        opened.__exit__(None, None, None)  # type: ignore[attr-defined]

    @rule(
        data=st.data(),
        free=st.integers(-1, 60),
        waiting=WAITING,
        besides=st.sampled_from(("", *UIDS)),
        largest=st.dictionaries(st.sampled_from(CLASSES), st.none() | st.integers(0, 12), min_size=1),
    )
    def measure(self, data: st.DataObject, free: int, waiting: set[str], besides: str, largest: dict[str, int | None]) -> None:
        _, since, before = data.draw(st.sampled_from([(None, None, {}), *self.moments]))
        every = {**before, **self.now}
        owed = [
            promise
            for uid, promise in every.items()
            if uid != besides
            and promise.class_name in largest
            and promise.size <= (largest[promise.class_name] or (60 if largest[promise.class_name] is None else 0))
        ]
        found = self.book.held(largest, free, waiting=waiting, besides=besides, since=since)  # type: ignore[arg-type]
        assert found == by_walk(owed, free, waiting)

    @invariant()
    def shows_what_is_promised(self) -> None:
        assert self.book.by_claim == self.now
        assert {uid: item.namespace for uid, item in self.book.by_claim.items()} == {uid: item.namespace for uid, item in self.now.items()}

    @invariant()
    def keeps_no_more_than_it_needs(self) -> None:
        if not self.moments:
            assert not self.book._past
        if not self.now:
            assert not self.book._shelves


BookBesideWalk.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestBookBesideWalk = BookBesideWalk.TestCase
