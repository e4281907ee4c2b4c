"""What an instance may cost under attack, and why so much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LIMIT: Final = 128
"""MiB: the limit that `deploy/` sets. Above it the kernel ends the process."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    peak: float = 110.0
    """MiB resident. Below the container's limit by what the kernel counts beside it: sockets, page tables, caches of files in use."""
    files: int = 100
    """A pool of ten connections, six watches, the driver's socket, sixteen clients of pages, and what Python keeps open."""
    healthz: float = 1.0
    """Seconds. The probes of `deploy/` give up after 3, and ask again twice before the kubelet acts."""
    unanswered: int = 0
    figure: float | None = None
    """The most that the attack's own figure may be; None where it is told and not judged."""


USUAL: Final = Bounds()
