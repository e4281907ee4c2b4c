"""What was begun is found by who comes next, whatever has become of who began it."""

import asyncio
import json
import os
import resource
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.csi.api import Capability, CreateRequest
from sidecar.model.topology import Segment
from sidecar.provisioning.creations import journal as journals
from sidecar.provisioning.creations import leftovers_io
from sidecar.provisioning.creations.creation_record import CreationRecord, from_line, to_line
from sidecar.provisioning.creations.journal import FileJournal
from sidecar.provisioning.creations.journal_lines import begin_line
from tests.harness import planted
from tests.harness.provisioning.journal import becomes, run, written

DAMAGED = journals._DAMAGED
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
FIRST = CreationRecord("uid-1", "ns", "claim-1", "fast", REQUEST, secret=("ns", "creds"), denials=1)
SECOND = replace(FIRST, uid="uid-2", name="claim-2", secret=None)


async def begin(journal: FileJournal, *begun: CreationRecord) -> None:
    await asyncio.gather(*(journal.begin(item) for item in begun))


def left(folder: Path) -> list[CreationRecord]:
    return run(folder, lambda journal: journal.take_over())


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leftover(folder: Path, suffix: str = ".journal") -> Path:
    return folder / f".csi-node-sidecar.a_driver.0123456789abcdef{suffix}"


def only(folder: Path) -> Path:
    (name,) = files(folder)
    return folder / name


def open_files() -> int:
    return len(files(Path("/proc/self/fd")))


def delete_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


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


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_ENDS_WAIT", 0.05)
    monkeypatch.setattr(journals, "_RETRY", 0.05)


