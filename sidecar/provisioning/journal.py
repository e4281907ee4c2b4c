"""Creations that were begun and whose end is not known, kept where a process that dies leaves them behind: a file beside the socket.

Why a file. Nothing else survives everything at no cost to the API server: a mark on the claim would be one more write for each
volume, and goes with the claim; ListVolumes is not offered by all drivers and does not tell for whom a volume was made. The
socket's folder is a hostPath that every sidecar mounts, so a swapped image finds it; it is on the node, like the volumes.

How. One file for each process, of lines that say begin or end, locked for as long as the process lives. A line is on the disk
before the driver is called, many creations with one flush. Ends are not waited for and go with the next begin, but wait no longer
than a second: a creation that seems open when its object has come and gone makes the next process delete what somebody kept. The next
process takes over the files whose lock is free. A process that still runs (a DaemonSet that surges has two for a while) keeps its
own. Where the folder cannot be written, creations go on without: then what dies with the process between its call and its
PersistentVolume, while the claim is deleted, is a volume that nobody knows of; this is said once, in log and health.
"""

import asyncio
import errno
import fcntl
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from sidecar.provisioning.begun import Begun, from_line, to_line

log = logging.getLogger(__name__)

_SUFFIX: Final = ".journal"
_NEW: Final = ".new"
# A file is written anew when this much of it may be about the past.
_LARGE: Final = 2**20
# Seconds until an end goes to the disk without a begin, and until what could not be written is tried again.
_ENDS_WAIT: Final = 1.0
_RETRY: Final = 10.0


class Journal(Protocol):
    """What the room holds."""

    async def begin(self, begun: Begun) -> None:
        """Returns when it is safe, or when it is known that it cannot be made so. Never raises."""
        ...

    def end(self, uid: str) -> None:
        """Nothing is left of that creation, or its PersistentVolume is stored."""
        ...

    async def take_over(self) -> list[Begun]:
        """What processes have left behind that are gone. May be asked again: one that ran on may have ended."""
        ...

    async def close(self) -> None: ...


class NoJournal:
    """Remembers nothing. For those who have nothing to lose."""

    async def begin(self, begun: Begun) -> None:
        pass

    def end(self, uid: str) -> None:
        pass

    async def take_over(self) -> list[Begun]:
        return []

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class _Batch:
    """Lines that wait for one flush, and who waits for them."""

    lines: list[bytes] = field(default_factory=list)
    done: "asyncio.Future[None] | None" = None


