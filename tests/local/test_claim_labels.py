"""Of whom a node hears by the label of claims, which labels are wrong, and how long a policy that was away is not believed."""

from typing import Any

from sidecar.local.claim_labels import EVERYTHING, Flaw, Trust, Written, heard_claims, is_right, why_wrong
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


def test_a_node_hears_its_own_claims_its_shards_and_what_has_no_label():
    for node in ["n1", "a" * 58, "b" * 200 + "." + "c" * 40]:
        heard = heard_claims(node, ("open.a7", "open.00"))
        for label in (names.claims_of_node(node), "open.a7", "open.00", None):
            assert selects(heard, label)
        for label in ("node.n2", "open.a8", "waiting", "something"):
            assert not selects(heard, label)


def test_a_node_that_bids_for_nothing_hears_no_open_claims():
    assert not any(selects(heard_claims("n1", ()), shard) for shard in names.SHARDS)


def test_a_name_by_which_no_claim_can_be_labelled_hears_everything():
    for node in ["", "UPPER", "a" * 254]:
        assert heard_claims(node, names.SHARDS) == (EVERYTHING,)


def test_what_the_policy_writes_is_right():
    for obj in [
        claim("node.n1", node="n1"),
        claim("node.n1", node="n1", volume="pv"),
        claim("open.a7"),
        claim("open.00"),
        claim("waiting", provisioner=""),
        claim("waiting", volume="pv"),
        claim("waiting", node="No Node"),
    ]:
        assert is_right(obj)
        assert wrong(obj) == ""


def test_what_the_policy_would_not_have_written_is_wrong():
    for obj in [
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
    ]:
        assert "ns/data" in wrong(obj)


def test_claims_of_others_say_nothing_for_us():
    for obj in [claim(None, provisioner="other"), claim("waiting", provisioner="other"), claim(None, provisioner="", class_name="x")]:
        assert wrong(obj) == ""


def test_the_beta_annotation_names_the_class_too():
    obj = claim(None, provisioner="", class_name="x")
    obj["metadata"]["annotations"][names.STORAGE_CLASS_BETA] = "ours"
    assert wrong(obj)
    obj["spec"]["storageClassName"], obj["metadata"]["annotations"][names.STORAGE_CLASS_BETA] = "ours", ""
    assert not wrong(obj), "an empty one says that there is no class"


def at(version: int, created: str = "") -> Written:
    return Written(version, created)


def missing(version: int, created: str = "") -> Flaw:
    return Flaw("none", is_missing=True, written=at(version, created))


def lie(version: int, created: str = "") -> Flaw:
    return Flaw("wrong", is_missing=False, written=at(version, created))


AWAY = Trust().flawed("x", 5.0)


def proven(trust: Trust = AWAY, version: int = 100, created: str = "t5") -> Trust:
    return trust.seen_right(at(version, created), made_since=True)


def test_what_is_later_in_version_or_in_birth_is_after():
    for one, other, is_after in [
        (at(2, "t2"), at(1, "t1"), True),
        (at(1, "t1"), at(2, "t2"), False),
        (at(1, "t1"), at(1, "t1"), False),
        (at(1, "t2"), at(2, "t1"), True),
        (at(2, "t1"), at(1, "t2"), True),
    ]:
        assert one.is_after(other) is is_after


def test_only_what_has_no_label_at_all_is_heard_by_all():
    for label, is_missing in [(None, True), ("", False), ("waiting", False)]:
        assert Flaw.of("x", claim(label)).is_missing is is_missing


def test_a_missing_label_says_nothing_if_any_later_claim_has_the_right_one():
    trust = Trust().seen_right(at(10, "t3"), made_since=False)
    assert not trust.counts(missing(9, "t3"))
    assert trust.counts(missing(11, "t3")) and trust.counts(missing(9, "t4"))


def test_a_wrong_label_says_nothing_only_if_a_claim_was_labelled_since():
    """A write that changes nothing leaves a label right while the policy is away."""
    merely_written = AWAY.seen_right(at(100, "t1"), made_since=False)
    assert merely_written.counts(lie(9))
    assert not proven(merely_written).counts(lie(9))
    assert proven().counts(lie(101))


def test_after_proof_and_quiet_all_claims_are_looked_through():
    assert proven().look_at() == 305.0


def test_a_look_that_finds_nothing_wrong_ends_it():
    assert not proven().looked("", 400.0).is_away
