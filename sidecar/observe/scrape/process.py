"""What the kernel says of this process, by the names that Prometheus' libraries give it. Where it says nothing, nothing is shown."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sidecar.observe.exposition import Family, counter, gauge

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Process:
    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._booted: float | None = None

    def collect(self) -> Iterator[Family]:
        for part in (self._of_stat, self._of_files):
            try:
                yield from part()
            except OSError:
                pass

    def _of_stat(self) -> Iterator[Family]:
        booted = self._booted = self._boot_time() if self._booted is None else self._booted
        # The name of the program stands before, in brackets, and may be anything.
        fields = (self._proc / "self" / "stat").read_bytes().rpartition(b")")[2].split()
        user, system, started, virtual, resident = (float(fields[at]) for at in (11, 12, 19, 20, 21))
        yield _one(gauge("process_virtual_memory_bytes", "Virtual memory size in bytes."), virtual)
        yield _one(gauge("process_resident_memory_bytes", "Resident memory size in bytes."), resident * _PAGE)
        since = started / _TICKS + booted
        yield _one(gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds."), since)
        spent = user / _TICKS + system / _TICKS
        yield _one(counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."), spent)

    def _of_files(self) -> Iterator[Family]:
        limits = (self._proc / "self" / "limits").read_bytes().splitlines()
        most = next(float(line.split()[3]) for line in limits if line.startswith(b"Max open file"))
        opened = len(os.listdir(self._proc / "self" / "fd"))  # noqa: PTH208 - of each a Path would be made
        yield _one(gauge("process_open_fds", "Number of open file descriptors."), opened)
        yield _one(gauge("process_max_fds", "Maximum number of open file descriptors."), most)

    def _boot_time(self) -> float:
        lines = (self._proc / "stat").read_bytes().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(b"btime "))


def _one(family: Family, value: float) -> Family:
    family.add((), value)
    return family
