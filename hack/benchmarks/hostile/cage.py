"""A container's limit of memory around one process: a cgroup of version 1 or 2, where we may make one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.lib.programs import Process

_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")
_ENTER: Final = 'echo $$ > "$0"/cgroup.procs && exec "$@"'


@dataclass(frozen=True)
class Cage:
    folder: Path

    def put(self, process: Process) -> None:
        """Before it starts."""
        process.command = ["sh", "-c", _ENTER, str(self.folder), *process.command]


@contextlib.contextmanager
def a_cage(name: str, *, mebibytes: int) -> Iterator[Cage | None]:
    """None where no cgroup can be made: then a process that takes too much is not ended, and its peak alone tells."""
    folder = _made(name, mebibytes << 20)
    try:
        yield Cage(folder) if folder is not None else None
    finally:
        if folder is not None:
            _removed(folder)


def _made(name: str, limit: int) -> Path | None:
    root, files = (_V1, ("memory.limit_in_bytes", "memory.swappiness")) if _V1.is_dir() else (_V2, ("memory.max", "memory.swap.max"))
    folder = root / f"{name}-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / files[0]).write_text(str(limit))
        with contextlib.suppress(OSError):  # a kernel without swap has no such file
            (folder / files[1]).write_text("0")
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return None
    return folder


def _removed(folder: Path) -> None:
    """The kernel lets go of it a moment after the last process has ended."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)