@pytest.mark.usefixtures("hurried")
def test_ends_go_to_the_disk_though_no_creation_follows_and_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the last creation of a quiet node would seem open for as long as it likes."""
    flushes: list[int] = []
    really = os.fdatasync

    async def doing(journal: FileJournal) -> None:
        await begin(journal, SECOND, *(replace(FIRST, uid=f"uid-{number}") for number in range(10, 60)))
        monkeypatch.setattr(journals.os, "fdatasync", lambda file: (flushes.append(file), really(file))[1])
        for number in range(10, 60):
            journal.end(f"uid-{number}")
        assert not flushes and journal._flushing and journal._flushing.done(), "nobody waits for it"
        await written(journal)

    run(tmp_path, doing)
    assert len(flushes) == 1
    assert left(tmp_path) == [SECOND]


def test_what_is_taken_over_while_other_lines_wait_is_not_lost_either(tmp_path: Path) -> None:
    """Ends wait for the next begin: what is taken over goes to the disk with them, and not instead of being written."""
    older = leftover(tmp_path)

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


def test_an_orderly_end_strikes_out_what_ended_and_leaves_what_is_open(tmp_path: Path) -> None:
    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST, SECOND)
        journal.end("uid-1")
        await journal.close()
        assert journal._due is None
        journal.end("uid-2")
        assert journal._due is None, "nobody would write it"

    states: list[str] = []
    run(tmp_path, doing, states=states)
    assert states == []
    assert left(tmp_path) == [SECOND]


def test_another_drivers_files_are_left_alone(tmp_path: Path) -> None:
    run(tmp_path, lambda journal: begin(journal, FIRST))
    assert asyncio.run(FileJournal(tmp_path, "another", on_state=print).take_over()) == []
    assert left(tmp_path) == [FIRST]


def test_a_file_that_somebody_has_put_aside_is_left_alone(tmp_path: Path) -> None:
    for suffix in [".bak", ".journal.bak", ".new.bak"]:
        delete_files(tmp_path)
        leftover(tmp_path, suffix).write_bytes(to_line(FIRST) + b"\n")
        assert left(tmp_path) == []
        assert leftover(tmp_path, suffix).exists()


@pytest.mark.parametrize("kind", planted.KINDS)
def test_nothing_that_lies_beside_it_is_written_through(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        planted.plant(kind, journal._path.with_suffix(".new"), victim=tmp_path / "victim")
        await begin(journal, FIRST)
        found = journal._path.lstat()
        assert stat.S_ISREG(found.st_mode)
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o600)

    run(folder, doing, states=states)
    assert planted.unharmed(kind, tmp_path / "victim")
    assert states == []


def spoiled(**other: object) -> bytes:
    """A line with another denials, or other things in its request."""
    about = json.loads(to_line(FIRST)) | {"uid": "uid-9"}
    about |= {key: value for key, value in other.items() if key in about}
    about["request"] |= {key: value for key, value in other.items() if key not in about}
    return json.dumps(about).encode()


def test_a_line_that_cannot_be_read_is_told_and_costs_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for line in [
        b"[" * 100_000,
        b'{"end":' * 100_000,
        b"\0" * 4096,
        b"\xff\xfe",
        b'{"end":' + b"1" * 10_000 + b"}",
        b"[]",
        spoiled(denials=float("inf")),
        spoiled(bytes=float("inf")),
        spoiled(bytes=float("nan")),
        spoiled(parameters=[[1, 2]]),
        spoiled(mutable=7),
        spoiled(capabilities=[[1, 2]]),
        spoiled(requisite=[[1]]),
    ]:
        caplog.clear()
        delete_files(tmp_path)
        leftover(tmp_path).write_bytes(b"\n".join([to_line(FIRST), line, to_line(SECOND), b""]))
        assert left(tmp_path) == [FIRST, SECOND]
        assert [item.message for item in caplog.records] == [DAMAGED]
        assert left(tmp_path) == [FIRST, SECOND]


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.parent / "elsewhere")], ids=["folder", "FIFO", "link"]
)
def test_what_only_has_the_name_of_a_journal_is_told_once_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    run(tmp_path, lambda journal: begin(journal, FIRST))
    (tmp_path / "elsewhere").write_bytes(to_line(SECOND) + b"\n")
    make(leftover(tmp_path))

    async def doing(journal: FileJournal) -> list[CreationRecord]:
        before = open_files()
        found = await asyncio.wait_for(journal.take_over(), 60)
        assert await journal.take_over() == []
        assert open_files() <= before + 1, "its own"
        return found

    assert run(tmp_path, doing) == [FIRST]
    assert [item.message for item in caplog.records] == [DAMAGED]
    assert os.path.lexists(leftover(tmp_path))


# --- damage ---


def aside(folder: Path) -> dict[str, bytes]:
    return {path.name.removeprefix(".csi-node-sidecar.a_driver."): path.read_bytes() for path in folder.glob("*set-aside*")}


def test_a_file_that_nobody_could_read_into_memory_is_set_aside_and_work_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line of three gigabytes, as a sparse file has it: reading that took the whole node's memory."""
    with leftover(tmp_path).open("wb") as file:
        file.truncate(3 * 2**30)
    damage: Counter[str] = Counter()

    async def doing(journal: FileJournal) -> list[CreationRecord]:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = await journal.take_over()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024, "KiB"
        await begin(journal, FIRST)
        assert await journal.take_over() == []
        return found

    assert run(tmp_path, doing, damage=damage) == []
    assert damage == {"too-large": 1}
    (told,) = caplog.records
    assert (told.levelname, told.message) == ("ERROR", DAMAGED)
    assert told.__dict__["fields"]["kept"].endswith("set-aside-1")
    assert [path.stat().st_size for path in tmp_path.glob("*.set-aside-1")] == [3 * 2**30]
    assert left(tmp_path) == [FIRST]


