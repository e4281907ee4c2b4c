"""Our YAML, read by a library that is not ours."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from sidecar.commands.yaml_text import to_yaml

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value
