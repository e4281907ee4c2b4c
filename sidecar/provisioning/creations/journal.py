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
processes on a node for a while.

A disk that is full, fails or hangs is repaired some time, so until then nothing is begun that cannot be recorded. In a folder that this
process has never been able to write, because it is missing, read-only or somebody else's, creations go on without a record. A volume then
leaks if the process dies between CreateVolume and the PersistentVolume and the claim is deleted too. The log and the health answer say
either.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from sidecar.engine import files_io
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal_lines import LONGEST_LINE, Damage, OpenLines, begin_line, end_line
from sidecar.provisioning.creations.leftovers_io import (
    MOST_OPEN,
    NEW,
    SUFFIX,
    Found,
    Leftover,
    Leftovers,
    alive,
    first_line,
    lock,
    prefix_of,
)

log = logging.getLogger(__name__)

# Bytes. A file to which more than this would be appended is written anew with the open creations only: the rest of it is about the past.
_LARGE: Final = 2**20
# Seconds that an end waits for a begin to share its flush, and seconds until a failed write is tried again.
_ENDS_WAIT: Final = 1.0
_RETRY: Final = 10.0
# Seconds after which a disk that has neither taken nor refused what it was asked hangs: nobody waits for it any longer, and all hear of it.
_PATIENCE: Final = 10.0


# What a folder answers in which no file of ours can be, however long one waits: it is not there, not ours or read-only by intention.
_NO_FOLDER: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})

_UNREAD: Final = "what earlier processes have left could not be read yet"
_WAITS: Final = "Creations cannot be recorded, so none is begun until they can: make room, or repair the file system"
_GOES_ON: Final = (
    "Creations are not recorded: one that is under way when this process ends, and whose claim is deleted, may leak its volume."
    " Mount the folder so that it can be written, or name another one with --journal-dir"
)
_DAMAGED: Final = (
    "A journal is damaged: what could be read is used; a volume that only the rest tells of may leak."
    " Look at the file, and at the driver's volumes without a PersistentVolume"
)


class Journal(Protocol):
    """What provisioning needs of a journal."""

    async def begin(self, begun: CreationRecord) -> str:
        """Returns when the record is on the disk; or why it cannot be written. Then nothing may be begun, and the caller ends it.

        Never raises.
        """
        ...

    def end(self, key: str) -> None:
        """Records that the creation needs no clean-up: nothing is left of it, or its PersistentVolume is stored. Or, by its key, that a
        person has seen to a suspect."""
        ...

    async def take_over(self) -> list[CreationRecord]:
        """The creations that dead processes have left open. May be called again: a process that was still running may have ended since."""
        ...

    def settled(self) -> list[str]:
        """By key, of which `take_over` has found, since this was last asked, that a person has seen to what was left."""
        ...

    async def close(self) -> None: ...


class NoJournal:
    """A journal that records nothing, such as for a dry run."""

    async def begin(self, begun: CreationRecord) -> str:
        return ""

    def end(self, key: str) -> None:
        pass

    async def take_over(self) -> list[CreationRecord]:
        return []

    def settled(self) -> list[str]:
        return []

    async def close(self) -> None:
        pass


@dataclass(slots=True, eq=False, repr=False)
class _Batch:
    """The lines that wait for one flush, and the future of the callers that wait for it."""

    lines: list[bytes] = field(default_factory=list)
    done: "asyncio.Future[None] | None" = None


