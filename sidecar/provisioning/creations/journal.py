"""Keeps the begun creations whose end is not known in a file beside the socket, so that the next process finds them.

Why a file: nothing else outlives the process and the claim at no cost to the API server. A mark on the claim would be one more write
for each volume, and would vanish with the claim. ListVolumes is not offered by every driver and does not tell for which claim a
volume was made. The socket's folder is a hostPath that every sidecar mounts, so a replaced image finds the file; and it is on the
node, like the volumes.

How: each process has one file of lines that say begin or end, and locks it for as long as it lives. A begin is on the disk before the
driver is called; many creations share one flush. Nobody waits for an end: it is written with the next begin, but after one second at
the latest. Otherwise a creation could seem open although its PersistentVolume was stored and removed since, and the next process would
delete a volume that somebody kept.

The next process takes over the files whose lock is free. A process that still runs keeps its own file: a DaemonSet that surges has two
processes on a node for a while. If the folder cannot be written, creations go on without a record. A volume then leaks if the process
dies between CreateVolume and the PersistentVolume and the claim is deleted too; the log and the health answer say so once.
"""

import asyncio
import errno
import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from sidecar.engine import files_io
from sidecar.provisioning.creations.creation_record import CreationRecord, from_line, to_line

log = logging.getLogger(__name__)

_SUFFIX: Final = ".journal"
_NEW: Final = ".new"
# Bytes. A file that has grown beyond this is written anew with the open creations only: the rest of it is about the past.
_LARGE: Final = 2**20
# Seconds that an end waits for a begin to share its flush, and seconds until a failed write is tried again.
_ENDS_WAIT: Final = 1.0
_RETRY: Final = 10.0


class Journal(Protocol):
    """What provisioning needs of a journal."""

    async def begin(self, begun: CreationRecord) -> None:
        """Returns when the record is on the disk, or when it is known that it cannot be written.

        Never raises: a journal that does not work must not keep claims from their volumes.
        """
        ...

    def end(self, uid: str) -> None:
        """Records that the creation needs no clean-up: nothing is left of it, or its PersistentVolume is stored."""
        ...

    async def take_over(self) -> list[CreationRecord]:
        """The creations that dead processes have left open. May be called again: a process that was still running may have ended since."""
        ...

    async def close(self) -> None: ...


class NoJournal:
    """A journal that records nothing, such as for a dry run."""

    async def begin(self, begun: CreationRecord) -> None:
        pass

    def end(self, uid: str) -> None:
        pass

    async def take_over(self) -> list[CreationRecord]:
        return []

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class _Batch:
    """The lines that wait for one flush, and the future of the callers that wait for it."""

    lines: list[bytes] = field(default_factory=list)
    done: "asyncio.Future[None] | None" = None


