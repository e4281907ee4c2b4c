"""A disk that neither takes nor refuses what is written, such as one behind a network: nobody waits for it without a word."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.csi.api import Capability, CreateRequest
from sidecar.provisioning.creations import journal as journals
from sidecar.provisioning.creations import leftovers_io
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from sidecar.provisioning.creations.journal_lines import begin_line
from tests.harness.provisioning.journal import run

LONG = 60.0
FIRST = CreationRecord("uid-1", "ns", "claim-1", "fast", CreateRequest("pvc-1", 2**30, (Capability("SINGLE_NODE_WRITER"),)))
SECOND = replace(FIRST, uid="uid-2", name="claim-2")


class Disk:
    """It hangs until it answers, and only while it hangs nobody has much patience with it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self.free = patch, threading.Event()
        self.hangs()

    def hangs(self, *, patience: float = 0.05) -> None:
        self.free.clear()
        self._patch.setattr(journals, "_PATIENCE", patience)

    def answers(self) -> None:
        self._patch.setattr(journals, "_PATIENCE", LONG)
        self.free.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    free = disk.free
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
    yield disk
    free.set()


async def works_again(journal: FileJournal, states: list[str]) -> None:
    async with asyncio.timeout(LONG):
        while states[-1]:
            await asyncio.sleep(0.01)


def test_nothing_is_begun_while_the_disk_hangs_and_all_hear_why(tmp_path: Path, disk: Disk):
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        first, second = await asyncio.gather(journal.begin(FIRST), journal.begin(SECOND))
        assert "has not answered" in first and first == second
        assert states == [first]
        journal.end(FIRST.uid)
        journal.end(SECOND.uid)
        disk.hangs(patience=2 * LONG)
        async with asyncio.timeout(LONG):  # nobody waits again for what is known to hang
            assert await journal.begin(FIRST) == first
        journal.end(FIRST.uid)
        disk.answers()
        await works_again(journal, states)
        assert await journal.begin(SECOND) == ""

    run(tmp_path, doing, states=states)
    assert [record.uid for record in run(tmp_path, lambda journal: journal.take_over())] == [SECOND.uid]


def test_nothing_is_begun_before_what_others_left_could_be_read(tmp_path: Path, disk: Disk):
    """A deletion may have been begun, of the very volume that the driver would answer with."""
    old = replace(FIRST, deletion=BegunDeletion("handle"))
    (tmp_path / ".csi-node-sidecar.a_driver.0123456789abcdef.journal").write_bytes(begin_line(old) + b"\n")
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        assert await journal.take_over() == []
        assert "has not answered" in states[-1]
        assert await journal.begin(FIRST) == states[-1]
        journal.end(FIRST.uid)
        disk.answers()
        assert await journal.begin(SECOND) != ""
        journal.end(SECOND.uid)
        assert [record.deletion for record in await journal.take_over()] == [old.deletion]
        assert states[-1] == ""
        assert await journal.begin(SECOND) == ""

    run(tmp_path, doing, states=states)


def test_a_suspect_of_a_disk_that_hangs_is_written_once_it_answers(tmp_path: Path, disk: Disk):
    suspect, states = replace(FIRST, suspect="somebody may want it"), list[str]()

    async def doing(journal: FileJournal) -> None:
        disk.answers()
        assert await journal.begin(FIRST) == ""
        disk.hangs()
        assert await journal.begin(SECOND) != ""
        journal.end(SECOND.uid)
        assert await journal.begin(suspect) == states[-1]
        disk.answers()
        await works_again(journal, states)
        await journal.close()

    run(tmp_path, doing, states=states)
    assert [record.suspect for record in leftovers_io.read_all(tmp_path, "a/driver").values()] == [suspect.suspect]


def test_the_end_of_the_process_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, disk: Disk):
    async def doing(journal: FileJournal) -> None:
        await journal.begin(FIRST)
        async with asyncio.timeout(LONG / 2):
            await journal.close()

    run(tmp_path, doing)