class FileJournal:
    """`on_state` hears why it does not work, and nothing once it does again."""

    def __init__(self, folder: Path, driver: str, *, on_state: Callable[[str], None]) -> None:
        self._folder = folder
        prefix = f".csi-node-sidecar.{driver.replace('/', '_')}."
        # To the end: another driver's name may begin with this one's.
        self._name = re.compile(re.escape(prefix) + r"[0-9a-f]{16}\.(journal|new)")
        self._path = folder / f"{prefix}{os.urandom(8).hex()}{_SUFFIX}"
        self._on_state = on_state
        self._file = -1
        self._open: dict[str, bytes] = {}
        """By claim: the line that said begin."""
        self._size = 0
        self._batch = _Batch()
        self._flushing: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        """The flush that comes if no begin does."""
        self._closed = False
        self._broken = ""
        self._handed: set[tuple[Path, str]] = set()
        """Taken over already, from files that cannot be removed."""
        self._full = False
        self._unreadable: set[Path] = set()
        """Told of already."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    async def begin(self, begun: Begun) -> None:
        line = to_line(begun)
        self._open[begun.uid] = line
        await self._write(line)

    def end(self, uid: str) -> None:
        if self._open.pop(uid, None) is not None:
            self._batch.lines.append(json.dumps({"end": uid}).encode())
            self._flush_within(_ENDS_WAIT)

    async def take_over(self) -> list[Begun]:
        """Their files go when all that they tell stands in ours."""
        left = await asyncio.get_running_loop().run_in_executor(self._thread, self._find)
        with ExitStack() as locks:
            found: dict[str, Begun] = {}
            for item in left:
                locks.enter_context(item.file)
                found |= {uid: begun for uid, begun in item.begun.items() if (item.path, uid) not in self._handed}
            self._handed = {(item.path, uid) for item in left for uid in item.begun}
            lines = [self._open.setdefault(uid, to_line(begun)) for uid, begun in found.items()]
            if lines or (left and self._broken):
                await self._write(*lines)
            recorded = not self._broken
            for item in left:
                if recorded or not item.begun:
                    self._remove(item.path)
        return list(found.values())

    async def close(self) -> None:
        """Leaves no file behind when there is nothing to tell. Never raises."""
        self._closed = True
        if self._batch.lines or self._broken:
            self._flush_now()
        self._not_due()
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        self._thread.shutdown()
        if not self._open:
            self._remove(self._path)
        self._let_go()  # and with it of the lock: whoever comes next may have what is left

    # --- the file of this process -------------------------------------------------------------------------------------

    async def _write(self, *lines: bytes) -> None:
        self._batch.lines += lines
        await asyncio.shield(self._flush_now())

    def _flush_within(self, seconds: float) -> None:
        if self._due is None and not self._closed:
            self._due = asyncio.get_running_loop().call_later(seconds, self._flush_now)

    def _not_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _flush_now(self) -> "asyncio.Future[None]":
        """Done when what waits is on the disk, or when it is known that it cannot get there."""
        loop = asyncio.get_running_loop()
        if self._batch.done is None:
            self._batch.done = loop.create_future()
        done = self._batch.done
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush(), name="journal")
        return done

    async def _flush(self) -> None:
        """A begin that came while the last flush was under way goes with the next one, and whatever else waits."""
        while self._batch.done is not None:
            batch, self._batch = self._batch, _Batch()
            self._not_due()
            data = b"".join(line + b"\n" for line in batch.lines)
            loop = asyncio.get_running_loop()
            try:
                anew = self._broken or self._file < 0 or self._size > _LARGE
                if anew or not await loop.run_in_executor(self._thread, self._append, data):
                    data = b"\n".join([*self._open.values(), b""])
                    await loop.run_in_executor(self._thread, self._replace, data)
                if data or not self._full:  # else it is not known whether there is room for any
                    self._tell("")
            except (OSError, RuntimeError) as error:  # the latter when there is no thread to be had, or no longer
                self._tell_unwritable(error)
                self._flush_within(_RETRY)
            finally:
                if batch.done is not None and not batch.done.done():
                    batch.done.set_result(None)

    def _append(self, data: bytes) -> bool:
        """In a thread. False when the file was deleted meanwhile: then nobody would find what it tells."""
        try:
            _write_all(self._file, data)
            os.fdatasync(self._file)
            self._size += len(data)
            return os.fstat(self._file).st_nlink > 0
        except OSError:
            self._let_go()  # half a line may be in it: the next one is written to a new file
            raise

    def _replace(self, content: bytes) -> None:
        """In a thread. The new file holds what is open only; the old one stays until the new one is on the disk."""
        fresh = self._path.with_suffix(_NEW)
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_all(file, content)
            os.fsync(file)
            fresh.rename(self._path)
            _sync_folder(self._folder)
        except OSError:
            os.close(file)
            fresh.unlink(missing_ok=True)
            raise
        self._let_go()
        self._file, self._size = file, 0

    def _let_go(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):
                os.close(file)

    def _remove(self, path: Path) -> None:
        try:
            if os.path.lexists(path):  # a folder that cannot be written says so of what is not there too
                path.unlink(missing_ok=True)
        except OSError as error:
            self._tell_unwritable(error)

    def _tell_unwritable(self, error: OSError | RuntimeError) -> None:
        why = error.strerror if isinstance(error, OSError) else ""
        self._full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._tell(f"{self._folder} cannot be written: {why or error}")

    def _tell(self, why: str) -> None:
        if why and why != self._broken:
            log.error(
                "Creations are not recorded: one that is under way when this process ends, and whose claim is deleted, may leak its volume",
                extra={"fields": {"err": why}},
            )
        elif self._broken and not why:
            log.info("Creations are recorded again", extra={"fields": {"journal": str(self._path)}})
        if why != self._broken:
            self._broken = why
            self._on_state(why)

    # --- the files of others ------------------------------------------------------------------------------------------

    def _find(self) -> list["_Left"]:
        """In a thread. The files of dead processes, locked, so that of two that look for them one finds them."""
        found = []
        try:
            paths = sorted(path for path in self._folder.iterdir() if self._name.fullmatch(path.name) and path.stem != self._path.stem)
        except OSError:
            return []  # the first begin will tell
        for path in paths:
            try:
                found.append(_left(path))
            except (BlockingIOError, FileNotFoundError):
                pass  # its process runs, or another one has just taken it over
            except OSError as error:
                if path not in self._unreadable:
                    self._unreadable.add(path)
                    fields = {"file": str(path), "err": str(error)}
                    log.error("A journal cannot be read; what it tells of may leak", extra={"fields": fields})
        return found


@dataclass(frozen=True, slots=True)
class _Left:
    path: Path
    file: BinaryIO
    """Locked while it is open."""
    begun: dict[str, Begun]


def _left(path: Path) -> _Left:
    """Raises OSError where it is not to be had."""
    with ExitStack() as stack:
        file = stack.enter_context(open(path, "rb", opener=_without_waiting))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()  # raises when another one has just taken it over
        # Somebody died while writing a new one; what it tells still stands in the file it was to replace.
        begun = {} if path.suffix == _NEW else _read(file, str(path))
        stack.pop_all()
        return _Left(path, file, begun)


def _without_waiting(path: str, flags: int) -> int:
    """For a FIFO, where to open waits for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read(lines: Iterable[bytes], where: str) -> dict[str, Begun]:
    """What was begun and not ended. The last line may be half; another one that cannot be read is told of and skipped."""
    found: dict[str, Begun] = {}
    for number, line in enumerate(lines, start=1):
        try:
            ended = json.loads(line).get("end")
            if ended is not None:
                found.pop(str(ended), None)
                continue
            begun = from_line(line)
            found[begun.uid] = begun
        except (ValueError, AttributeError, RecursionError) as error:
            if line.endswith(b"\n"):
                log.error("A line of a journal cannot be read", extra={"fields": {"file": where, "line": number, "err": str(error)}})
    return found


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
