"""Which nodes have had a claim, as the claim itself says it."""

import json

import pytest

from sidecar.model.names import TRIED_BY
from sidecar.model.objects import Claim
from sidecar.ownership.selected_node_body import GiveBack
from sidecar.ownership.tries import LONGEST, NONE, Tries
from tests.harness import samples


def noted(text: str) -> Tries:
    return Tries.of({TRIED_BY: text})


def test_each_node_has_one_try_in_a_round_and_a_second_try_begins_the_next() -> None:
    tries = NONE
    for node, wanted in (("a", "1 a"), ("b", "1 a b"), ("a", "2 a"), ("b", "2 a b"), ("c", "2 a b c"), ("c", "3 c")):
        tries = tries.and_(node)
        assert tries.text == wanted
        assert noted(tries.text) == tries


@pytest.mark.parametrize("text", ["", " ", "x a", "-1 a", "1.5 a", "99999 a", "²"])
def test_what_cannot_be_read_is_none(text: str) -> None:
    assert noted(text) == NONE


def test_a_note_that_is_too_long_forgets_who_tried_first() -> None:
    tries = NONE
    for number in range(100):
        tries = tries.and_(f"{number}-{'x' * 240}")
    assert len(tries.text) <= LONGEST < len(tries.text) + 250
    assert tries.nodes[-1].startswith("99-") and not tries.nodes[0].startswith("0-")


def test_a_try_is_noted_in_the_write_that_gives_the_claim_back() -> None:
    claim = samples.claim(selected="foo", annotations={TRIED_BY: "1 bar"})
    body = GiveBack(tried_by="foo")(claim.whole)
    given = Claim.of(json.loads(body))
    assert given.selected_node == "" and Tries.of(given.notes) == Tries(1, ("bar", "foo"))
    assert given.resource_version == claim.resource_version, "guarded"
