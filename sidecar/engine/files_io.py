"""Reads and writes files in a folder in which others may write too, such as the one of a driver's socket.

What lies there under the name of a file of ours may be anything: a link to a file elsewhere, a FIFO that never answers, somebody else's
file that others may read. So nothing is opened through a link, nothing but a regular file is read, and what is written is always a new
file of this process alone, which then takes the name. All names are looked up in one open folder, so that they cannot be led elsewhere
between two steps of one change.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """The open folder, for `dir_fd`."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def open_regular(name: str, *, folder: int) -> int:
    """Opens a file to read it, without waiting. Raises OSError for what is not there and for what is no regular file."""
    handle = os.open(name, _READ, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
    except OSError:
        os.close(handle)
        raise
    return handle


def replace(name: str, content: bytes, *, fresh: str, folder: int, before: Callable[[int], None] = lambda handle: None) -> int:
    """Writes a new file under the name `fresh`, which must not be taken, and then gives it its name in place of whatever has it.

    Both are on the disk when it returns the open file. `before` is called with it while nobody can know its name yet. After an error the
    former file is as it was.
    """
    handle = os.open(fresh, _WRITE, 0o600, dir_fd=folder)
    try:
        before(handle)
        write_all(handle, content)
        os.fsync(handle)
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)  # a rename survives a power failure only when the folder is on the disk too
    except OSError:
        os.close(handle)
        with suppress(OSError):
            os.unlink(fresh, dir_fd=folder)
        raise
    return handle


def write_all(handle: int, data: bytes) -> None:
    """`os.write` may write only a part of the data."""
    while data:
        data = data[os.write(handle, data) :]
