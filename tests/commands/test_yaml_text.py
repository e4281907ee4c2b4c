"""Our YAML, read by a library that is not ours."""

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sidecar.commands.yaml_text import to_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


AWKWARD = "true no ON y ~ null 0x1f 1e3 1_000 .5 -.inf 2026-11-23 12:30 a:b - ? : | > & * ! % @ ` # [ { = <<"


@pytest.mark.parametrize(
    "text", ["", *AWKWARD.split(), "a: b", "a #b", " a", "a ", "a\nb", "a\r", "\x85", "\u2028", "\ufeff", "\x00", "\U0001f600"]
)
def test_a_text_stays_a_text(text: str) -> None:
    assert yaml.safe_load(to_yaml({text: [text]})) == {text: [text]}


@pytest.mark.parametrize("number", [1e22, 1e-7, 0.1, -0.0, math.inf, -math.inf])
def test_a_number_stays_a_number(number: float) -> None:
    assert yaml.safe_load(to_yaml([number])) == [number]


def test_it_looks_as_people_write_it() -> None:
    value = {"node": "n1", "verdicts": {"retire": "False"}, "blockers": [{"name": "ns/a", "bytes": 1}, {"name": "b c"}], "notes": []}
    assert to_yaml(value) == (
        'node: n1\nverdicts:\n  retire: "False"\nblockers:\n  - name: ns/a\n    bytes: 1\n  - name: "b c"\nnotes: []\n'
    )
