"""Names that other programs see must be upstream's to the letter."""

import re

from sidecar.model import names
from sidecar.model.label_syntax import flaw_of_label
from sidecar.model.names import capacity_manager, shared_event, volume_name


def test_F8_F10_F12_F13_managed_by_label_fits_into_63_characters() -> None:
    for node, label in [
        ("node01", "external-provisioner-node01"),
        ("node" + "a" * 38, "external-provisioner-node" + "a" * 38),
        ("node" + "a" * 39, "external-p-53f40b57-node" + "a" * 39),
        ("node" + "a" * 48, "e-53f40b57-node" + "a" * 48),
        ("node" + "a" * 49, "external-provisioner-a3607ff1"),
        ("node" + "a" * 63, "external-provisioner-df38e37f"),
    ]:
        assert capacity_manager(node) == label
        assert len(label) <= 63


def test_F13_managed_by_label_with_an_empty_base() -> None:
    assert capacity_manager("node" + "a" * 63, base="") == "fa65587e"


def test_F15_volume_name() -> None:
    for prefix, uid, length, name in [
        ("pvc", "a-b-c", -1, "pvc-a-b-c"),
        ("test", "testid", 5, "test-testi"),
        ("pvc", "0123-4567-89", 32, "pvc-0123456789"),
        ("pvc", "a-b-c", 2, "pvc-ab"),
    ]:
        assert volume_name(prefix, uid, length) == name


def test_the_name_of_an_event_that_all_nodes_would_write_is_one_that_the_api_server_takes() -> None:
    for claim, event in [
        ("data", "data.01234567.waits"),
        ("a" * 238, "a" * 238 + ".01234567.waits"),
        ("a" * 239, "a" * 238 + ".01234567.waits"),
        ("a" * 236 + "-.bb", "a" * 236 + ".01234567.waits"),
    ]:
        assert shared_event(claim, "01234567-89ab", "waits") == event
        assert len(event) <= 253


UID = "0a1b2c3d-1111-2222-3333-444455556666"


def test_a_volume_s_name_is_known_whatever_the_flags_were() -> None:
    for prefix in ["pvc", "a-b"]:
        for length in [-1, 1, 8, 12, 32]:
            assert names.is_volume_name(names.volume_name(prefix, UID, length), UID)


def test_other_names_are_not() -> None:
    for name in ["", "-", "pvc", "pvc-", "by-hand", UID, "-0a1b2c3d", f"pvc{UID}", "pvc-0a1b2c3e", "pvc-1111"]:
        assert not names.is_volume_name(name, UID)


def test_every_node_s_name_makes_the_value_of_a_label() -> None:
    for node in ["n1", "n" * 63, "n" * 64, f"{'n' * 53}.{'n' * 80}", f"{'n' * 53}-.{'n' * 198}"]:
        value = names.node_value(node)
        assert not flaw_of_label(names.VOLUME_NODE, value)
        assert value == node or names.node_value(f"{node}2") != value


LONG = "a" * 29 + "-in-the-middle-" + "b" * 28


def test_claims_of_a_node_have_a_label_that_a_watch_can_select() -> None:
    for node, value in [
        ("n1", "node.n1"),
        ("ip-10-0-0-1.eu-1.example.com", "node.ip-10-0-0-1.eu-1.example.com"),
        ("n" * 58, "node." + "n" * 58),
        (LONG, "node." + "a" * 29 + "_" + "b" * 28),
        ("a" * 253, "node." + "a" * 29 + "_" + "a" * 28),
        ("a" * 254, ""),
        *((name, "") for name in ("", "A", "a b", "a_b", "a\n", "-a", "a-", ".a", "é", "node/a")),
    ]:
        assert names.claims_of_node(node) == value
        assert not flaw_of_label(names.CLAIM_LABEL, value)


def test_a_name_that_was_cut_is_no_other_node_s_whole_name() -> None:
    """Only another one that was cut can have the same value."""
    assert not re.fullmatch(r"[-a-z0-9.]*", names.claims_of_node("a" * 59))


def test_the_label_of_a_claim() -> None:
    for claim, value in [
        ({}, "waiting"),
        ({"provisioner": "d"}, "open.66"),
        ({"provisioner": "d", "uid": ""}, "open.00"),
        ({"provisioner": "d", "uid": "0A1B-FF"}, "open.00"),
        ({"provisioner": "d", "volume_name": "v"}, "waiting"),
        ({"volume_name": "v"}, "waiting"),
        ({"selected_node": "n1"}, "node.n1"),
        ({"selected_node": "n1", "provisioner": "d"}, "node.n1"),
        ({"selected_node": "n1", "provisioner": "d", "volume_name": "v"}, "node.n1"),
        ({"selected_node": "No Node", "provisioner": "d"}, "waiting"),
    ]:
        told = {"selected_node": "", "provisioner": "", "volume_name": "", "uid": UID} | claim
        assert names.claim_label(**told) == value
