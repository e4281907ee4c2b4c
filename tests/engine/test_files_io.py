"""What is written is a new file of this process alone, whatever lies there; and nothing but a file is read."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.engine import files_io
from tests.harness import planted


def replace(folder: Path, content: bytes, *, fresh: str = "fresh", before: Callable[[int], None] = lambda handle: None) -> None:
    with files_io.opened(folder) as handle:
        os.close(files_io.replace("name", content, fresh=fresh, folder=handle, before=before))


def read(folder: Path) -> bytes:
    with files_io.opened(folder) as handle, os.fdopen(files_io.open_regular("name", folder=handle), "rb") as file:
        return file.read()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_was_written_last_is_read_and_is_for_this_process_alone(tmp_path: Path) -> None:
    for content in (b"first", b"second", b""):
        replace(tmp_path, content)
        assert read(tmp_path) == content
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", planted.KINDS)
def test_what_lies_under_the_fresh_name_is_not_written_through(tmp_path: Path, kind: str) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    planted.plant(kind, folder / "fresh", victim=victim)
    before = open_files()
    with pytest.raises(FileExistsError):
        replace(folder, b"content")
    assert planted.unharmed(kind, victim)
    assert [path.name for path in folder.iterdir()] == ["fresh"]
    assert open_files() == before


@pytest.mark.parametrize("kind", ["file of somebody else", "link", "dangling link", "FIFO"])
def test_what_lies_under_the_name_gives_way_and_is_not_written_through(tmp_path: Path, kind: str) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    planted.plant(kind, folder / "name", victim=victim)
    replace(folder, b"content")
    assert planted.unharmed(kind, victim)
    assert read(folder) == b"content"
    found = (folder / "name").lstat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o600)


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "FIFO"])
def test_nothing_but_a_file_is_read_and_nobody_is_waited_for(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    planted.plant(kind, folder / "name", victim=tmp_path / "victim")
    before = open_files()
    with pytest.raises(OSError, match=r"."):
        read(folder)
    assert open_files() == before


def test_names_are_looked_up_in_the_folder_that_was_opened(tmp_path: Path) -> None:
    """Though another one has its name by now."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()

    def swapped(handle: int) -> None:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(other)

    replace(folder, b"content", before=swapped)
    assert list(other.iterdir()) == []
    assert read(tmp_path / "moved") == b"content"


def test_after_an_error_the_former_file_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(tmp_path, b"former")
    before = open_files()

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match="No space"):
            replace(tmp_path, b"content")
    assert read(tmp_path) == b"former"
    assert [path.name for path in tmp_path.iterdir()] == ["name"]
    assert open_files() == before