class FileJournal:
    """A journal in a file. `on_state` is called with the reason when it stops working, and with an empty text when it works again."""

    def __init__(self, folder: Path, driver: str, *, on_state: Callable[[str], None]) -> None:
        self._folder = folder
        self._prefix = prefix = f".csi-node-sidecar.{driver.replace('/', '_')}."
        # Must match the whole file name: the name of another driver may begin with this driver's name.
        self._name = re.compile(re.escape(prefix) + r"[0-9a-f]{16}\.(journal|new)")
        self._path = folder / f"{prefix}{os.urandom(8).hex()}{_SUFFIX}"
        self._on_state = on_state
        self._file = -1
        self._open: dict[str, bytes] = {}
        """The begin line of each open creation, by the uid of its claim."""
        self._size = 0
        self._batch = _Batch()
        self._flushing: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        """The timer of the flush that comes if no begin comes before."""
        self._closed = False
        self._broken = ""
        self._handed: set[tuple[Path, str]] = set()
        """Creations that were taken over already, from files that could not be removed: they must not be handed out twice."""
        self._full = False
        """The last failed write found no room on the disk."""
        self._unreadable: set[Path] = set()
        """Files already logged as unreadable: each is logged once."""
        # Flushes block, so they run outside of the event loop; in a single thread, so that only one of them touches the file.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    async def begin(self, begun: CreationRecord) -> None:
        line = to_line(begun)
        self._open[begun.uid] = line
        await self._write(line)

    def end(self, uid: str) -> None:
        if self._open.pop(uid, None) is not None:
            self._batch.lines.append(json.dumps({"end": uid}).encode())
            self._flush_within(_ENDS_WAIT)

    async def take_over(self) -> list[CreationRecord]:
        """Copies what dead processes left open to this process's file, and removes their files only after that.

        Their locks are held until then, so that no other process takes over the same creations.
        """
        left = await asyncio.get_running_loop().run_in_executor(self._thread, self._find)
        with ExitStack() as locks:
            found: dict[str, CreationRecord] = {}
            for item in left:
                locks.enter_context(item.file)
                found |= {uid: begun for uid, begun in item.begun.items() if (item.path, uid) not in self._handed}
            self._handed = {(item.path, uid) for item in left for uid in item.begun}
            # If this process has begun a creation for the same claim, its own line stays.
            lines = [self._open.setdefault(uid, to_line(begun)) for uid, begun in found.items()]
            # Without new lines, a broken journal is still tried again: if it works by now, the files of the others can be removed.
            if lines or (left and self._broken):
                await self._write(*lines)
            recorded = not self._broken
            for item in left:
                if recorded or not item.begun:
                    self._remove(item.path)
        return list(found.values())

    async def close(self) -> None:
        """Writes what waits, and removes the file if no creation is open. Never raises."""
        self._closed = True
        # A broken journal is tried once more: there may be room on the disk by now.
        if self._batch.lines or self._broken:
            self._flush_now()
        self._not_due()
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        self._thread.shutdown()
        if not self._open:
            self._remove(self._path)
        self._let_go()  # this releases the lock, so the next process can take over what is left

    # --- the file of this process -------------------------------------------------------------------------------------

    async def _write(self, *lines: bytes) -> None:
        self._batch.lines += lines
        # Many callers wait for the same future: if one of them is cancelled, the others must not be.
        await asyncio.shield(self._flush_now())

    def _flush_within(self, seconds: float) -> None:
        if self._due is None and not self._closed:
            self._due = asyncio.get_running_loop().call_later(seconds, self._flush_now)

    def _not_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _flush_now(self) -> "asyncio.Future[None]":
        """Starts a flush. The future is done when the waiting lines are on the disk, or when it is known that they cannot be written."""
        loop = asyncio.get_running_loop()
        if self._batch.done is None:
            self._batch.done = loop.create_future()
        done = self._batch.done
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush(), name="journal")
        return done

    async def _flush(self) -> None:
        """Flushes until nobody waits. Lines that come during a flush go together with the next one."""
        while self._batch.done is not None:
            batch, self._batch = self._batch, _Batch()
            self._not_due()
            data = b"".join(line + b"\n" for line in batch.lines)
            loop = asyncio.get_running_loop()
            try:
                anew = self._broken or self._file < 0 or self._size > _LARGE
                if anew or not await loop.run_in_executor(self._thread, self._append, data):
                    # `_open` holds every begin that is not ended, so the new file also makes up for lines that could not be written.
                    data = b"\n".join([*self._open.values(), b""])
                    await loop.run_in_executor(self._thread, self._replace, data)
                # Writing an empty file needs no room, so it does not show that the disk has any again.
                if data or not self._full:
                    self._tell("")
            except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started, or the pool is shut down
                self._tell_unwritable(error)
                self._flush_within(_RETRY)
            finally:
                if batch.done is not None and not batch.done.done():
                    batch.done.set_result(None)

    def _append(self, data: bytes) -> bool:
        """Runs in the thread. False when the file has been deleted meanwhile: the lines are written, but nobody would find them."""
        try:
            files_io.write_all(self._file, data)
            os.fdatasync(self._file)
            self._size += len(data)
            return os.fstat(self._file).st_nlink > 0
        except OSError:
            self._let_go()  # the file may end in half a line, so the next line is written to a new file
            raise

    def _replace(self, content: bytes) -> None:
        """Runs in the thread. Replaces the file by one that holds the open creations only.

        The old file stays until the new one is on the disk, so that a crash in between loses no record. The new file is
        locked before it gets its name, so that no other process can take it over in between.
        """
        fresh = f"{self._prefix}{os.urandom(8).hex()}{_NEW}"  # a name that nobody can have taken
        with files_io.opened(self._folder) as folder:
            file = files_io.replace(self._path.name, content, fresh=fresh, folder=folder, before=_lock)
        self._let_go()
        self._file, self._size = file, 0

    def _let_go(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):
                os.close(file)

    def _remove(self, path: Path) -> None:
        try:
            if os.path.lexists(path):  # in a folder that cannot be written, unlink fails even for a file that does not exist
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
        """Runs in the thread. The files of dead processes, locked, so that of two processes that look for them only one takes a file."""
        found = []
        try:
            paths = sorted(path for path in self._folder.iterdir() if self._name.fullmatch(path.name) and path.stem != self._path.stem)
        except OSError:
            return []  # not reported here: the first begin fails in the same folder and reports it
        for path in paths:
            try:
                found.append(_left(path))
            except (BlockingIOError, FileNotFoundError):
                pass  # its process still runs, or another process has just taken the file over
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
    """Closing the file releases its lock."""
    begun: dict[str, CreationRecord]


def _left(path: Path) -> _Left:
    """Opens, locks and reads the file of a dead process. Raises OSError when that is not possible."""
    with ExitStack() as stack:
        # Anything else with the name of a journal, such as a FIFO or a link, is not ours: it is reported and left alone.
        with files_io.opened(path.parent) as folder:
            file = stack.enter_context(os.fdopen(files_io.open_regular(path.name, folder=folder), "rb"))
            _lock(file.fileno())
            os.stat(path.name, dir_fd=folder)  # raises when another process took the file over and removed it between open and lock
        # A process that died while it replaced its file left a `.new` file. The old file still holds everything, so this is not read.
        begun = {} if path.suffix == _NEW else _read(file, str(path))
        stack.pop_all()
        return _Left(path, file, begun)


def _lock(file: int) -> None:
    """Without waiting."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read(lines: Iterable[bytes], where: str) -> dict[str, CreationRecord]:
    """The creations that were begun and not ended.

    A line that cannot be read is logged and skipped, so that it costs no other creation. Half a line at the end is not logged: its
    process died while writing it.
    """
    found: dict[str, CreationRecord] = {}
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
