"""The body of the PUT changes one annotation and nothing else."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sidecar.model.names import HANDED_BACK, SELECTED_NODE
from sidecar.model.objects import Claim
from sidecar.ownership.selected_node_body import closing, handed_back, handings_back, with_selected_node, without_selected_node
from tests.harness import samples


def test_taking_a_claim_adds_one_annotation() -> None:
    before = samples.whole(samples.claim())
    after = json.loads(with_selected_node(samples.claim().whole, "foo"))
    assert after["metadata"]["annotations"].pop(SELECTED_NODE) == "foo"
    assert after == before


def test_M15_giving_a_claim_back_keeps_every_other_annotation() -> None:
    before = samples.whole(samples.claim())
    assert json.loads(without_selected_node(samples.claim(selected="foo").whole)) == before
    assert json.loads(without_selected_node(samples.claim().whole)) == before


def test_a_closed_node_gives_a_claim_back_and_notes_that_in_the_same_write() -> None:
    before = samples.whole(samples.claim())
    after = json.loads(handed_back(samples.claim(selected="foo").whole, closing("foo", "S")))
    assert after["metadata"]["annotations"].pop(HANDED_BACK) == "foo@S"
    assert after == before


def test_each_node_has_the_latest_of_its_closings_noted() -> None:
    claim = samples.claim(selected="foo", annotations={HANDED_BACK: "foo@1, bar@2 ,,baz@3"})
    after = Claim.of(json.loads(handed_back(claim.whole, closing("foo", "4"))), keep_whole=True)
    assert handings_back(after.notes) == ("bar@2", "baz@3", "foo@4")
    assert handings_back(samples.claim().notes) == ()


@given(since=st.text(max_size=30))
def test_whatever_tells_closings_apart_is_found_again(since: str) -> None:
    after = Claim.of(json.loads(handed_back(samples.claim(selected="foo").whole, closing("foo", since))))
    assert handings_back(after.notes) == (closing("foo", since),)


def test_a_claim_without_annotations_can_be_taken() -> None:
    assert json.loads(with_selected_node(b'{"metadata":{"name":"n"}}', "foo"))["metadata"]["annotations"] == {SELECTED_NODE: "foo"}
