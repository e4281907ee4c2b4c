"""From a notebook's text to the text as it would be now: its commands played in one world, their transcripts in place."""

import asyncio
import gc
import re
from dataclasses import dataclass
from typing import Final

from sidecar.simulation.clock import run_virtual
from sidecar.simulation.notebook.bench import Bench
from sidecar.simulation.notebook.commands import BadCommand, do

_RULE: Final = "----"


@dataclass(frozen=True, slots=True)
class Entry:
    """Some commands; or, without any, a comment."""

    lines: tuple[str, ...]
    is_comment: bool


def played(text: str) -> str:
    """The notebook with the transcripts that its commands have now."""
    was_on = gc.isenabled()
    gc.disable()  # it would tidy up at a moment that is not the same in every process
    try:
        return run_virtual(_play(entries(text)))
    finally:
        if was_on:
            gc.enable()


def entries(text: str) -> list[Entry]:
    """Paragraphs; a transcript, which is a paragraph's part below the rule, is dropped."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.rstrip() for line in paragraph.splitlines()]
        is_comment = all(line.startswith("#") for line in lines)
        if not is_comment and _RULE not in lines:
            raise BadCommand(f"a paragraph is neither a comment nor has it a {_RULE}: {lines[0]}")
        found.append(Entry(tuple(lines if is_comment else lines[: lines.index(_RULE)]), is_comment))
    return found


async def _play(notebook: list[Entry]) -> str:
    misread: BadCommand | None = None
    paragraphs: list[list[str]] = []
    async with asyncio.TaskGroup() as group:
        bench = Bench(group)
        try:
            paragraphs += [await _paragraph(bench, entry) for entry in notebook]
        except BadCommand as error:  # raised below, where it is not taken for an error of one of the tasks
            misread = error
        bench.close()
    if misread is not None:
        raise misread
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


async def _paragraph(bench: Bench, entry: Entry) -> list[str]:
    if entry.is_comment:
        return list(entry.lines)
    mark = len(bench.diary.lines)
    for line in entry.lines:
        if not line.startswith("#"):
            await do(bench, line)
    return [*entry.lines, _RULE, *bench.diary.since(mark)]
