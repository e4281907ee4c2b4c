"""Rows of text whose columns stand below one another."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The first column on the left, numbers on the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()
