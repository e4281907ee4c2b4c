"""Journals: one in memory that several processes use one after the other, and files."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from tests.harness.provisioning.bench import Bench

T = TypeVar("T")


@dataclass
class JournalInMemory:
    """A journal as the processes on a node have it, one after the other."""

    lines: dict[str, CreationRecord] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    async def begin(self, begun: CreationRecord) -> str:
        self.calls.append(f"begin {begun.uid}")
        if (same := self.lines.get(begun.other_key)) is not None and same.request.name == begun.request.name:
            del self.lines[begun.other_key]
        self.lines[begun.key] = begun
        return ""

    def end(self, key: str) -> None:
        self.calls.append(f"end {key}")
        self.lines.pop(key, None)

    def suspect(self) -> CreationRecord:
        """The one that is left to people; there is no other line."""
        (line,) = self.lines.values()
        assert line.suspect
        return line

    async def take_over(self) -> list[CreationRecord]:
        return list(self.lines.values())

    def settled(self) -> list[str]:
        return []

    async def close(self) -> None:
        pass


def with_journal(bench: Bench, paper: JournalInMemory | None = None) -> JournalInMemory:
    paper = paper or JournalInMemory()
    bench.room.creations.journal = paper
    return paper


def run(
    folder: Path, doing: Callable[[FileJournal], Awaitable[T]], *, states: list[str] | None = None, damage: Counter[str] | None = None
) -> T:
    """In one process's life, with a journal of its own in the folder."""

    def damaged(kind: str, count: int) -> None:
        if damage is not None:
            damage[kind] += count

    async def main() -> T:
        journal = FileJournal(folder, "a/driver", on_state=(states if states is not None else []).append, on_damage=damaged)
        try:
            return await doing(journal)
        finally:
            if journal._file >= 0:  # as the kernel does when a process dies, without any tidying up
                os.close(journal._file)

    return asyncio.run(main())


async def becomes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def written(journal: FileJournal) -> None:
    """All that waits, and was to be written without anybody's asking."""
    await becomes(lambda: journal._due is None and not journal._batch.lines and (not journal._flushing or journal._flushing.done()))
