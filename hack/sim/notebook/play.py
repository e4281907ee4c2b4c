"""Plays a notebook: runs its commands in one world and puts the transcripts below them."""

import asyncio
import gc
import re
from typing import Final

from hack.sim.clock import run_virtual
from hack.sim.notebook.commands import BadCommand, do
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.frozen import frozen

_RULE: Final = "----"


@frozen
class Entry:
    """A paragraph of a notebook: some commands, or a comment without any."""

    lines: tuple[str, ...]
    is_comment: bool


def played(text: str) -> str:
    """The notebook with the transcripts that its commands have now."""
    was_on = gc.isenabled()
    gc.disable()  # it would run clean-up code at different moments in different processes
    try:
        return run_virtual(_play(entries(text)))
    finally:
        if was_on:
            gc.enable()


def entries(text: str) -> list[Entry]:
    """The paragraphs of the text, without the transcripts below their rules."""
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
        world = NotebookWorld(group)
        try:
            paragraphs += [await _paragraph(world, entry) for entry in notebook]
        except BadCommand as error:  # raised further down, so that it is not taken for an error of one of the tasks
            misread = error
        world.close()
    if misread is not None:
        raise misread
    return "\n\n".join("\n".join(lines) for lines in paragraphs) + "\n"


async def _paragraph(world: NotebookWorld, entry: Entry) -> list[str]:
    if entry.is_comment:
        return list(entry.lines)
    mark = len(world.log.lines)
    for line in entry.lines:
        if not line.startswith("#"):
            await do(world, line)
    return [*entry.lines, _RULE, *world.log.since(mark)]
