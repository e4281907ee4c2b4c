"""A disk that neither takes nor refuses what is written, such as one behind a network: nobody waits for it without a word."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from sidecar.csi.api import Capability, CreateRequest
from sidecar.provisioning.creations import journal as journals
from sidecar.provisioning.creations import leftovers_io
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from sidecar.provisioning.creations.journal_lines import begin_line

T = TypeVar("T")
LONG = 10.0
FIRST = CreationRecord("uid-1", "ns", "claim-1", "fast", CreateRequest("pvc-1", 2**30, (Capability("SINGLE_NODE_WRITER"),)))
SECOND = replace(FIRST, uid="uid-2", name="claim-2")


def run(folder: Path, doing: Callable[[FileJournal], Awaitable[T]], *, states: list[str] | None = None) -> T:
    """In one process's life, which ends without tidying up."""

    async def main() -> T:
        journal = FileJournal(folder, "driver", on_state=(states if states is not None else []).append)
        try:
            return await doing(journal)
        finally:
            if journal._file >= 0:
                os.close(journal._file)

    return asyncio.run(main())


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set it, and what was asked of the disk is done."""
    monkeypatch.setattr(journals, "_PATIENCE", 0.05)
    free = threading.Event()
    flush, append, read = os.fsync, os.fdatasync, os.open

    def slow_flush(handle: int) -> None:
        free.wait(LONG)
        flush(handle)

    def slow_append(handle: int) -> None:
        free.wait(LONG)
        append(handle)

    def slow_open(*args: object, **more: object) -> int:
        if threading.current_thread().name.startswith("journal"):
            free.wait(LONG)
        return read(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", slow_flush)
    monkeypatch.setattr(os, "fdatasync", slow_append)
    monkeypatch.setattr(os, "open", slow_open)
    yield free
    free.set()


async def works_again(journal: FileJournal, states: list[str]) -> None:
    async with asyncio.timeout(LONG):
        while states[-1]:
            await asyncio.sleep(0.01)


def test_nothing_is_begun_while_the_disk_hangs_and_all_hear_why(tmp_path: Path, hang: threading.Event):
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        first, second = await asyncio.gather(journal.begin(FIRST), journal.begin(SECOND))
        assert "has not answered" in first and first == second
        assert states == [first]
        journal.end(FIRST.uid)
        journal.end(SECOND.uid)
        async with asyncio.timeout(0.04):  # nobody waits again for what is known to hang
            assert await journal.begin(FIRST) == first
        journal.end(FIRST.uid)
        hang.set()
        await works_again(journal, states)
        assert await journal.begin(SECOND) == ""

    run(tmp_path, doing, states=states)
    assert [record.uid for record in run(tmp_path, lambda journal: journal.take_over())] == [SECOND.uid]


def test_nothing_is_begun_before_what_others_left_could_be_read(tmp_path: Path, hang: threading.Event):
    """A deletion may have been begun, of the very volume that the driver would answer with."""
    old = replace(FIRST, deletion=BegunDeletion("handle"))
    (tmp_path / ".csi-node-sidecar.driver.0123456789abcdef.journal").write_bytes(begin_line(old) + b"\n")
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        assert await journal.take_over() == []
        assert "has not answered" in states[-1]
        assert await journal.begin(FIRST) == states[-1]
        journal.end(FIRST.uid)
        hang.set()
        await asyncio.sleep(0.1)
        assert await journal.begin(SECOND) != ""
        journal.end(SECOND.uid)
        assert [record.deletion for record in await journal.take_over()] == [old.deletion]
        assert states[-1] == ""
        assert await journal.begin(SECOND) == ""

    run(tmp_path, doing, states=states)


def test_a_suspect_of_a_disk_that_hangs_is_written_once_it_answers(tmp_path: Path, hang: threading.Event):
    suspect, states = replace(FIRST, suspect="somebody may want it"), list[str]()

    async def doing(journal: FileJournal) -> None:
        hang.set()
        assert await journal.begin(FIRST) == ""
        hang.clear()
        assert await journal.begin(SECOND) != ""
        journal.end(SECOND.uid)
        assert await journal.begin(suspect) == states[-1]
        hang.set()
        await works_again(journal, states)
        await journal.close()

    run(tmp_path, doing, states=states)
    assert [record.suspect for record in leftovers_io.read_all(tmp_path, "driver").values()] == [suspect.suspect]
