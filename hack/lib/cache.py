"""Where hack keeps what was built or fetched, and how two runs at once keep out of each other's way."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
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


def kept(target: Path, make: Callable[[Path], Path]) -> Path:
    """What is made once. `make` gets a folder to work in, and says what of it is kept, which appears in its place only when it is whole."""
    if not target.exists():
        with only_one_at_a_time(target.parent):
            if not target.exists():
                with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as work:
                    make(Path(work)).rename(target)
    return target
