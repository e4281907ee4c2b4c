"""Tables that fit the terminal: a cell that is too long goes on in the next line. Nothing is cut off. A word is broken only where the table
would not fit else, behind one of `-/.,` or before a capital letter."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice, zip_longest
from textwrap import wrap
from typing import Final

from sidecar.commands.printing import terminal_width
from sidecar.commands.text import aligned
from sidecar.observe.sanitize import visible

_BETWEEN: Final = 2
_PIECES: Final = re.compile(r"(?<=[-/.,])(?=.)|(?<=[a-z])(?=[A-Z])")


def table(rows: Sequence[Sequence[str]], *, heads: Sequence[str] = (), indent: int = 0) -> list[str]:
    """Columns two blanks apart, as `aligned` makes them; where the answer goes to a terminal, no wider than that, as far as words allow."""
    width = terminal_width()
    broken = chain.from_iterable(_broken(rows, heads=heads, width=max(1, width - indent))) if width else rows
    return aligned([*broken], heads=heads)


class Fitted:
    """`text.Layout` for the terminal that reads, and a line for each where none does."""

    def rows(self, rows: Sequence[Sequence[str]], *, heads: Sequence[str] = ()) -> list[list[str]]:
        width = terminal_width()
        broken = _broken(rows, heads=heads, width=width) if width else [[tuple(row)] for row in rows]
        lines = iter(aligned([line for row in broken for line in row], heads=heads))
        counts = [1] * bool(heads and broken) + [len(row) for row in broken]
        return [[*islice(lines, count)] for count in counts]

    def text(self, line: str) -> list[str]:
        """It goes on two blanks further in."""
        width = terminal_width()
        if not width or len(line) <= width:
            return [line]
        begin = line[: len(line) - len(line.lstrip())]
        words = wrap(
            line.strip(), width, initial_indent=begin, subsequent_indent=f"{begin}  ", break_long_words=False, break_on_hyphens=False
        )
        return words or [line]


def _broken(rows: Sequence[Sequence[str]], *, heads: Sequence[str], width: int) -> list[list[tuple[str, ...]]]:
    """The lines of each row."""
    texts = [[visible(str(cell)) for cell in row] for row in rows]
    columns = [[*heads[place : place + 1], *column] for place, column in enumerate(zip(*texts, strict=True))]
    widths = _widths([column if any(column[len(heads[:1]) :]) else [] for column in columns], width, headed=bool(heads))
    cells = [[_lines(cell, most) for cell, most in zip(row, widths, strict=True)] for row in texts]
    return [[*zip_longest(*lines, fillvalue="")] for lines in cells]


def _lines(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    parts = " ".join(part for word in cell.split() for part in _parts(word, width))
    return wrap(parts, max(1, width), break_long_words=False, break_on_hyphens=False) or [""]


def _parts(word: str, width: int) -> list[str]:
    parts = [""]
    for piece in _PIECES.split(word) if len(word) > width else [word]:
        if parts[-1] and len(parts[-1]) + len(piece) > width:
            parts.append("")
        parts[-1] += piece
    return parts


def _widths(columns: Sequence[Sequence[str]], width: int, *, headed: bool) -> list[int]:
    """Of each column. The widest one gives way first, down to its longest word, and then to the longest piece of a word. A column without
    cells takes no room."""
    chosen = [max(map(len, column), default=0) for column in columns]
    words = [[word for cell in column for word in cell.split()] for column in columns]
    for parts in (words, [[piece for word in column for piece in _PIECES.split(word)] for column in words]):
        least = [max((*map(len, its), len(column[0]) * headed)) if column else 0 for its, column in zip(parts, columns, strict=True)]
        while _total(chosen) > width:
            place = max(range(len(chosen)), key=lambda place: (chosen[place] > least[place], chosen[place]))
            if chosen[place] <= least[place]:
                break
            chosen[place] -= 1
    return chosen


def _total(widths: Iterable[int]) -> int:
    used = [width for width in widths if width]
    return sum(used) + _BETWEEN * (len(used) - 1)
