"""Waits for a condition; the error shows the end of a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hack.kubelets.errors import ClusterError
from hack.lib.patience import deadline, patient

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, *, seconds: float, log: Path | None = None) -> T:
    """The first true answer of the condition. Without one in time, the error says what was waited for and shows the end of the log."""
    end = deadline(seconds)
    while not (answer := condition()):
        if time.monotonic() > end:
            raise ClusterError(f"waited {patient(seconds):.0f} s in vain: {what}{tail(log)}")
        time.sleep(0.05)
    return answer


def tail(log: Path | None, *, lines: int = 10) -> str:
    if log is None or not log.exists():
        return ""
    last = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n  ".join([f"; the last lines of {log}:", *last])