def test_lines_that_are_sound_are_kept_and_the_file_of_the_others_is_set_aside(tmp_path: Path) -> None:
    sound, flipped = begin_line(FIRST), begin_line(SECOND).replace(b"claim-2", b"claim-3")
    content = b"\n".join([sound, b"garbage", flipped, to_line(replace(FIRST, uid="uid-old")), sound[:40]])
    leftover(tmp_path).write_bytes(content)
    damage: Counter[str] = Counter()
    found = run(tmp_path, lambda journal: journal.take_over(), damage=damage)
    assert [item.uid for item in found] == ["uid-1", "uid-old"]
    assert damage == {"garbled": 1, "altered": 1, "unsigned": 1}
    assert aside(tmp_path) == {"set-aside-1": content}
    assert left(tmp_path) == found


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


@pytest.mark.parametrize("worked", [True, False], ids=["it has worked", "it has not worked yet"])
def test_on_a_full_disk_nothing_may_be_begun_and_there_may_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, worked: bool
) -> None:
    async def doing(journal: FileJournal) -> None:
        if worked:
            assert await journal.begin(FIRST) == ""
        with full_disk(monkeypatch):
            for _ in range(3):
                assert await journal.begin(SECOND) == f"{tmp_path} cannot be written: No space left on device"
                journal.end(SECOND.uid)
        assert await journal.begin(replace(SECOND, uid="uid-3")) == ""

    run(tmp_path, doing)
    assert {item.uid for item in left(tmp_path)} == {"uid-3", *(["uid-1"] if worked else [])}
    assert [item.message for item in caplog.records if item.levelname == "ERROR"] == [journals._WAITS]


def test_a_disk_that_has_become_read_only_is_waited_for_and_a_folder_that_always_was_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one is a fault of the disk. The other is how a node is set up: to wait for it would mean to wait for ever."""

    async def doing(journal: FileJournal) -> None:
        with read_only(monkeypatch):
            assert await journal.begin(FIRST) == ""
        assert await journal.begin(SECOND) == ""
        delete_files(tmp_path)
        with read_only(monkeypatch):
            assert await journal.begin(replace(SECOND, uid="uid-3")) == f"{tmp_path} cannot be written: Read-only file system"

    run(tmp_path, doing)
    assert [item.message for item in caplog.records if item.levelname == "ERROR"] == [journals._GOES_ON, journals._WAITS]


def test_while_the_disk_is_full_nobody_takes_over_what_this_process_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives: a process that took its creations for those of a dead one would delete volumes that it is about to store."""

    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST)
        with full_disk(monkeypatch):
            await begin(journal, SECOND)
        other = FileJournal(tmp_path, "a/driver", on_state=print)
        assert await other.take_over() == []
        before = open_files()
        await begin(journal, SECOND)
        assert open_files() == before, "the former file is closed"

    run(tmp_path, doing)
    assert {item.uid for item in left(tmp_path)} == {"uid-1", "uid-2"}


def test_no_more_is_begun_than_the_next_process_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = len(begin_line(SECOND))

    async def doing(journal: FileJournal) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(journals, "MOST_OPEN", 2 * line)
            assert [await journal.begin(replace(SECOND, uid=f"uid-{number}")) != "" for number in range(3)] == [False, False, True]
            journal.end("uid-0")
            assert await journal.begin(SECOND) == ""
        monkeypatch.setattr(journals, "LONGEST_LINE", line - 1)
        assert await journal.begin(replace(SECOND, uid="uid-4")) != ""
        assert await journal.begin(SECOND) == "", "it is under way"

    run(tmp_path, doing)
    assert {item.uid for item in left(tmp_path)} == {"uid-1", "uid-2"}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("still_open", [True, False])
def test_an_end_for_which_there_was_no_room_is_written_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still_open: bool
) -> None:
    """Whether or not another creation comes. To say that nothing is open takes no room; whether there is any is not known then."""
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST, *([SECOND] if still_open else []))
        with full_disk(monkeypatch):
            journal.end("uid-1")
            await becomes(lambda: bool(states))
            assert len(states) == 1 and "No space left" in states[0]
        await written(journal)
        assert states[1:] == ([""] if still_open else [])

    run(tmp_path, doing, states=states)
    assert left(tmp_path) == ([SECOND] if still_open else [])


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.usefixtures("hurried")
def test_a_thread_that_is_not_to_be_had_costs_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST)
        with monkeypatch.context() as patch:
            patch.setattr(journal._thread, "submit", no_thread)
            await begin(journal, SECOND)
        await written(journal)

    run(tmp_path, doing, states=states)
    assert len(states) == 2 and not states[1]
    assert left(tmp_path) == [FIRST, SECOND]


