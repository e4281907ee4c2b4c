"""The last result of each measurement, kept in the cache for `report`: what it printed, when, on which machine, of which version."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import sidecar
from hack.lib import cache

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Kept:
    """One run of one measurement."""

    command: str
    words: list[str]
    """All of the command line."""
    date: str
    """When it began, in UTC, as ISO 8601 writes it."""
    seconds: float
    machine: dict[str, str]
    versions: dict[str, str]
    text: str
    """Markdown, as it stood on stdout."""


def folder() -> Path:
    return cache.root() / "bench-results"


@contextlib.contextmanager
def kept(command: str, words: Sequence[str]) -> Iterator[None]:
    """Keeps what is printed inside the block, if that ends well and something is; the result before it is replaced."""
    began, clock = datetime.now(UTC), time.monotonic()
    both = _Both(sys.stdout)
    with contextlib.redirect_stdout(both):
        yield
    if both.copy.getvalue().strip():
        date = began.isoformat(timespec="seconds")
        keep(Kept(command, list(words), date, round(time.monotonic() - clock, 1), machine(), versions(), both.copy.getvalue()))


def keep(result: Kept) -> None:
    folder().mkdir(parents=True, exist_ok=True)
    file = folder() / f"{result.command}.json"
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(asdict(result), indent=1) + "\n")
    fresh.rename(file)


def last() -> list[Kept]:
    """By name. A file that cannot be read, perhaps of another version, is no result."""
    found = []
    for file in sorted(folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Kept(**json.loads(file.read_text())))
    return found


class _Both(io.TextIOBase):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.copy = io.StringIO()

    def write(self, text: str) -> int:
        self.copy.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


# --- where, and of what -----------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """Without its name, which is nobody's business."""
    return {
        "processors": f"{os.cpu_count()} x {_line('/proc/cpuinfo', 'model name') or platform.machine()}",
        "memory": f"{int((_line('/proc/meminfo', 'MemTotal') or '0').split()[0]) / 2**20:.0f} GiB",
        "system": _line("/etc/os-release", "PRETTY_NAME", "=").strip('"') or platform.system(),
        "kernel": platform.release(),
    }


def versions() -> dict[str, str]:
    return {"csi-node-sidecar": sidecar.__version__, "commit": _commit(), "Python": platform.python_version()}


def _line(file: str, name: str, sign: str = ":") -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(sign)[2].strip() for line in lines if line.partition(sign)[0].strip() == name), "")


def _commit() -> str:
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
    except OSError:
        return "not known"
    return told.stdout.strip() or "not known"
