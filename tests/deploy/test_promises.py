"""The page of promises names tests that exist."""

import re

import pytest

from hack.lib.control_plane import REPOSITORY

PAGE = REPOSITORY / "deploy" / "components" / "drain" / "promises" / "README.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text())))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda part: part)
def test_each_promise_is_held_by_a_test_that_exists(file: str, test: str) -> None:
    assert f"\ndef {test}(" in (REPOSITORY / "tests" / file).read_text()


def test_each_row_names_one() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| case"))]
    assert len(rows) > 40 and [row for row in rows if ".py::test_" not in row] == []
