"""The body of the PUT changes one annotation and nothing else."""

import json

from sidecar.model.names import SELECTED_NODE
from sidecar.ownership.claim_write import with_selected_node, without_selected_node
from tests import samples


def test_taking_a_claim_adds_one_annotation() -> None:
    before = samples.whole(samples.claim())
    after = json.loads(with_selected_node(samples.claim().whole, "foo"))
    assert after["metadata"]["annotations"].pop(SELECTED_NODE) == "foo"
    assert after == before


def test_M15_giving_a_claim_back_keeps_every_other_annotation() -> None:
    before = samples.whole(samples.claim())
    assert json.loads(without_selected_node(samples.claim(selected="foo").whole)) == before
    assert json.loads(without_selected_node(samples.claim().whole)) == before


def test_the_version_goes_along_and_guards_the_write() -> None:
    assert json.loads(with_selected_node(samples.claim().whole, "foo"))["metadata"]["resourceVersion"] == "7"


def test_a_claim_without_annotations_can_be_taken() -> None:
    assert json.loads(with_selected_node(b'{"metadata":{"name":"n"}}', "foo"))["metadata"]["annotations"] == {SELECTED_NODE: "foo"}
