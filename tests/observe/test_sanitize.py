import json
from dataclasses import dataclass, field
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.model.by_key import BY_KEY
from sidecar.observe.sanitize import LIMITS, Limits, clipped, plain, quoted, to_json, visible


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Shown:
    name: str
    hidden: str = field(repr=False, default="not this")


@dataclass(frozen=True)
class Speaking:
    name: str

    def __str__(self):
        return f"<{self.name}>"


class Broken:
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("text", "text"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (2**70, str(2**70)),
        (Colour.RED, "red"),
        (("a", 1), ["a", 1]),
        (frozenset({1}), [1]),
        ({1: {"a": None}}, {"1": {"a": None}}),
        (b"raw", "b'raw'"),
        (ValueError("bad"), "bad"),
        (ValueError(), "ValueError"),
        (Shown("a"), {"name": "a"}),
        (Speaking("a"), "<a>"),
        (Shown, "<class 'tests.observe.test_sanitize.Shown'>"),
        (Broken(), "<unprintable Broken>"),
        ([Broken(), 1], ["<unprintable Broken>", 1]),
    ],
)
def test_values_become_what_json_can_carry(value, shown):
    assert plain(value) == shown


def test_a_value_that_contains_itself_ends():
    endless = []
    endless.append(endless)
    assert to_json(plain(endless)) == "[" * LIMITS.depth + '"<list>"' + "]" * LIMITS.depth


def test_what_is_too_long_is_cut_and_says_so():
    assert plain("x" * (LIMITS.text + 1)) == "x" * LIMITS.text + f"… ({LIMITS.text + 1} characters)"
    assert plain(list(range(LIMITS.items + 5)))[-1] == "… and 5 more"
    assert plain({n: n for n in range(LIMITS.items + 5)})["…"] == "and 5 more"
    assert plain([[[1]], "long"], Limits(text=2, items=2, depth=2)) == [["<list>"], "lo… (4 characters)"]
    assert clipped("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", '"plain"'),
        ('say "hi"\\', r'"say \"hi\"\\"'),
        ("a\nb\tc\rd", r'"a\nb\tc\rd"'),
        ("\x00\x1b\x7f", r'"\x00\x1b\x7f"'),
        ("\u2028\u00a0\ud800", r'"\u2028\u00a0\ud800"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("Grüße 世界", '"Grüße 世界"'),
    ],
)
def test_quoting_is_that_of_go(text, shown):
    assert quoted(text) == shown


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(json_like)
def test_any_value_is_one_line_of_valid_json(value):
    line = to_json(plain(value))
    assert len(line.splitlines()) <= 1
    json.loads(line)


@given(st.text())
def test_any_text_is_one_printable_line(text):
    assert quoted(text).isprintable()
    assert visible(text).isprintable()


def test_a_number_python_refuses_to_print_does_not_cost_the_line():
    assert plain(10**5000) == "<unprintable int>"


def test_values_of_fields_that_are_shown_by_key_show_nowhere() -> None:
    @dataclass
    class Asked:
        name: str
        parameters: object = field(repr=False, metadata=BY_KEY)

    for parameters in ({"adminPassword": "canary"}, ["canary"], "canary"):
        asked = Asked("pvc-1", parameters)
        assert "canary" not in f"{asked}{to_json(plain({'request': [asked]}))}"
    assert plain(Asked("pvc-1", {"adminPassword": "canary", "b": {}})) == {
        "name": "pvc-1",
        "parameters": {"adminPassword": "***", "b": "***"},
    }
