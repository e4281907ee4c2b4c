"""A journal in memory that several processes use, one after the other."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from tests.harness.provisioning.bench import Bench


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


async def becomes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def written(journal: FileJournal) -> None:
    """All that waits, and was to be written without anybody's asking."""
    await becomes(lambda: journal._due is None and not journal._batch.lines and (not journal._flushing or journal._flushing.done()))
