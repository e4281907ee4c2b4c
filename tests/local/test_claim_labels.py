"""Of whom a node hears by the label of claims, which labels are wrong, and how long a policy that was away is not believed."""

from typing import Any

import pytest

from sidecar.local.claim_labels import EVERYTHING, Trust, heard_claims, is_right, why_wrong
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.model.selectors import parse_selector

DRIVER, UID = "d.example.com", "00000000-0000-4000-8000-0000000000a7"


def claim(label: str | None, *, node: str = "", provisioner: str = DRIVER, volume: str = "", class_name: str = "ours") -> Json:
    notes = {names.SELECTED_NODE: node, names.STORAGE_PROVISIONER: provisioner}
    meta: dict[str, Any] = {
        "namespace": "ns",
        "name": "data",
        "uid": UID,
        "annotations": {key: text for key, text in notes.items() if text},
    }
    if label is not None:
        meta["labels"] = {names.CLAIM_LABEL: label}
    return {"metadata": meta, "spec": {"storageClassName": class_name, **({"volumeName": volume} if volume else {})}}


def wrong(obj: Json) -> str:
    return why_wrong(obj, driver=DRIVER, is_ours=lambda name: name == "ours")


def selects(selectors: tuple[str, ...], label: str | None) -> bool:
    labels = {} if label is None else {names.CLAIM_LABEL: label}
    return any(all(each.holds(labels) for each in parse_selector(text)) for text in selectors)


@pytest.mark.parametrize("node", ["n1", "a" * 58, "b" * 200 + "." + "c" * 40])
def test_a_node_hears_its_own_claims_its_shards_and_what_has_no_label(node: str):
    heard = heard_claims(node, ("open.a7", "open.00"))
    for label in (names.claims_of_node(node), "open.a7", "open.00", None):
        assert selects(heard, label)
    for label in ("node.n2", "open.a8", "waiting", "something"):
        assert not selects(heard, label)


def test_a_node_that_bids_for_nothing_hears_no_open_claims():
    assert not any(selects(heard_claims("n1", ()), shard) for shard in names.SHARDS)


@pytest.mark.parametrize("node", ["", "UPPER", "a" * 254])
def test_a_name_by_which_no_claim_can_be_labelled_hears_everything(node: str):
    assert heard_claims(node, names.SHARDS) == (EVERYTHING,)


@pytest.mark.parametrize(
    "obj",
    [
        claim("node.n1", node="n1"),
        claim("node.n1", node="n1", volume="pv"),
        claim("open.a7"),
        claim("open.00"),
        claim("waiting", provisioner=""),
        claim("waiting", volume="pv"),
        claim("waiting", node="No Node"),
    ],
)
def test_what_the_policy_writes_is_right(obj: Json):
    assert is_right(obj)
    assert wrong(obj) == ""


@pytest.mark.parametrize(
    "obj",
    [
        claim(None),
        claim(None, provisioner=""),
        claim("", node="n1"),
        claim("waiting", node="n1"),
        claim("open.a7", node="n1"),
        claim("node.n1"),
        claim("node.n2", node="n1"),
        claim("open.a8"),
        claim("open.00", node="n1"),
        claim("waiting"),
    ],
)
def test_what_the_policy_would_not_have_written_is_wrong(obj: Json):
    assert "ns/data" in wrong(obj)


@pytest.mark.parametrize(
    "obj", [claim(None, provisioner="other"), claim("waiting", provisioner="other"), claim(None, provisioner="", class_name="x")]
)
def test_claims_of_others_say_nothing_for_us(obj: Json):
    assert wrong(obj) == ""


def test_the_beta_annotation_names_the_class_too():
    obj = claim(None, provisioner="", class_name="x")
    obj["metadata"]["annotations"][names.STORAGE_CLASS_BETA] = "ours"
    assert wrong(obj)


def test_a_policy_is_believed_until_something_is_wrong():
    assert not Trust().is_away
    assert Trust().seen_right() == Trust()
    assert Trust().flawed("x", 5.0).is_away


def test_without_proof_all_is_heard_for_ever():
    assert Trust().flawed("x", 5.0).look_at() is None


def test_after_proof_and_quiet_all_claims_are_looked_through():
    assert Trust().flawed("x", 5.0).seen_right().look_at() == 305.0


def test_what_is_wrong_after_the_proof_needs_another_one():
    trust = Trust().flawed("x", 5.0).seen_right().flawed("y", 50.0)
    assert trust.look_at() is None
    assert trust.seen_right().look_at() == 350.0


def test_a_look_that_finds_nothing_wrong_ends_it():
    assert Trust().flawed("x", 5.0).seen_right().looked("", 400.0) == Trust()


def test_looks_that_find_something_become_rarer_and_never_end():
    trust, at, pauses = Trust().flawed("x", 0.0).seen_right(), 0.0, []
    for _ in range(8):
        due = trust.look_at()
        assert due is not None
        pauses.append(due - at)
        at = due
        trust = trust.looked("old", at)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (300.0, 1800.0)
