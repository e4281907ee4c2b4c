"""Tables fit the terminal, say all that they say elsewhere, and are as wide as they like where no terminal reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.commands import tables
from sidecar.commands.tables import table
from sidecar.drain.publish.as_text import aligned

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
