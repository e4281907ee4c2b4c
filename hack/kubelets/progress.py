"""Progress for people, on stderr: stdout holds results alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from kubelets.errors import ClusterError

T = TypeVar("T")


def say(message: str) -> None:
    sys.stderr.write(f"cluster: {message}\n")
    sys.stderr.flush()


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.1f} s")


def until(condition: Callable[[], T], what: str, *, seconds: float, log: Path | None = None) -> T:
    """The first answer of the condition that is true; what it waited for, and the end of the log, if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {seconds:.0f} s in vain: {what}{tail(log)}")
        time.sleep(0.05)
    return answer


def tail(log: Path | None, *, lines: int = 10) -> str:
    if log is None or not log.exists():
        return ""
    last = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n  ".join([f"; the last lines of {log}:", *last])
