"""A column of a table as bars: SVG that is written as text, in the colours of the page, light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hack.benchmarks.report.tables import Table
from hack.benchmarks.stage import PEER

WIDTH = 640
LABELS = 250
FIGURES = 80
LINE = 22
MOST_LETTERS = 30
"""Of a label; the whole of it is in its tooltip."""


def plot(table: Table, column: int) -> str:
    """One column, from zero."""
    values = table.numbers(column) or []
    most = max(values)
    title = escape(table.head[column])
    bars = [
        _bar(20 + LINE * row, table.label(row), table.rows[row][column], value / most if most else 0.0) for row, value in enumerate(values)
    ]
    height = 26 + LINE * len(values)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"><text class="title" x="0" y="13">{title}</text>{"".join(bars)}</svg>'
    )


def plots(table: Table) -> Sequence[str]:
    return [plot(table, column) for column in table.drawn]


def _bar(top: float, label: str, figure: str, share: float) -> str:
    width = (WIDTH - LABELS - FIGURES) * share
    kind = "peer" if PEER in label else "ours"
    short = label if len(label) <= MOST_LETTERS else f"{label[: MOST_LETTERS - 1]}…"
    return (
        f"<g><title>{escape(label)}: {escape(figure)}</title>"
        f'<text x="{LABELS - 8}" y="{top + 15:g}" text-anchor="end">{escape(short)}</text>'
        f'<rect class="{kind}" x="{LABELS}" y="{top + 3:g}" width="{width:.1f}" height="{LINE - 6}"/>'
        f'<text x="{LABELS + width + 6:.1f}" y="{top + 15:g}">{escape(figure)}</text></g>'
    )
