"""Tables fit the terminal, say all that they say elsewhere, and are as wide as they like where no terminal reads."""

import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.lib.control_plane import REPOSITORY
from sidecar.commands import tables
from sidecar.commands.tables import Fitted, table
from sidecar.drain.publish.as_text import aligned, render
from tests.harness.drain.judgements import everything

HEADS = ("NODE", "SAYS", "NEVER", "WHY")
ROWS = [
    ("n1", "drain True for 6s; retire False for 4s", "", "somebody uses the volume, and has done so for quite a while"),
    ("n2", "nothing", "", "x"),
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(tables, "terminal_width", lambda: 50)
    return monkeypatch


def test_a_cell_that_is_too_long_goes_on_below(terminal: pytest.MonkeyPatch) -> None:
    assert table(ROWS, heads=HEADS) == [
        "NODE  SAYS                 WHY",
        "n1    drain True for 6s;   somebody uses the",
        "      retire False for 4s  volume, and has done",
        "                           so for quite a while",
        "n2    nothing              x",
    ]


def test_what_fits_stays_as_it_is_also_without_a_terminal(terminal: pytest.MonkeyPatch) -> None:
    assert table(ROWS[1:], heads=HEADS) == aligned(ROWS[1:], heads=HEADS)
    terminal.setattr(tables, "terminal_width", lambda: 0)
    assert table(ROWS, heads=HEADS) == aligned(ROWS, heads=HEADS)


@pytest.mark.parametrize("width", [1, 2, 3, 40])
def test_no_terminal_is_too_narrow_and_no_cell_too_blank(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason of blanks is somebody's annotation."""
    monkeypatch.setattr(tables, "terminal_width", lambda: width)
    assert table([], heads=HEADS, indent=4) == []
    for blank in ("  ", "\t \n"):
        assert "".join(table([("word", blank), ("x" * 50, "")], indent=4)).replace(" ", "").startswith("word")


def test_the_width_is_that_of_the_terminal_that_reads() -> None:
    """A pipe has none, whatever COLUMNS says."""
    program = "from sidecar.commands.printing import terminal_width; print(terminal_width())"
    environ = {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "77"}
    ours, theirs = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", program], stdout=theirs, env=environ, check=True, timeout=30)
        assert os.read(ours, 100).split() == [b"77"]
    finally:
        os.close(ours)
        os.close(theirs)
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, env=environ, check=True, timeout=30).stdout == b"0\n"


def test_an_assessment_fits_the_terminal_and_loses_no_word(terminal: pytest.MonkeyPatch) -> None:
    terminal.setattr(tables, "terminal_width", lambda: 95)
    fitted, wide = render(everything(), layout=Fitted()), render(everything())
    assert max(map(len, fitted.splitlines())) <= 95 < max(map(len, wide.splitlines()))
    assert sorted(fitted.split()) == sorted(wide.split())
    lines = fitted.splitlines()
    below = next(number for number, line in enumerate(lines) if line == "    shop/db-0 has it")
    assert lines[below + 1].startswith("shop/data-0 ")


CELL = st.lists(st.text("abcß-", min_size=1, max_size=9), max_size=12).map(" ".join)


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=5), st.integers(1, 90))
def test_no_word_is_lost_or_broken_and_it_fits_if_the_words_do(rows: list[tuple[str, str, str]], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "terminal_width", lambda: width)
        lines = table(rows, heads=("A", "B", "C"))
    wanted = sorted(word for row in rows for cell in row for word in cell.split())
    found = sorted(word for line in lines[1:] for word in line.split())
    assert found == wanted
    assert all(len(line) <= max(width, 3 * 9 + 4) for line in lines)
