"""A mount namespace of one's own, in which the kernel's mounts harm nobody."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.lib.patience import deadline

_REPOSITORY = Path(__file__).resolve().parents[2]
_OWN_NAMESPACE = ("unshare", "--mount", "--propagation", "private")


def namespaces_or_skip() -> None:
    """Where CI is set nothing may be left out."""
    done = subprocess.run([*_OWN_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    why = f"no right to mount in a namespace of one's own: {done.stderr.strip()}"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@dataclass(frozen=True)
class Namespace:
    """A machine, as far as mounts go: its end is the end of all of them."""

    pid: int

    def inside(self, *command: str) -> list[str]:
        # nsenter goes to the root folder: paths in the command are absolute, and the interpreter is told where its modules are.
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", "env", f"PYTHONPATH={_REPOSITORY}", *command]

    def seen(self, path: Path) -> Path:
        """The path as the processes in there see it."""
        return Path(f"/proc/{self.pid}/root{path}")


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    with subprocess.Popen([*_OWN_NAMESPACE, "sleep", "600"]) as holder:
        try:
            _until_apart(holder.pid)
            yield Namespace(holder.pid)
        finally:
            holder.kill()


def _until_apart(pid: int) -> None:
    end = deadline(10)
    while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
        assert time.monotonic() < end, "the namespace was not made"
        time.sleep(0.01)
