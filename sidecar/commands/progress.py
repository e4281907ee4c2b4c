"""How far a long command is: on a terminal one line that is renewed, elsewhere a line every 15 s. On standard error; results are elsewhere.

Whoever works is asked, by a thread of its own: nothing that is simulated or measured has to stop and tell.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from sidecar.frozen import frozen

RENEWED: Final = 0.5
"""Seconds between two looks on a terminal."""
TOLD: Final = 15.0
"""Seconds between two lines where nothing renews them, as in the log of a CI."""
_TOO_EARLY: Final = 0.01
"""Of a share so small nothing follows for the time that is left."""
_ERASE: Final = "\r\x1b[K"

_writing = threading.RLock()


@frozen
class Far:
    """What is being done, and how much of all is: a share from 0 to 1, or the seconds that the whole is thought to take."""

    what: str
    share: float | None = None
    seconds: float | None = None

    def left(self, passed: float) -> float | None:
        """Seconds; None: that cannot be said."""
        if self.share is not None:
            return passed * (1.0 - self.share) / self.share if self.share >= _TOO_EARLY else None
        return self.seconds - passed if self.seconds is not None and passed < self.seconds else None


class Line:
    """What is shown of one command."""

    def __init__(self, ask: Callable[[], Far], *, name: str, stream: TextIO, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._name = name
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self.pause = RENEWED if self._is_terminal else TOLD
        self._began = clock()
        self._due = self._began + self.pause
        self._is_shown = False

    def look(self) -> None:
        """Shows how far it is, if it is time for that."""
        with _writing:
            if self._clock() < self._due:
                return
            self._due = self._clock() + self.pause
            self._is_shown = self._is_terminal
            text = self.text()
            self._write(f"{_ERASE}{text[: _columns(self._stream) - 1]}" if self._is_terminal else f"{text}\n")

    def text(self) -> str:
        """The time first: a terminal may be narrow."""
        passed = self._clock() - self._began
        far = self._ask()
        left = far.left(passed)
        parts = [] if far.share is None else [f"{int(100 * far.share)} %"]
        parts.append(f"{in_words(passed)} so far")
        if left is not None:
            parts.append(f"about {in_words(left)} left")
        elif far.seconds is not None:
            parts.append(f"longer than the {in_words(far.seconds)} it should take")
        return f"{self._name}: {', '.join(parts)}: {far.what}"

    def clear(self) -> None:
        """So that something else may be written there. The next look shows it again."""
        with _writing:
            if self._is_shown:
                self._is_shown = False
                self._write(_ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


_shown: list[Line | None] = []
"""The innermost last; None while somebody else writes on the terminal."""


def write(text: str, *, stream: TextIO | None = None) -> None:
    """Whole lines on standard error, above the one that is renewed."""
    with _writing:
        clear()
        (stream or sys.stderr).write(text)
        (stream or sys.stderr).flush()


def clear() -> None:
    """Before whoever else writes a line on the terminal."""
    if _shown and (line := _shown[-1]):
        line.clear()


@contextmanager
def shown(
    ask: Callable[[], Far], *, name: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Line]:
    """Inside the block people see how far it is."""
    line = Line(ask, name=name, stream=stream or sys.stderr, clock=clock)
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(line, stop), name="progress", daemon=True)
    with _only(line):
        thread.start()
        try:
            yield line
        finally:
            stop.set()
            thread.join()


@contextmanager
def silent() -> Iterator[None]:
    """Inside the block another program tells how far it is."""
    with _only(None):
        yield


@contextmanager
def _only(line: Line | None) -> Iterator[None]:
    clear()
    _shown.append(line)
    try:
        yield
    finally:
        clear()
        _shown.pop()


def _renew(line: Line, stop: threading.Event) -> None:
    while not stop.wait(line.pause):
        if _shown and _shown[-1] is line:
            line.look()


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def in_words(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
