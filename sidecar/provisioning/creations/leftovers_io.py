"""Finds the journals of dead processes, reads them within bounds, and takes them out of the way: away with what is read to its end, aside
with what is damaged, so that somebody can look at it.
"""

import fcntl
import os
import re
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from sidecar.engine import files_io
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal_lines import Content, alive_line, read_lines, settled_line, too_large

SUFFIX: Final = ".journal"
NEW: Final = ".new"
# Bytes of lines that are open. Each becomes about ten times as much in memory, and a sidecar has 128 MiB. A line has 800 bytes or so, which
# makes five thousand creations under way on one node.
MOST_OPEN: Final = 4 * 2**20
# Bytes. What a process writes is never larger than what may be open and what is appended before it is written anew, 5 MiB.
LARGEST_FILE: Final = 2 * MOST_OPEN
# Seconds. A pod that is replaced, or a node that reboots, is back sooner. In a longer time another provisioner may have run here, or people
# may have kept a volume and deleted its objects.
_SILENCE: Final = 300.0
# Seconds by which clocks are set back without anything being wrong.
_CLOCK_SLACK: Final = 60.0
# Each holds a file open until it is taken over; what is more waits for the next time.
_MOST_FILES: Final = 32
# The first ones and the latest are kept.
_MOST_ASIDE: Final = 5


@dataclass(frozen=True, slots=True)
class Leftover:
    """The file of a dead process."""

    path: Path
    file: BinaryIO
    """Closing the file releases its lock."""
    content: Content
    silent: bool
    """For so long nothing of its process was seen that something else may have run here meanwhile."""


@dataclass(slots=True, eq=False, repr=False)
class Found:
    leftovers: list[Leftover] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)
    """Why, by file."""
    complete: bool = True
    """No file was left to another process, or to another time for want of room. Else what a person has seen to may stand in such a file."""

    def size(self) -> int:
        """Bytes of what is open."""
        return sum(item.content.size for item in self.leftovers)

    def add(self, other: "Found") -> None:
        self.leftovers += other.leftovers
        self.unreadable |= other.unreadable
        self.complete = self.complete and other.complete


class Leftovers:
    """Everything here blocks."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        # Must match the whole file name: the name of another driver may begin with this driver's name.
        self._name = re.compile(re.escape(prefix) + r"[0-9a-f]{16}\.(journal|new)")

    def find(self, *, besides: str, room: int) -> Found:
        """The files of dead processes, locked, so that of two processes that look for them only one takes a file. `besides` is the stem of
        our own. Of what is open in them at most `room` bytes are taken; what does not fit waits for the next time."""
        found = Found()
        try:
            paths = sorted(path for path in self._folder.iterdir() if self._name.fullmatch(path.name) and path.stem != besides)
        except OSError:
            return found  # not reported here: the first begin fails in the same folder and reports it
        for path in paths:
            try:
                leftover = _open(path)
            except (BlockingIOError, FileNotFoundError):
                found.complete = False
                continue  # its process still runs, or another process has just taken the file over
            except OSError as error:
                found.unreadable[path] = str(error)
                continue
            if leftover.content.size > room:
                leftover.file.close()
                found.complete = False
                continue
            room -= leftover.content.size
            found.leftovers.append(leftover)
            if len(found.leftovers) == _MOST_FILES:
                break
        return found

    def clear(self, leftover: Leftover) -> str:
        """Removes it, or sets it aside if it is damaged. Returns the name under which it is kept. Raises OSError."""
        with files_io.opened(self._folder) as folder:
            name = leftover.path.name
            if not leftover.content.is_damaged:
                # In a folder that cannot be written, unlink fails even for a file that does not exist.
                if _is_there(name, folder):
                    os.unlink(name, dir_fd=folder)
                return ""
            places = [f"{self._prefix}set-aside-{number}" for number in range(1, _MOST_ASIDE + 1)]
            place = next((place for place in places if not _is_there(place, folder)), places[-1])
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=folder)
            return place


def prefix_of(driver: str) -> str:
    """How the names of a driver's journals begin."""
    return f".csi-node-sidecar.{driver.replace('/', '_')}."


def read_all(folder: Path, driver: str, *, former: Path | None = None) -> dict[str, CreationRecord]:
    """By key, what is open in all journals, also in those of processes that run; without locks, so it may be a moment old. Raises OSError
    if the folder cannot be read; `former` need not even be there."""
    begun, settled = dict[str, CreationRecord](), set[str]()
    contents = _contents(folder, driver)
    with suppress(OSError):
        contents += _contents(former, driver) if former else []
    for content in contents:
        begun |= content.begun
        settled |= content.settled
    return {key: record for key, record in begun.items() if not {key, record.uid} & settled and not _is_seen_to(record, begun)}


def _contents(folder: Path, driver: str) -> list[Content]:
    name, found = re.compile(re.escape(prefix_of(driver)) + r"[0-9a-f]{16}\.journal"), list[Content]()
    with files_io.opened(folder) as at:
        for path in sorted(path.name for path in folder.iterdir() if name.fullmatch(path.name)):
            with suppress(FileNotFoundError), os.fdopen(files_io.open_regular(path, folder=at), "rb") as file:
                found.append(_read(file))
    return found


def _is_seen_to(suspect: CreationRecord, begun: dict[str, CreationRecord]) -> bool:
    """By another process, which has begun the same volume anew."""
    same = begun.get(suspect.other_key) if suspect.suspect else None
    return same is not None and same.request.name == suspect.request.name


def settle(folder: Path, driver: str, key: str) -> None:
    """Writes down that a person has seen to it. Whoever has its line finds it within a minute. Raises OSError."""
    stem = f"{prefix_of(driver)}{os.urandom(8).hex()}"
    with files_io.opened(folder) as at:
        os.close(files_io.replace(f"{stem}{SUFFIX}", settled_line(key) + b"\n", fresh=f"{stem}{NEW}", folder=at))


def lock(file: int) -> None:
    """Without waiting."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open(path: Path) -> Leftover:
    """Opens, locks and reads the file of a dead process. Raises OSError when that is not possible."""
    with ExitStack() as stack:
        # Anything else with the name of a journal, such as a FIFO or a link, is not ours: it is reported and left alone.
        with files_io.opened(path.parent) as folder:
            file = stack.enter_context(os.fdopen(files_io.open_regular(path.name, folder=folder), "rb"))
            lock(file.fileno())
            os.stat(path.name, dir_fd=folder)  # raises when another process took the file over and removed it between open and lock
        # A process that died while it replaced its file left a `.new` file. The old file still holds everything, so this is not read.
        content = Content() if path.suffix == NEW else _read(file)
        stack.pop_all()
        return Leftover(path, file, content, _is_silent(os.fstat(file.fileno()).st_mtime, content.alive))


def _is_silent(changed: float, alive: int | None) -> bool:
    """The older sign of life counts: a file that was copied back from a backup has changed just now, and tells of long ago."""
    signs = (changed, changed if alive is None else alive)
    return any(not -_CLOCK_SLACK < time.time() - sign < _SILENCE for sign in signs)


def first_line() -> bytes:
    return alive_line(time.time()) + b"\n"


def alive(file: int) -> None:
    """A sign of life, to be repeated more often than `_SILENCE`: the time of the file's last change, and in the file itself."""
    os.utime(file)
    os.pwrite(file, first_line(), 0)


def _read(file: BinaryIO) -> Content:
    size = os.fstat(file.fileno()).st_size
    return too_large(f"{size} bytes") if size > LARGEST_FILE else read_lines(file, largest=LARGEST_FILE, most_open=MOST_OPEN)


def _is_there(name: str, folder: int) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
