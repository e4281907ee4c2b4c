"""What was begun is found by who comes next, whatever has become of who began it."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.csi.api import Capability, CreateRequest
from sidecar.model.topology import Segment
from sidecar.provisioning import journal as journals
from sidecar.provisioning.begun import Begun, from_line, to_line
from sidecar.provisioning.journal import FileJournal

T = TypeVar("T")
REQUEST = CreateRequest(
    name="pvc-1",
    required_bytes=2**30,
    capabilities=(Capability("SINGLE_NODE_WRITER", fs_type="ext4", mount_flags=("noatime",)),),
    parameters={"pool": "fast"},
    requisite=(Segment.of({"a": "b"}),),
    preferred=(Segment.of({"a": "b"}),),
    mutable_parameters={"iops": "5"},
    source_snapshot="snap",
)
FIRST = Begun("uid-1", "ns", "claim-1", "fast", REQUEST, secret=("ns", "creds"), denials=1)
SECOND = replace(FIRST, uid="uid-2", name="claim-2", secret=None)


def run(folder: Path, doing: Callable[[FileJournal], Awaitable[T]], *, states: list[str] | None = None) -> T:
    async def main() -> T:
        journal = FileJournal(folder, "a/driver", on_state=(states if states is not None else []).append)
        try:
            return await doing(journal)
        finally:
            if journal._file >= 0:  # as the kernel does when a process dies, without any tidying up
                os.close(journal._file)

    return asyncio.run(main())


async def begin(journal: FileJournal, *begun: Begun) -> None:
    await asyncio.gather(*(journal.begin(item) for item in begun))


def left(folder: Path) -> list[Begun]:
    return run(folder, lambda journal: journal.take_over())


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


texts = st.text(max_size=12)
mappings = st.dictionaries(texts, texts, max_size=3)
segments = st.lists(mappings.map(Segment.of), max_size=2).map(tuple)
requests = st.builds(
    CreateRequest,
    name=texts,
    required_bytes=st.integers(0, 2**63 - 1),
    capabilities=st.lists(st.builds(Capability, texts, st.booleans(), texts, st.lists(texts, max_size=2).map(tuple)), max_size=2).map(
        tuple
    ),
    parameters=mappings,
    requisite=segments,
    preferred=segments,
    mutable_parameters=mappings,
    source_snapshot=texts,
    source_volume=texts,
)
secrets = st.none() | st.tuples(texts, texts)


@given(st.builds(Begun, texts, texts, texts, texts, requests, secret=secrets, denials=st.integers(0, 9)))
def test_a_line_says_all_of_it(begun: Begun) -> None:
    line = to_line(begun)
    assert b"\n" not in line
    assert from_line(line) == begun


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)).map(
        lambda item: json.dumps(item).encode()
    )
)
def test_garbage_is_refused_in_words(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_line(line)


def test_what_was_begun_by_a_process_that_died_is_found_and_what_ended_is_not(tmp_path: Path) -> None:
    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST, SECOND)
        journal.end("uid-1")
        await begin(journal, replace(SECOND, uid="uid-3"))

    run(tmp_path, doing)
    assert {item.uid for item in left(tmp_path)} == {"uid-2", "uid-3"}


def test_it_is_on_the_disk_before_the_driver_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    really = os.fsync
    monkeypatch.setattr(journals.os, "fsync", lambda file: (synced.append(file), really(file))[1])

    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST)
        assert len(synced) == 2, "the file and its folder"
        assert b"uid-1" in (tmp_path / files(tmp_path)[0]).read_bytes()

    run(tmp_path, doing)


def test_many_creations_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[int] = []
    really = os.fdatasync
    monkeypatch.setattr(journals.os, "fdatasync", lambda file: (flushes.append(file), really(file))[1])
    run(tmp_path, lambda journal: begin(journal, *(replace(FIRST, uid=f"uid-{number}") for number in range(200))))
    assert len(flushes) <= 2
    assert len(left(tmp_path)) == 200


def test_what_is_taken_over_is_not_lost_when_that_process_dies_too(tmp_path: Path) -> None:
    run(tmp_path, lambda journal: begin(journal, FIRST))
    for _ in range(3):
        assert left(tmp_path) == [FIRST]
        assert len(files(tmp_path)) == 1


def test_what_is_taken_over_while_other_lines_wait_is_not_lost_either(tmp_path: Path) -> None:
    """Ends wait for the next begin: what is taken over goes to the disk with them, and not instead of being written."""
    older = tmp_path / ".csi-node-sidecar.a_driver.older.journal"

    async def doing(journal: FileJournal) -> None:
        await begin(journal, SECOND)
        journal.end("uid-2")
        older.write_bytes(to_line(FIRST) + b"\n")
        assert await journal.take_over() == [FIRST]
        assert not older.exists()

    run(tmp_path, doing)
    assert left(tmp_path) == [FIRST]


def test_a_process_that_still_runs_keeps_its_own_and_leaves_it_when_it_ends(tmp_path: Path) -> None:
    """A DaemonSet that surges has two on one node for a while."""

    async def doing(older: FileJournal) -> None:
        await begin(older, FIRST)
        younger = FileJournal(tmp_path, "a/driver", on_state=print)
        assert await younger.take_over() == []
        await begin(younger, SECOND)
        os.close(older._file)
        older._file = -1
        assert await younger.take_over() == [FIRST]
        await younger.close()

    run(tmp_path, doing)
    assert {item.uid for item in left(tmp_path)} == {"uid-1", "uid-2"}


def test_an_orderly_end_leaves_no_file_behind_when_there_is_nothing_to_tell(tmp_path: Path) -> None:
    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST)
        journal.end("uid-1")
        await journal.close()

    run(tmp_path, doing)
    assert files(tmp_path) == []


def test_another_drivers_files_are_left_alone(tmp_path: Path) -> None:
    run(tmp_path, lambda journal: begin(journal, FIRST))
    assert asyncio.run(FileJournal(tmp_path, "another", on_state=print).take_over()) == []
    assert left(tmp_path) == [FIRST]


def test_half_a_line_at_the_end_and_one_that_is_damaged_cost_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, lambda journal: begin(journal, FIRST, SECOND))
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"garbage\n" + path.read_bytes() + to_line(replace(FIRST, uid="uid-9"))[:40])
    assert {item.uid for item in left(tmp_path)} == {"uid-1", "uid-2"}
    assert [item.message for item in caplog.records] == ["A line of a journal cannot be read"]


def test_a_file_that_has_grown_is_written_anew_with_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_LARGE", 2000)

    async def doing(journal: FileJournal) -> None:
        await begin(journal, SECOND)
        for number in range(50):
            await begin(journal, replace(FIRST, uid=f"old-{number}"))
            journal.end(f"old-{number}")

    run(tmp_path, doing)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < 6000
    assert SECOND in left(tmp_path)


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> int:
            raise OSError(28, "No space left on device")

        patch.setattr(journals.os, "write", refuse)
        yield


def test_a_full_disk_holds_nothing_up_is_told_once_and_is_caught_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST)
        with full_disk(monkeypatch):
            await begin(journal, SECOND)
            await begin(journal, replace(SECOND, uid="uid-3"))
        assert len(states) == 1 and "No space left" in states[0]
        await begin(journal, replace(SECOND, uid="uid-4"))

    run(tmp_path, doing, states=states)
    assert states[1:] == [""]
    assert sum(item.levelname == "ERROR" for item in caplog.records) == 1
    assert {item.uid for item in left(tmp_path)} == {"uid-1", "uid-2", "uid-3", "uid-4"}


@pytest.mark.parametrize("folder", ["missing", "a-file"])
def test_a_folder_that_cannot_be_written_is_told_and_creations_go_on(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a-file").touch()
    states: list[str] = []

    async def doing(journal: FileJournal) -> list[Begun]:
        await begin(journal, FIRST)
        return await journal.take_over()

    assert run(tmp_path / folder, doing, states=states) == []
    assert len(states) == 1 and "cannot be written" in states[0]


def test_files_that_cannot_be_taken_over_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, lambda journal: begin(journal, FIRST))

    async def doing(journal: FileJournal) -> list[Begun]:
        with full_disk(monkeypatch):
            return await journal.take_over()

    assert run(tmp_path, doing) == [FIRST], "it is known all the same"
    assert left(tmp_path) == [FIRST]
