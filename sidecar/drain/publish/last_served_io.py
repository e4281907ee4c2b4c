"""Remembers, in a file beside the driver's socket, for which driver this node's sidecar has spoken last.

A driver that is dead cannot say its name, and without the name a process that starts does not know which conditions and which report are
those of the process before it. Nothing on the API server tells: a node may have several drivers, each with a sidecar of its own, and
nobody takes back the words of another one's. The socket is what tells sidecars of one node apart, so the file has its name and lies in
its folder; not in `--journal-dir`, which two of them may share.

Where that folder cannot be written or is not kept, what was said stands until the driver has said its name, or its time is over.
"""

import asyncio
import logging
import os
import re
from pathlib import Path
from typing import Final, Protocol

from sidecar.engine import files_io

log = logging.getLogger(__name__)

# As CSI allows names. The folder is the driver's as well, so what is read there may be anything.
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_BYTES: Final = 256


class LastServed(Protocol):
    """What is remembered of the driver that was served last."""

    async def read(self) -> str:
        """Its name; empty: it is not known. Never raises."""
        ...

    async def write(self, driver: str) -> None:
        """Before anything is said for it. Never raises."""
        ...


class NothingRemembered:
    """For a dry run, which says nothing."""

    async def read(self) -> str:
        return ""

    async def write(self, driver: str) -> None:
        pass


class FileLastServed:
    """For the driver at this socket."""

    def __init__(self, socket: Path) -> None:
        self._path = socket.parent / f".csi-node-sidecar.{socket.name}.driver"

    async def read(self) -> str:
        return await asyncio.to_thread(self._read)

    async def write(self, driver: str) -> None:
        if _NAME.fullmatch(driver) is None or await self.read() == driver:
            return
        try:
            await asyncio.to_thread(self._write, driver)
        except OSError as error:
            why = error.strerror or str(error)
            log.warning(
                "The driver's name cannot be written beside its socket: if it is dead at a start, what was said of this node stands",
                extra={"fields": {"file": str(self._path), "err": why}},
            )

    def _read(self) -> str:
        try:
            with files_io.opened(self._path.parent) as folder:
                handle = files_io.open_regular(self._path.name, folder=folder)
            try:
                found = os.read(handle, _BYTES)
            finally:
                os.close(handle)
        except OSError:
            return ""
        name = found.decode(errors="replace").strip()
        return name if _NAME.fullmatch(name) else ""

    def _write(self, driver: str) -> None:
        """By a rename, so that nobody finds half a name."""
        fresh = f"{self._path.name}.{os.urandom(8).hex()}.new"  # a name that nobody can have taken
        with files_io.opened(self._path.parent) as folder:
            os.close(files_io.replace(self._path.name, f"{driver}\n".encode(), fresh=fresh, folder=folder))
