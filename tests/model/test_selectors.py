"""Label selectors as people write them, read as Kubernetes reads them."""

import pytest

from sidecar.model.selectors import BadSelector, parse_selector
from sidecar.model.topology import Requirement


def test_what_people_write_is_understood() -> None:
    for text, wanted in [
        ("", ()),
        ("  ", ()),
        ("a=b", (Requirement("a", "In", ("b",)),)),
        ("a == b", (Requirement("a", "In", ("b",)),)),
        ("a=", (Requirement("a", "In", ("",)),)),
        ("example.com/tier!=gold", (Requirement("example.com/tier", "NotIn", ("gold",)),)),
        ("a in (b, c),d", (Requirement("a", "In", ("b", "c")), Requirement("d", "Exists"))),
        ("a notin (b),!d", (Requirement("a", "NotIn", ("b",)), Requirement("d", "DoesNotExist"))),
        (
            "example.com/name notin (a,b),x=y",
            (Requirement("example.com/name", "NotIn", ("a", "b")), Requirement("x", "In", ("y",))),
        ),
    ]:
        assert parse_selector(text) == wanted


def test_what_is_no_selector_is_refused() -> None:
    for text in ["=b", "a=b,", "a in b", "a in (b", "a b", "a in (b c)", "-a", "a=b=c", "a>1", "/a=b"]:
        with pytest.raises(BadSelector, match="write key=value"):
            parse_selector(text)