def test_without_a_thread_journals_are_taken_over_by_a_later_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, lambda journal: begin(journal, FIRST))

    async def doing(journal: FileJournal) -> tuple[list[CreationRecord], list[CreationRecord]]:
        with monkeypatch.context() as patch:
            patch.setattr(journal._thread, "submit", no_thread)
            before = await journal.take_over()
        return before, await journal.take_over()

    assert run(tmp_path, doing) == ([], [FIRST])


def test_a_folder_that_cannot_be_written_is_told_and_creations_go_on(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()

    async def doing(journal: FileJournal) -> list[CreationRecord]:
        await begin(journal, FIRST)
        return await journal.take_over()

    for folder in ("missing", "a-file"):
        states: list[str] = []
        assert run(tmp_path / folder, doing, states=states) == []
        assert len(states) == 1 and "cannot be written" in states[0]


@contextmanager
def read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever runs the tests may be root, whom no mode of a folder holds back."""
    really = os.open

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    def reads(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        return refuse() or -1 if flags & os.O_CREAT else really(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "open", reads)
        for name in ("unlink", "rename"):
            patch.setattr(Path, name, refuse)
            patch.setattr(os, name, refuse)
        yield


@pytest.mark.parametrize("content", [b'{"end":"uid-1"}\n', to_line(FIRST) + b"\n"], ids=["ended", "open"])
def test_files_that_cannot_be_removed_are_told_once_and_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    leftover(tmp_path).write_bytes(content)
    states: list[str] = []
    expected = [FIRST] if b"request" in content else []

    async def doing(journal: FileJournal) -> None:
        with read_only(monkeypatch):
            before = open_files()
            assert [await journal.take_over() for _ in range(3)] == [expected, [], []]
            await begin(journal, SECOND)
            assert open_files() == before
        assert states == [f"{tmp_path} cannot be written: Read-only file system"]
        assert await journal.take_over() == []
        assert not leftover(tmp_path).exists()

    run(tmp_path, doing, states=states)


def test_a_file_that_is_deleted_meanwhile_is_written_anew_before_the_driver_is_called(tmp_path: Path) -> None:
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        await begin(journal, FIRST)
        delete_files(tmp_path)
        await begin(journal, SECOND)
        (name,) = files(tmp_path)
        assert [from_line(line) for line in (tmp_path / name).read_bytes().splitlines()[1:]] == [FIRST, SECOND]
        assert await FileJournal(tmp_path, "a/driver", on_state=print).take_over() == [], "it is locked"

    run(tmp_path, doing, states=states)
    assert states == []
    assert left(tmp_path) == [FIRST, SECOND]


def test_what_was_left_long_ago_or_in_a_time_to_come_proves_nothing(tmp_path: Path) -> None:
    """By the time of the file's last change, which its process renews as long as it lives."""
    for seconds, unproven in [(10.0, False), (250.0, False), (400.0, True), (9e6, True), (-30.0, False), (-1000.0, True)]:
        delete_files(tmp_path)
        run(tmp_path, lambda journal: begin(journal, FIRST))
        at = time.time() - seconds
        os.utime(only(tmp_path), (at, at))
        assert left(tmp_path) == [replace(FIRST, unproven=unproven)]
        assert [item.unproven for item in left(tmp_path)] == [unproven], "also for the process after the next"


def test_a_suspect_stays_one_over_restarts(tmp_path: Path) -> None:
    suspect = replace(FIRST, suspect="somebody may want it", losses=3)
    run(tmp_path, lambda journal: begin(journal, suspect))
    assert left(tmp_path) == left(tmp_path) == [suspect]


def test_a_journal_that_was_copied_back_from_a_backup_is_as_old_as_what_it_says(tmp_path: Path) -> None:
    """A copy has a new time of change. What it tells of was stored long ago, and people may have kept it since."""
    yesterday = time.time() - 86_400.0

    async def a_life(journal: FileJournal) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: yesterday)
            await journal.take_over()
            await begin(journal, FIRST)

    run(tmp_path, a_life)
    backup = only(tmp_path).read_bytes()
    only(tmp_path).write_bytes(backup)
    assert time.time() - only(tmp_path).stat().st_mtime < 60.0
    assert [record.unproven for record in left(tmp_path)] == [True]


