"""Progress for people: plain lines on stderr, for stdout holds results alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def say(message: str) -> None:
    """A line that begins with the name of the command that was started, such as `image: building from the Dockerfile`."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    say(what)
    began = time.monotonic()
    yield
    say(f"{what}: done in {time.monotonic() - began:.0f} s")
