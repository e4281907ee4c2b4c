"""How the commands of hack begin and end, and what they tell people: plain lines on stderr, for stdout holds results alone."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]
ENTERED = "CSI_NODE_SIDECAR_ENTERED"


class Failure(Exception):
    """What cannot be done and what would help, for a person."""


def run(main: Callable[[], int | None], *needed: str) -> NoReturn:
    """Ends the process with what `main` returns, after the packages it needs have been seen to. kill(1) clears up like Ctrl-C does."""
    _start_again_unless_installed(*needed)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        sys.exit(main())
    except Failure as failure:
        say(f"error: {failure}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _start_again_unless_installed(*needed: str) -> None:
    """Start this command again with the Python that runs the tests if this one lacks a package; give up if it is that one already."""
    missing = [name for name in needed if not _is_installed(name)]
    if not missing:
        return
    command = Path(sys.argv[0]).name
    if ENTERED in os.environ:
        sys.exit(f"hack/{command}: {sys.executable} lacks {', '.join(missing)}: run hack/test once, or pip install -e '.[dev]'")
    script = 'cd "$0" && source hack/environment && enter_environment && exec python hack/"$1" "${@:2}"'
    words = ["bash", "-euc", script, str(REPOSITORY), command, *sys.argv[1:]]
    os.execvpe(words[0], words, {**os.environ, ENTERED: "1"})


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package it is in
        return False


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