@pytest.mark.parametrize("writable", [True, False])
def test_what_lies_where_a_process_with_other_flags_has_left_it_is_taken_over(tmp_path: Path, writable: bool) -> None:
    """Somebody has set --journal-dir."""
    former, folder = tmp_path / "former", tmp_path / "folder"
    former.mkdir()
    folder.mkdir()
    suspect = replace(SECOND, suspect="somebody may want it")
    run(former, lambda journal: begin(journal, FIRST, suspect))
    states: list[str] = []

    async def life() -> list[CreationRecord]:
        journal = FileJournal(folder, "a/driver", former=former, on_state=states.append)
        found = await journal.take_over()
        assert await journal.take_over() == []
        await journal.close()
        return found

    with pytest.MonkeyPatch.context() as patch:
        if not writable:
            patch.setattr(leftovers_io.Leftovers, "clear", refuse_to_write)
        assert asyncio.run(life()) == [FIRST, suspect]
    assert states == [] and bool(files(former)) == (not writable)
    assert leftovers_io.read_all(folder, "a/driver", former=former) == {FIRST.key: FIRST, suspect.key: suspect}
    assert leftovers_io.read_all(folder, "a/driver", former=tmp_path / "nowhere")


def refuse_to_write(*_: object) -> str:
    raise PermissionError("read-only")


def test_an_orderly_end_in_a_folder_that_has_become_read_only_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[str] = []

    async def doing(journal: FileJournal) -> None:
        before = open_files()
        await begin(journal, FIRST)
        journal.end("uid-1")
        with read_only(monkeypatch):
            await journal.close()
        assert open_files() == before

    run(tmp_path, doing, states=states)
    assert len(states) == 1 and "Read-only" in states[0]
    assert left(tmp_path) == [], "there is a file, and it tells of nothing"


def test_what_is_open_at_once_is_bounded_and_the_rest_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = begin_line(SECOND) + b"\n"
    monkeypatch.setattr(journals, "MOST_OPEN", 2 * len(line) + 10)
    leftover(tmp_path).write_bytes(line)

    async def doing(journal: FileJournal) -> None:
        await begin(journal, replace(SECOND, uid="uid-7"), replace(SECOND, uid="uid-8"))
        assert await journal.take_over() == [], "there is no room for it"
        journal.end("uid-7")
        assert await journal.take_over() == [SECOND]

    run(tmp_path, doing)
    assert {item.uid for item in left(tmp_path)} == {"uid-2", "uid-8"}


def test_many_files_are_taken_over_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is open until it is taken over, and a process has so many files."""
    monkeypatch.setattr(leftovers_io, "_MOST_FILES", 3)
    for number in range(7):
        path = leftover(tmp_path)
        path.with_name(path.name.replace("0123456789", f"{number:010d}")).write_bytes(
            begin_line(replace(FIRST, uid=f"uid-{number}")) + b"\n"
        )

    async def doing(journal: FileJournal) -> list[int]:
        return [len(await journal.take_over()) for _ in range(4)]

    assert run(tmp_path, doing) == [3, 3, 1, 0]
    assert len(left(tmp_path)) == 7
