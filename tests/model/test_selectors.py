"""Label selectors as people write them, read as Kubernetes reads them."""

import pytest

from sidecar.model.selectors import BadSelector, parse_selector
from sidecar.model.topology import Requirement


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
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
    ],
)
def test_what_people_write_is_understood(text: str, wanted: tuple[Requirement, ...]) -> None:
    assert parse_selector(text) == wanted


@pytest.mark.parametrize("text", ["=b", "a=b,", "a in b", "a in (b", "a b", "a in (b c)", "-a", "a=b=c", "a>1", "/a=b"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(BadSelector, match="write key=value"):
        parse_selector(text)
