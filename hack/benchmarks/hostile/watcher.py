"""Looks at one process from outside while it is attacked: memory, open files, and how long `/healthz` takes, as the kubelet asks it."""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hack.benchmarks.process_cost import cost_of

_PAUSE: Final = 0.05
_PATIENCE: Final = 10.0


@dataclass
class Figures:
    """MiB, seconds and counts; the largest of each."""

    peak: float = 0.0
    files: int = 0
    healthz: float = 0.0
    unanswered: int = 0
    """Requests for `/healthz` that failed although the process ran and had answered before."""
    answered: int = 0


@dataclass
class Watcher:
    pid: int
    port: int
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._look_on, self._ask_on)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(_PAUSE):
            try:
                self.figures.peak = max(self.figures.peak, cost_of(self.pid).peak)
                self.figures.files = max(self.figures.files, sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir()))
            except (OSError, KeyError):  # it has ended
                continue

    def _ask_on(self) -> None:
        """One after the other, each on a new connection."""
        while not self._over.wait(_PAUSE):
            begun = time.monotonic()
            good = self._ask()
            if good:
                self.figures.answered += 1
            elif self.figures.answered and not self._over.is_set() and self._runs():
                self.figures.unanswered += 1
            if self.figures.answered:
                self.figures.healthz = max(self.figures.healthz, time.monotonic() - begun)

    def _ask(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _runs(self) -> bool:
        try:
            return bool(Path(f"/proc/{self.pid}/cmdline").read_bytes())
        except OSError:
            return False
