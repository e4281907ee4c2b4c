"""Creations that were begun and whose end is not known, kept where a process that dies leaves them behind: a file beside the socket.

Why a file. Nothing else survives everything at no cost to the API server: a mark on the claim would be one more write for each
volume, and goes with the claim; ListVolumes is not offered by all drivers and does not tell for whom a volume was made. The
socket's folder is a hostPath that every sidecar mounts, so a swapped image finds it; it is on the node, like the volumes.

How. One file for each process, of lines that say begin or end, locked for as long as the process lives. A line is on the disk
before the driver is called, many creations with one flush; ends are not waited for, since to look twice does no harm. The next
process takes over the files whose lock is free. A process that still runs (a DaemonSet that surges has two for a while) keeps its
own. Where the folder cannot be written, creations go on without: then what dies with the process between its call and its
PersistentVolume, while the claim is deleted, is a volume that nobody knows of; this is said once, in log and health.
"""

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from sidecar.provisioning.begun import Begun, from_line, to_line

log = logging.getLogger(__name__)

_SUFFIX: Final = ".journal"
# A file is written anew when this much of it may be about the past.
_LARGE: Final = 2**20


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
        self._prefix = f".csi-node-sidecar.{driver.replace('/', '_')}."
        self._path = folder / f"{self._prefix}{os.urandom(8).hex()}{_SUFFIX}"
        self._on_state = on_state
        self._file = -1
        self._open: dict[str, bytes] = {}
        """By claim: the line that said begin."""
        self._size = 0
        self._batch = _Batch()
        self._flushing: asyncio.Task[None] | None = None
        self._broken = ""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    async def begin(self, begun: Begun) -> None:
        line = to_line(begun)
        self._open[begun.uid] = line
        await self._write(line)

    def end(self, uid: str) -> None:
        if self._open.pop(uid, None) is not None:
            self._batch.lines.append(json.dumps({"end": uid}).encode())

    async def take_over(self) -> list[Begun]:
        """Their files go when all that they tell stands in ours."""
        left = await asyncio.get_running_loop().run_in_executor(self._thread, self._find)
        found: dict[str, Begun] = {}
        for item in left:
            found |= item.begun
        lines = [self._open.setdefault(uid, to_line(begun)) for uid, begun in found.items()]
        if lines:
            await self._write(*lines)
        for item in left:
            if not self._broken:
                item.path.unlink(missing_ok=True)
            os.close(item.file)
        return list(found.values())

    async def close(self) -> None:
        """Leaves no file behind when there is nothing to tell."""
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        self._thread.shutdown()
        if self._file >= 0:
            if not self._open:
                self._path.unlink(missing_ok=True)
            os.close(self._file)  # and with it the lock: whoever comes next may have what is left
            self._file = -1

    # --- the file of this process -------------------------------------------------------------------------------------

    async def _write(self, *lines: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._batch.lines += lines
        if self._batch.done is None:
            self._batch.done = loop.create_future()
        done = self._batch.done
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush(), name="journal")
        await asyncio.shield(done)

    async def _flush(self) -> None:
        """Whatever came while the last flush was under way goes with the next one."""
        while self._batch.done is not None:
            batch, self._batch = self._batch, _Batch()
            anew = b"\n".join([*self._open.values(), b""]) if self._size > _LARGE or self._file < 0 else None
            data = b"".join(line + b"\n" for line in batch.lines)
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._store, data, anew)
                self._tell("")
            except OSError as error:
                self._tell(f"{self._folder} cannot be written: {error.strerror or error}")
            finally:
                if batch.done is not None and not batch.done.done():
                    batch.done.set_result(None)

    def _store(self, data: bytes, anew: bytes | None) -> None:
        """In a thread. Written anew, a file holds what is open only; the old one stays until the new one is on the disk."""
        if anew is not None:
            self._replace(anew)
        else:
            try:
                _write_all(self._file, data)
                os.fdatasync(self._file)
            except OSError:
                os.close(self._file)  # half a line may be in it: the next one is written to a new file
                self._file = -1
                raise
            self._size += len(data)

    def _replace(self, content: bytes) -> None:
        fresh = self._path.with_suffix(".new")
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
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = file, 0

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
            paths = sorted(path for path in self._folder.iterdir() if path.name.startswith(self._prefix) and path != self._path)
        except OSError:
            return []  # the first begin will tell
        for path in paths:
            file = _locked(path)
            if file < 0:
                continue
            if path.suffix == _SUFFIX:
                with os.fdopen(os.dup(file), "rb") as lines:
                    found.append(_Left(path, file, _read(lines, str(path))))
            else:  # somebody died while writing it; what it tells still stands in the file it was to replace
                path.unlink(missing_ok=True)
                os.close(file)
        return found


@dataclass(frozen=True, slots=True)
class _Left:
    path: Path
    file: int
    begun: dict[str, Begun]


def _locked(path: Path) -> int:
    """Open and ours, or -1: its process runs, or it is not to be had."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists():  # else another one has just taken it over
            return file
    except OSError:
        pass
    os.close(file)
    return -1


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
        except (ValueError, AttributeError) as error:
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
