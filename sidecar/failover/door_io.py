"""The sidecar's end of the reader's socket: what replicated storage of this node shows, as old as it says it is.

Whatever goes wrong here, what is known grows older and ends by itself. Nothing that the other end sends can fill memory.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from sidecar.failover.drbd import Reading
from sidecar.failover.evidence import Snapshot

log = logging.getLogger(__name__)

SOCKET: Final = "drbd.sock"
"""In the folder of the driver's socket."""
_MOST_TEXT: Final = 8 << 20
_MOST_HEADER: Final = 256
_SILENT: Final = 30.0  # seconds: it sends something every five
_PAUSE: Final = 2.0


class Drbd(Protocol):
    """What replicated storage of this node shows: `Door`, or a simulated one."""

    changed: asyncio.Event
    """Set when it shows something else than before."""

    async def run(self) -> None: ...

    def snapshot(self, now: float) -> Snapshot: ...

    async def release(self, resource: str) -> str: ...


class Door:
    """`run` is a task."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.changed = asyncio.Event()
        self._path, self._clock = path, clock
        self._reading = Reading()
        self._writer: asyncio.StreamWriter | None = None
        self._why = ""

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
                why = "it has closed the connection"
            except (OSError, EOFError, ValueError) as error:  # TimeoutError is an OSError
                why = str(error) or type(error).__name__
            if why != self._why:
                log.info("The reader of replicated storage is not there", extra={"fields": {"path": str(self._path), "err": why}})
            self._why = why
            await asyncio.sleep(_PAUSE)

    async def _listen(self) -> None:
        async with asyncio.timeout(_SILENT):
            stream, writer = await asyncio.open_unix_connection(self._path, limit=_MOST_HEADER)
        self._writer = writer
        try:
            while True:
                async with asyncio.timeout(_SILENT):
                    header = await stream.readline()
                    if not header:
                        return
                    kind, at, length = header.decode().split(" ")
                    if not 0 <= int(length) <= _MOST_TEXT:
                        raise ValueError(f"it sends {length.strip()} bytes at once")
                    text = (await stream.readexactly(int(length))).decode(errors="replace")
                self._why = ""
                self._take(kind, int(at) / 1e9, text)
        finally:
            self._writer = None
            writer.close()

    def _take(self, kind: str, at: float, text: str) -> None:
        if at > self._clock():
            raise ValueError("it says what is to come")
        if self._reading.feed(kind, at, text):
            self.changed.set()

    def snapshot(self, now: float) -> Snapshot:
        found = self._reading.snapshot(now)
        if found.complete or not self._why:
            return found
        return Snapshot(found.at, False, found.resources, found.disagreements, f"no reader at {self._path}: {self._why}")

    async def release(self, resource: str) -> str:
        """Asks to fail the frozen I/O of a resource, so that its processes can end. Whether that was done the next reading shows. A text:
        why it could not be asked for. It is asked for again while it is wanted, and the reader, which does one after the other, leaves out
        what it comes to too late."""
        if self._writer is None:
            return f"no reader at {self._path}"
        self._writer.write(f"release {resource} {int(self._clock() * 1e9)}\n".encode())
        return ""
