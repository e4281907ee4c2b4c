"""Mounts for tests: a table that mounts nothing, and a mount namespace of one's own in which the kernel's mounts harm nobody."""

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hack.lib.patience import deadline
from hack.sim.driver.mount_table import Mount, covering, mounted_at, origin

_REPOSITORY = Path(__file__).resolve().parents[2]
_OWN_NAMESPACE = ("unshare", "--mount", "--propagation", "private")


class FakeMounts:
    """The table as the kernel would keep it. What it refuses the kernel refuses; what a mount shows can only be seen with the kernel's."""

    def __init__(self) -> None:
        self.mounts = [Mount(1, 0, "8:1", "/", Path("/"), frozenset({"rw", "nodev"}))]

    def table(self) -> tuple[Mount, ...]:
        return tuple(self.mounts)

    def bind(self, folder: Path, place: Path) -> None:
        if not folder.is_dir() or not place.is_dir():
            raise OSError(errno.ENOENT, f"mounting {folder} at {place}")
        device, root = origin(self.mounts, folder)
        below = covering(self.mounts, place)
        self.mounts.append(Mount(max(mount.id for mount in self.mounts) + 1, below.id, device, root, place, frozenset({"rw"})))

    def make_readonly(self, mount: Mount) -> None:
        self.mounts[self.mounts.index(mount)] = replace(mount, options=mount.options - {"rw"} | {"ro"})

    def unmount(self, place: Path) -> None:
        there = mounted_at(self.mounts, place)
        if there is None:
            raise OSError(errno.EINVAL, f"unmounting {place}")
        if any(mount.parent == there.id for mount in self.mounts):
            raise OSError(errno.EBUSY, f"unmounting {place}")
        self.mounts.remove(there)


def namespaces_or_skip() -> None:
    """Where CI is set nothing may be left out."""
    done = subprocess.run([*_OWN_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    why = f"no right to mount in a namespace of one's own: {done.stderr.strip()}"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def own_namespace(*command: str) -> list[str]:
    return [*_OWN_NAMESPACE, *command]


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
