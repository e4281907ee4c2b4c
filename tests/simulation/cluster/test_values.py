"""Quantities, selectors and patches: the pure parts of the simulated API server."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.sim.cluster import Refused
from hack.sim.cluster.patches import merged, patched
from hack.sim.cluster.schema import NoQuantity, canonical
from hack.sim.cluster.selectors import selector_test
from sidecar.kube.api import JSON_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model.quantity import parse_bytes
from tests.harness.cluster_tools import refusal


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        # Each was seen at the real server.
        ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("3000Mi", "3000Mi"), ("1024Ki", "1Mi"), ("1000M", "1G"), ("100k", "100k"), ("1e9", "1e9"),
        ("1e3", "1e3"), ("1500m", "1500m"), ("0.5", "500m"), (1.5, "1500m"), (5, "5"), ("1073741824", "1073741824"),
        ("12345678901234567890", "12345678901234567890"), ("-1Gi", "-1Gi"), ("0", "0"), ("4000m", "4"),
    ],
)  # fmt: skip
def test_quantities_are_stored_in_one_form(given: object, stored: str) -> None:
    assert canonical(given) == stored
    assert canonical(stored) == stored


@pytest.mark.parametrize("text", ["1Zi", "", "Gi", "1 Gi", "abc", True, None, [], "1e"])
def test_what_is_no_quantity(text: object) -> None:
    with pytest.raises(NoQuantity):
        canonical(text)


@given(number=st.integers(0, 2**50), suffix=st.sampled_from(["", "Ki", "Mi", "k", "M"]))
def test_the_form_changes_and_the_amount_does_not(number: int, suffix: str) -> None:
    assert parse_bytes(canonical(f"{number}{suffix}")) == parse_bytes(f"{number}{suffix}")


def test_selectors_in_objects() -> None:
    assert not selector_test(None)({"a": "b"})
    assert selector_test({})({})
    wanted = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]}
    assert selector_test(wanted)({"a": "b"})
    assert not selector_test(wanted)({"a": "b", "c": "d"})


def test_strategic_merge_joins_owners_by_uid_and_conditions_by_type() -> None:
    old = {"ownerReferences": [{"uid": "1", "name": "a"}], "conditions": [{"type": "Ready", "status": "True"}], "taints": [{"key": "a"}]}
    patch = {
        "ownerReferences": [{"uid": "1", "$patch": "delete"}, {"uid": "2", "name": "b"}],
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}],
        "$setElementOrder/conditions": [{"type": "Ready"}],
        "taints": [{"key": "b"}],
    }
    assert patched(old, patch, STRATEGIC_MERGE_PATCH) == {
        "ownerReferences": [{"uid": "2", "name": "b"}],
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}],
        "taints": [{"key": "b"}],
    }


def test_json_patches_move_and_copy() -> None:
    old = {"a": {"b": [1, 2, 3]}}
    steps = [
        {"op": "copy", "from": "/a/b", "path": "/c"},
        {"op": "move", "from": "/c/0", "path": "/c/-"},
        {"op": "add", "path": "/c/0", "value": 9},
        {"op": "replace", "path": "/a/b/1", "value": 8},
    ]
    assert patched(old, steps, JSON_PATCH) == {"a": {"b": [1, 8, 3]}, "c": [9, 2, 3, 1]}
    assert old == {"a": {"b": [1, 2, 3]}}


keys = st.sampled_from(["a", "b", "finalizers", "$patch"])
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(old=objects, new=objects)
def test_a_merge_patch_leaves_what_it_was_made_from_alone_and_is_the_same_twice(old: Any, new: Any) -> None:
    before = copy.deepcopy(old)
    once = merged(old, new)
    assert old == before
    assert merged(once, new) == once


@given(
    old=objects,
    steps=st.lists(st.dictionaries(st.sampled_from(["op", "path", "value", "from"]), values | st.just("/a/b"), max_size=4), max_size=3),
)
def test_no_json_patch_breaks_more_than_itself(old: Any, steps: Any) -> None:
    before = copy.deepcopy(old)
    try:
        patched(old, steps, JSON_PATCH)
    except Refused as error:
        assert error.code == 422
    assert old == before


def test_too_many_steps() -> None:
    assert refusal(lambda: patched({}, [{"op": "test", "path": ""}] * 10_001, JSON_PATCH))[0] == 413
