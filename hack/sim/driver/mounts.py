"""mount(2) and umount2(2): the only file here that changes what is mounted. What that means for a volume is decided in `folders`."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final, Protocol

from hack.sim.driver.mount_table import Mount, parse_table

_RDONLY: Final = 0x1
_REMOUNT: Final = 0x20
_BIND: Final = 0x1000
_UNMOUNT_NOFOLLOW: Final = 0x8
# A remount sets every flag anew: one that is not repeated would be taken away from the mount.
_FLAGS: Final = {"nosuid": 0x2, "nodev": 0x4, "noexec": 0x8, "noatime": 0x400, "nodiratime": 0x800, "relatime": 0x200000}


class Mounts(Protocol):
    """Mounting as `folders` needs it. Failures are OSErrors that name what was tried."""

    def table(self) -> tuple[Mount, ...]: ...

    def bind(self, folder: Path, place: Path) -> None:
        """Mounts `folder` on `place`, an existing folder."""

    def make_readonly(self, mount: Mount) -> None: ...

    def unmount(self, place: Path) -> None:
        """Unmounts the uppermost mount there. A mount in use is an error; it is never detached lazily."""


class KernelMounts:
    """The mounts of this process's mount namespace."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def table(self) -> tuple[Mount, ...]:
        return parse_table(os.fsdecode(Path("/proc/self/mountinfo").read_bytes()))

    def bind(self, folder: Path, place: Path) -> None:
        done = self._libc.mount(os.fsencode(folder), os.fsencode(place), None, ctypes.c_ulong(_BIND), None)
        _check(done, f"mounting {folder} at {place}")

    def make_readonly(self, mount: Mount) -> None:
        flags = _REMOUNT | _BIND | _RDONLY | sum(_FLAGS.get(option, 0) for option in mount.options)
        done = self._libc.mount(None, os.fsencode(mount.place), None, ctypes.c_ulong(flags), None)
        _check(done, f"making the mount at {mount.place} read-only")

    def unmount(self, place: Path) -> None:
        _check(self._libc.umount2(os.fsencode(place), _UNMOUNT_NOFOLLOW), f"unmounting {place}")


def _check(done: int, what: str) -> None:
    if done == 0:
        return
    number = ctypes.get_errno()
    hint = " (a driver that mounts runs privileged)" if number == errno.EPERM else ""
    raise OSError(number, f"{what}: {os.strerror(number)}{hint}")