class FileJournal:
    """A journal in a file. `former` is another folder, where a process with other flags may have left its own. `on_state` is called with
    the reason when it stops working, and with an empty text when it works again; `on_damage` with the kind of damage found in the files of
    dead processes, and how often it is there."""

    def __init__(
        self,
        folder: Path,
        driver: str,
        *,
        former: Path | None = None,
        on_state: Callable[[str], None],
        on_damage: Callable[[str, int], None] = lambda kind, count: None,
    ) -> None:
        self._folder = folder
        self._prefix = prefix = prefix_of(driver)
        self._path = folder / f"{prefix}{os.urandom(8).hex()}{SUFFIX}"
        self._leftovers = {place: Leftovers(place, prefix) for place in (folder, *((former,) if former else ()))}
        self._on_state = on_state
        self._on_damage = on_damage
        self._file = -1
        self._open = OpenLines[bytes]()
        """The begin line of each open creation."""
        self._size = 0
        self._batch = _Batch()
        self._flushing: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        """The timer of the flush that comes if no begin comes before."""
        self._closed = False
        self._broken = ""
        self._hangs = False
        """The disk has not answered in time. What it was asked may still be done, and until then nothing else can be."""
        self._looking: asyncio.Future[Found] | None = None
        self._unread = False
        """A look for what dead processes have left was not over in time. Until it is, nothing may be begun: they may have begun a deletion,
        which can still happen."""
        self._is_needed = False
        """The folder is one that can be written. Where it never was, that is how this node is set up, and work goes on without."""
        self._handed: set[tuple[Path, str]] = set()
        """Creations that were taken over already, from files that could not be removed: they must not be handed out twice."""
        self._settled: set[str] = set()
        self._full = False
        """The last failed write found no room on the disk."""
        self._told: set[Path] = set()
        """Damaged files that could not be taken out of the way: each is told once."""
        # Flushes block, so they run outside of the event loop; in a single thread, so that only one of them touches the file.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    async def begin(self, begun: CreationRecord) -> str:
        line, known = begin_line(begun), begun.key in self._open.by_key or self._open.has(begun)
        too_long = len(line) > LONGEST_LINE and (begun.earlier or not known)
        if too_long or (not known and self._open.size + len(line) > MOST_OPEN):
            return "more is under way than can be recorded"  # nor could the next process read it
        if self._hangs or self._unread:
            if known:
                self._open.put(begun, line, size=len(line))
                self._batch.lines.append(line)
                self._flush_within(_ENDS_WAIT)
            return self._broken or _UNREAD  # and no line waits for a disk of which nobody knows when it answers
        self._open.put(begun, line, size=len(line))
        await self._write(line)
        return self._broken if self._is_needed else ""

    def end(self, key: str) -> None:
        if self._open.end(key):
            self._batch.lines.append(end_line(key))
            self._flush_within(_ENDS_WAIT)

    async def take_over(self) -> list[CreationRecord]:
        """Copies what dead processes left open to this process's file, and removes their files only after that.

        Their locks are held until then, so that no other process takes over the same creations.
        """
        room = MOST_OPEN - self._open.size
        if self._looking is None:
            try:
                self._looking = asyncio.get_running_loop().run_in_executor(self._thread, partial(self._look, room))
            except RuntimeError as error:  # no thread can be started; the next look tries again
                self._unread = True
                log.warning(
                    "Journals of dead processes are not read yet", extra={"fields": {"folder": str(self._folder), "err": str(error)}}
                )
                return []
        if not await self._in_time(self._looking):
            self._unread = True
            return []
        others, self._looking = self._looking.result(), None
        self._unread = False
        late, self._hangs = self._hangs, False
        for path, why in others.unreadable.items():
            self._tell_damage(path, {Damage.UNREADABLE: 1}, why)
        left = others.leftovers
        with ExitStack() as locks:
            found: dict[str, CreationRecord] = {}
            for item in left:
                locks.enter_context(item.file)
                self._settled |= item.content.settled
                new = {key: begun for key, begun in item.content.begun.items() if (item.path, key) not in self._handed}
                for key, begun in new.items():
                    # Of two files that tell of one creation, either may be the one that has missed something.
                    unproven = item.silent or begun.unproven or (key in found and found[key].unproven)
                    found[key] = replace(begun, unproven=unproven)
            self._handed = {(item.path, key) for item in left for key in item.content.begun}
            for suspect in [record for record in found.values() if record.suspect]:
                if (same := found.get(suspect.uid)) is not None and same.request.name == suspect.request.name:
                    del found[suspect.uid]  # what one process has left to people, no other one deletes
            lines = [self._taken_over(begun) for begun in found.values()]
            # Without new lines, a broken journal is still tried again: if it works by now, the files of the others can be removed.
            if lines or ((left or late) and self._broken):
                await self._write(*lines)
            recorded = not self._broken
            for item in left:
                if others.complete or not item.content.settled:
                    self._clear(item, recorded=recorded)
        self._told &= {*others.unreadable, *(item.path for item in left)}
        return list(found.values())

    def _taken_over(self, begun: CreationRecord) -> bytes:
        """If this process has begun a creation of the same volume, or for the same claim, its own line stays."""
        line = begin_line(begun)
        if begun.key not in self._open.by_key and not self._open.has(begun):
            self._open.put(begun, line, size=len(line))
        return self._open.by_key.get(begun.key, b"") or self._open.by_key[begun.other_key]

    def _look(self, room: int) -> Found:
        """Runs in the thread. While ends cannot be written, what is open in the file proves nothing."""
        if self._file >= 0 and not self._broken:
            with suppress(OSError):
                alive(self._file)
        found = Found()
        for place in self._leftovers.values():
            found.add(place.find(besides=self._path.stem, room=room - found.size()))
        return found

    def settled(self) -> list[str]:
        found, self._settled = sorted(self._settled), set()
        return found

    async def close(self) -> None:
        """Writes what waits, and removes the file if no creation is open. Never raises."""
        self._closed = True
        # A broken journal is tried once more: there may be room on the disk by now.
        if self._batch.lines or self._broken:
            self._flush_now()
        self._not_due()
        asked = {task for task in (self._flushing, self._looking) if task is not None}
        if asked and (await asyncio.wait(asked, timeout=0.0 if self._hangs else _PATIENCE))[1]:
            self._thread.shutdown(wait=False)  # the lock goes with the process
            return
        self._thread.shutdown()
        if not self._open.by_key:
            self._remove(self._path)
        self._let_go()  # this releases the lock, so the next process can take over what is left

    def _clear(self, item: Leftover, *, recorded: bool) -> None:
        kept = ""
        try:
            if recorded or not item.content.begun:
                kept = self._leftovers[item.path.parent].clear(item)
        except OSError as error:
            if item.path.parent == self._folder:
                self._tell_unwritable(error)
        self._tell_damage(item.path, item.content.damage, item.content.first, kept=kept)

    def _tell_damage(self, path: Path, damage: Mapping[Damage, int], why: str, *, kept: str = "") -> None:
        if not damage or path in self._told:
            return
        self._told.add(path)
        for kind, count in damage.items():
            self._on_damage(kind.value, count)
        fields = {"file": str(path), **{kind.value: count for kind, count in damage.items()}}
        if damage.keys() == {Damage.UNSIGNED}:
            log.info("A journal has lines without a checksum, as older versions write them", extra={"fields": fields})
        else:
            log.error(_DAMAGED, extra={"fields": fields | {"first": why, "kept": str(path.parent / kept) if kept else "where it is"}})

    # --- the file of this process -------------------------------------------------------------------------------------

    async def _write(self, *lines: bytes) -> None:
        self._batch.lines += lines
        await self._in_time(self._flush_now())

    async def _in_time(self, asked: "asyncio.Future[Any]") -> bool:
        """Waits for what the disk was asked; False if it hangs. Many may wait for it, and if one is cancelled, it goes on."""
        done, _ = await asyncio.wait({asked}, timeout=_PATIENCE)
        if not done:
            self._hangs = self._is_needed = True
            self._tell(f"{self._folder} has not answered for {_PATIENCE:g} s")
        return bool(done)

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
                anew = self._broken or self._file < 0 or self._size + len(data) > _LARGE
                if anew or not await loop.run_in_executor(self._thread, self._append, data):
                    # `_open` holds every begin that is not ended, so the new file also makes up for lines that could not be written.
                    data = b"\n".join([*self._open.by_key.values(), b""])
                    await loop.run_in_executor(self._thread, self._replace, data)
                self._is_needed = True
                # Writing an empty file needs no room, so it does not show that the disk has any again.
                if data or not self._full:
                    self._tell("")
            except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started, or the pool is shut down
                self._tell_unwritable(error)
                self._flush_within(_RETRY)
            finally:
                self._hangs = False
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
            self._size = (
                _LARGE  # the file may end in half a line, so the next line is written to a new one. This one stays locked till then
            )
            raise

    def _replace(self, content: bytes) -> None:
        """Runs in the thread. Replaces the file by one that holds the open creations only.

        The old file stays until the new one is on the disk, so that a crash in between loses no record. The new file is
        locked before it gets its name, so that no other process can take it over in between.
        """
        fresh = f"{self._prefix}{os.urandom(8).hex()}{NEW}"  # a name that nobody can have taken
        with files_io.opened(self._folder) as folder:
            file = files_io.replace(self._path.name, first_line() + content, fresh=fresh, folder=folder, before=lock)
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
        if not isinstance(error, OSError) or error.errno not in _NO_FOLDER:
            self._is_needed = True
        why = error.strerror if isinstance(error, OSError) else ""
        self._full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._tell(f"{self._folder} cannot be written: {why or error}")

    def _tell(self, why: str) -> None:
        if why and why != self._broken:
            log.error(_WAITS if self._is_needed else _GOES_ON, extra={"fields": {"err": why}})
        elif self._broken and not why:
            log.info("Creations are recorded again", extra={"fields": {"journal": str(self._path)}})
        if why != self._broken:
            self._broken = why
            self._on_state(why)
