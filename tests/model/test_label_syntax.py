"""Keys and values of labels. What the API server takes, tests/contract asks it."""

import pytest

from sidecar.model.label_syntax import flaw_of_label
from sidecar.model.topology import Segment

LONG = "a" * 63


@pytest.mark.parametrize(
    ("key", "value"),
    [("a", ""), ("A.b_c-1", "1-b_C.2"), (LONG, LONG), (f"a.example.com/{LONG}", "0"), ("a" * 253 + "/a", "0"), ("x/y", "x")],
)
def test_labels(key: str, value: str) -> None:
    assert flaw_of_label(key, value) == ""


def test_no_keys() -> None:
    for key in ["", "/", "/a", "a/", "a/b/c", "-a", "a-", "a b", "a\n", "ä", f"a{LONG}", "A/b", "a..b/c", "a" * 254 + "/a", "a_b/c"]:
        assert flaw_of_label(key, "") == f"{key if len(key) <= 80 else key[:80] + '...'!r} is no key of a label"


def test_no_values() -> None:
    for value in [".", "-a", "a-", "a b", "a\n", "ä", "a/b", f"a{LONG}"]:
        assert flaw_of_label("key", value).startswith(f"'key' has the value {value!r}, which ")


def test_a_segment_has_the_flaw_of_any_of_its_pairs() -> None:
    assert Segment.of({"a": "b", "c": "d e", "f": "g"}).flaw() == "'c' has the value 'd e', which no label may have"
    assert Segment.of({"a": "b", "c": ""}).flaw() == Segment().flaw() == ""
