"""How the commands of hack begin and end, and what they tell people: plain lines on stderr, for stdout holds results alone."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from hack.lib.environment import start_again_unless_installed


class Failure(Exception):
    """What cannot be done and what would help, for a person."""


def run(main: Callable[[], int | None], *needed: str) -> NoReturn:
    """Ends the process with what `main` returns, after the packages it needs have been seen to. kill(1) clears up like Ctrl-C does."""
    start_again_unless_installed(*needed)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        sys.exit(main())
    except Failure as failure:
        say(f"error: {failure}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def say(message: str) -> None:
    """A line that begins with the name of the command that was started, such as `image: building from the Dockerfile`."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)


def above_zero(word: str) -> int:
    """For argparse."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(word)


def tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n  ".join([f"the last lines of {log}:", *lines[-20:]])


@contextmanager
def step(what: str) -> Iterator[None]:
    say(what)
    began = time.monotonic()
    yield
    say(f"{what}: done in {time.monotonic() - began:.0f} s")
