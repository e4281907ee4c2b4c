"""Nothing that this node would look at passes by: what is foreign by its bytes is foreign by its fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.local.raw_filter import is_foreign_claim, is_foreign_volume
from sidecar.local.volume_location import found_here, may_lie_here
from sidecar.model import names
from sidecar.model.objects import is_source_that_leaves, selected_node
from tests.harness import samples

HERE = samples.here()
NODE = samples.NODE

# Texts that try to look like what is searched for.
tricky = st.sampled_from(
    [
        "",
        NODE,
        "other",
        f'x,"{names.SELECTED_NODE}":"other",',
        f'"{names.SELECTED_NODE}":"other"',
        '"annotations":{',
        f'x,"{names.SELECTED_NODE}":"other",',
        "{",
        "}",
        '{"a":"b"}',
        '"nodeAffinity":{"required":{',
        "\\",
        '"',
        "ü",
    ]
)
quoted = f'"{names.SELECTED_NODE}'
keys = st.sampled_from([names.SELECTED_NODE, "annotations", "a", quoted, f"x,{quoted}", '"operator":"In"', names.CLONE_FINALIZER])
notes = st.dictionaries(keys, tricky, max_size=4)


def as_line(obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": "MODIFIED", "object": obj}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@given(labels=notes, annotations=notes, finalizers=st.lists(keys, max_size=2), deleting=st.booleans())
def test_a_claim_that_is_foreign_has_another_node_and_is_no_source(
    labels: dict[str, str], annotations: dict[str, str], finalizers: list[str], deleting: bool
) -> None:
    obj = samples.claim_json()
    obj["metadata"] = {"name": "data", "uid": "u", "labels": labels, "annotations": annotations, "finalizers": finalizers}
    obj["metadata"] |= {"deletionTimestamp": "now"} if deleting else {}
    if is_foreign_claim(as_line(obj), HERE):
        assert selected_node(obj) not in ("", NODE)
        assert not is_source_that_leaves(obj)


@given(
    terms=st.lists(
        st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from([samples.KEY, "another", names.HOSTNAME]),
                    "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
                    "values": st.lists(st.sampled_from([NODE, "other", "third"]), max_size=2),
                }
            ),
            max_size=2,
        ),
        max_size=2,
    ),
    placed=st.booleans(),
    annotations=notes,
)
def test_a_volume_that_is_foreign_does_not_lie_here(terms: list[Any], placed: bool, annotations: dict[str, str]) -> None:
    obj = samples.volume_json()
    obj["metadata"]["annotations"] = annotations
    obj["spec"].pop("nodeAffinity", None)
    if placed:
        obj["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}
    if is_foreign_volume(as_line(obj), HERE):
        assert found_here(HERE, obj) is None and not may_lie_here(HERE, obj, "")


def test_the_usual_ones_pass_by() -> None:
    theirs = samples.claim_json(annotations={names.SELECTED_NODE: "other"})
    assert is_foreign_claim(as_line(theirs), HERE)
    assert not is_foreign_claim(as_line(samples.claim_json(annotations={names.SELECTED_NODE: NODE})), HERE)
    assert not is_foreign_claim(as_line(samples.claim_json()), HERE)
    volume = samples.volume_json()
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term_of("other")]}}
    assert is_foreign_volume(as_line(volume), HERE)
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term_of("other"), term_of(NODE)]}}
    assert not is_foreign_volume(as_line(volume), HERE)


@pytest.mark.parametrize("segment", [{}, None])
def test_without_a_place_of_its_own_a_node_reads_of_every_volume(segment: dict[str, str] | None) -> None:
    here = samples.here(samples.info(topology=segment is None, segment=segment or {}))
    volume = samples.volume_json()
    volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term_of("other")]}}
    assert not is_foreign_volume(as_line(volume), here)


def term_of(node: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": samples.KEY, "operator": "In", "values": [node]}]}
