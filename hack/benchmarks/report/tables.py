"""Markdown as the measurements print it: tables, and paragraphs between them. And which columns of a table can be drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NUMBER = re.compile(r"\*?(-?\d[\d,]*(?:\.\d+)?)\*?(?: ?(?:s|ms|MiB|GiB|kB|MB|%))?")
RULE = re.compile(r"\|?[\s:|-]+\|?")
CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def numbers(self, column: int) -> list[float] | None:
        """None: not all of them are numbers. A cell may be empty, or say with a dash that nothing was measured."""
        found = [number_in(row[column]) for row in self.rows]
        return [0.0 if value is None else value for value in found] if self._is_drawn(column, found) else None

    def _is_drawn(self, column: int, found: Sequence[float | None]) -> bool:
        measured = [value for value, row in zip(found, self.rows, strict=True) if row[column] not in ("", "-", "–")]
        return bool(measured) and all(value is not None and value >= 0 for value in measured) and any(measured)

    @property
    def drawn(self) -> list[int]:
        """The columns that can be drawn, where there is something to compare."""
        return [column for column in range(1, len(self.head)) if self.numbers(column)] if len(self.rows) > 1 else []

    def label(self, row: int) -> str:
        """Of what the figures are: the cells that are none, up to the first that is one."""
        first = min(self.drawn, default=len(self.head))
        return ", ".join(cell for cell in self.rows[row][:first] if cell)


def number_in(cell: str) -> float | None:
    found = NUMBER.fullmatch(cell)
    return float(found[1].replace(",", "")) if found else None


def parts(text: str) -> Iterator[Table | str]:
    """Paragraphs are lists of lines in one."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line for line in block.splitlines() if line.strip()]
        start = next((at for at in range(len(lines) - 1) if _is_head(lines[at], lines[at + 1])), None)
        if start is None:
            if lines:
                yield "\n".join(lines)
            continue
        end = next((at for at in range(start, len(lines)) if not lines[at].lstrip().startswith("|")), len(lines))
        if start:
            yield "\n".join(lines[:start])
        yield table(lines[start:end])
        if end < len(lines):
            yield "\n".join(lines[end:])


def _is_head(line: str, next_: str) -> bool:
    return line.lstrip().startswith("|") and "-" in next_ and RULE.fullmatch(next_.strip()) is not None


def table(lines: Sequence[str]) -> Table:
    head = cells(lines[0])
    rows = [cells(line) for line in lines[2:]]
    return Table(head, tuple((*row, *[""] * (len(head) - len(row)))[: len(head)] for row in rows))


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip().replace("\\|", "|") for cell in CELL.split(line.strip().removeprefix("|").removesuffix("|")))
