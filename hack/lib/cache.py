"""Where hack keeps what was built or fetched, and how two runs at once keep out of each other's way."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.lib.command import say


def root() -> Path:
    """The same rule as in hack/environment, which is shell."""
    own = os.environ.get("CSI_NODE_SIDECAR_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "csi-node-sidecar"


@contextmanager
def only_one_at_a_time(folder: Path) -> Iterator[None]:
    """One run at a time writes into the folder. The lock file stays: to remove it would let two runs hold a lock of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that is building in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
