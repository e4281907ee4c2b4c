"""Tables that fit the terminal: a cell that is too long goes on in the next line. Nothing is cut off, and a word is never broken."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap

from sidecar.commands.printing import terminal_width
from sidecar.drain.publish.as_text import aligned
from sidecar.observe.sanitize import visible

_BETWEEN = 2


def table(rows: Sequence[Sequence[str]], *, heads: Sequence[str] = (), indent: int = 0) -> list[str]:
    """Columns two blanks apart, as `aligned` makes them; where the answer goes to a terminal, no wider than that, as far as words allow."""
    width = terminal_width()
    return aligned(_broken(rows, heads=heads, width=max(1, width - indent)) if width else rows, heads=heads)


def _broken(rows: Sequence[Sequence[str]], *, heads: Sequence[str], width: int) -> list[tuple[str, ...]]:
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    columns = [[*heads[place : place + 1], *column] for place, column in enumerate(zip(*texts, strict=True))]
    widths = _widths([column if any(column[len(heads[:1]) :]) else [] for column in columns], width)
    broken: list[tuple[str, ...]] = []
    for row in texts:
        lines = [_lines(cell, most) for cell, most in zip(row, widths, strict=True)]
        broken += zip_longest(*lines, fillvalue="")
    return broken


def _lines(cell: str, width: int) -> list[str]:
    return wrap(cell, max(1, width), break_long_words=False, break_on_hyphens=False) if len(cell) > width else [cell]


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Of each column. The widest one gives way first; none is narrower than its longest word. A column without cells takes no room."""
    natural = [max(map(len, column), default=0) for column in columns]
    least = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    least = [max(words, len(column[0])) if column else 0 for words, column in zip(least, columns, strict=True)]
    chosen = list(natural)
    while _total(chosen) > width:
        place = max(range(len(chosen)), key=lambda place: (chosen[place] > least[place], chosen[place]))
        if chosen[place] <= least[place]:
            break
        chosen[place] -= 1
    return chosen


def _total(widths: Iterable[int]) -> int:
    used = [width for width in widths if width]
    return sum(used) + _BETWEEN * (len(used) - 1)
