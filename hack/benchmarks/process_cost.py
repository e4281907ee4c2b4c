"""What a running process costs, as the kernel counts it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """MiB and seconds, both with everything the process has touched: shared libraries, kernel time."""

    resident: float
    anonymous: float
    """The part of `resident` that is no file's copy, and cannot be dropped when memory gets short."""
    peak: float
    cpu: float


def cost_of(pid: int) -> Cost:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())

    def mebibytes(name: str) -> float:
        return int(status[name].split()[0]) / 1024

    return Cost(mebibytes("VmRSS"), mebibytes("RssAnon"), mebibytes("VmHWM"), cpu_seconds(pid))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_so_far(pid: int) -> float:
    """The same of all its threads to the nanosecond, where the kernel counts in hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) makes it
