from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kube.api import Change
from sidecar.kube.store import Store, by_name, by_uid


@dataclass(frozen=True)
class Rec:
    name: str
    colours: tuple[str, ...] = ()


def _store() -> Store[Rec]:
    return Store({"colour": lambda record: record.colours, "initial": lambda record: [record.name[:1]]})


def _put(store: Store[Rec], key: str, new: Rec | None) -> frozenset[str]:
    return store.apply(Change(key, store.get(key), new))


def test_keys_touched_are_those_that_changed() -> None:
    store = _store()
    assert _put(store, "k", Rec("a")) == {"k"}
    assert _put(store, "k", Rec("a")) == frozenset()
    assert _put(store, "k", Rec("b")) == {"k"}
    assert _put(store, "k", None) == {"k"}
    assert _put(store, "k", None) == frozenset()


def test_a_record_stands_under_all_its_values_and_no_others() -> None:
    store = _store()
    _put(store, "1", Rec("a", ("red", "blue")))
    _put(store, "2", Rec("b", ("red",)))
    assert store.by_index("colour", "red") == [Rec("a", ("red", "blue")), Rec("b", ("red",))]
    _put(store, "1", Rec("a", ("green",)))
    assert store.by_index("colour", "red") == [Rec("b", ("red",))]
    assert store.by_index("colour", "blue") == []
    assert store.by_index("colour", "green") == [Rec("a", ("green",))]


def test_a_record_that_cannot_be_indexed_changes_nothing() -> None:
    store: Store[Rec] = Store({"second": lambda record: [record.name[1]], "first": lambda record: [record.name[0]]})
    _put(store, "k", Rec("ab"))
    with pytest.raises(IndexError):
        _put(store, "k", Rec("c"))
    assert store.get("k") == Rec("ab")
    assert store.by_index("first", "a") == store.by_index("second", "b") == [Rec("ab")]


def test_keys_of_objects() -> None:
    assert by_name({"metadata": {"name": "a", "namespace": "ns"}}) == "ns/a"
    assert by_name({"metadata": {"name": "a"}}) == "a"
    assert by_uid({"metadata": {"uid": "u"}}) == "u"


keys = st.sampled_from("pqrs")
records = st.builds(Rec, st.sampled_from("abc"), st.lists(st.sampled_from(["red", "blue"]), max_size=3).map(tuple))
histories = st.lists(st.tuples(keys, st.none() | records), max_size=30)


@given(histories, st.data())
def test_any_replay_ends_in_the_same_state_and_index(history: list[tuple[str, Rec | None]], data: st.DataObject) -> None:
    """With duplicates, with a relist in the middle, or straight: what is held is what was said last."""
    store = _store()
    for key, record in history:
        for _ in range(data.draw(st.integers(1, 2))):
            _put(store, key, record)
        if data.draw(st.booleans()):
            _relist(store, {key: record for key in store if (record := store.get(key)) is not None})
    expected = {key: record for key, record in dict(history).items() if record is not None}
    assert {key: store.get(key) for key in store} == expected
    for colour in ("red", "blue"):
        found = {key for key in expected if colour in expected[key].colours}
        assert sorted(map(repr, store.by_index("colour", colour))) == sorted(repr(expected[key]) for key in found)
    for initial in "abc":
        assert len(store.by_index("initial", initial)) == sum(record.name == initial for record in expected.values())
    for key in list(expected):
        _put(store, key, None)
    assert not any(store._indexes.values()), "an empty store holds no memory"


@given(histories, st.dictionaries(keys, records))
def test_a_relist_makes_the_store_what_the_list_says(history: list[tuple[str, Rec | None]], listed: dict[str, Rec]) -> None:
    store = _store()
    for key, record in history:
        _put(store, key, record)
    before = {key: store.get(key) for key in store}
    touched = _relist(store, listed)
    assert {key: store.get(key) for key in store} == listed
    assert touched == {key for key in before.keys() | listed.keys() if before.get(key) != listed.get(key)}


def _relist(store: Store[Rec], listed: dict[str, Rec]) -> set[str]:
    touched: set[str] = set()
    for key, record in listed.items():
        touched |= _put(store, key, record)
    for key in store.missing(listed):
        touched |= _put(store, key, None)
    return touched
