"""The name beside the socket, as one process writes it and the next one reads it."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from sidecar.drain.publish.last_served_io import FileLastServed
from tests.harness import planted


def read(socket: Path) -> str:
    return asyncio.run(FileLastServed(socket).read())


def write(socket: Path, driver: str) -> None:
    asyncio.run(FileLastServed(socket).write(driver))


def test_the_next_process_reads_what_was_written_last(tmp_path: Path) -> None:
    socket = tmp_path / "csi.sock"
    assert read(socket) == ""
    for driver in ("zfs.example.com", "zfs.example.com", "lvm.example.com"):
        write(socket, driver)
        assert read(socket) == driver
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_no_name_counts_as_not_there(tmp_path: Path) -> None:
    for content in [
        b"",  # empty
        b"\n",  # a line without a name
        b"../../etc",  # a path
        b"a/b",  # a slash
        b"\xff\xfe",  # bytes
        b"x" * 64,  # too long
        b"a.example.com\nb.example.com",  # two names
    ]:
        socket = tmp_path / "csi.sock"
        write(socket, "zfs.example.com")
        (file,) = tmp_path.iterdir()
        file.write_bytes(content)
        assert read(socket) == ""
        write(socket, "zfs.example.com")
        assert read(socket) == "zfs.example.com"


@pytest.mark.parametrize("kind", planted.KINDS)
def test_nothing_that_lies_beside_it_is_written_through(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    name = folder / ".csi-node-sidecar.csi.sock.driver"
    planted.plant(kind, name.with_name(f"{name.name}.new"), victim=tmp_path / "victim")
    write(folder / "csi.sock", "zfs.example.com")
    assert planted.unharmed(kind, tmp_path / "victim")
    assert read(folder / "csi.sock") == "zfs.example.com"
    found = name.lstat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o600)


def test_a_folder_that_cannot_be_written_is_told_and_keeps_nobody_waiting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    socket = tmp_path / "nowhere" / "csi.sock"
    write(socket, "zfs.example.com")
    assert read(socket) == ""
    assert [record.levelname for record in caplog.records] == ["WARNING"]
