"""Progress for people, on stderr: stdout holds results alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def say(message: str) -> None:
    """A line that begins with the name of the command that was started, such as `image: building from the Dockerfile`."""
    sys.stderr.write(f"{Path(sys.argv[0]).name}: {message}\n")
    sys.stderr.flush()


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - began:.1f} s")
