"""What a local volume is made of: nothing but its journal entry, or a folder below one root that is bind-mounted where a pod needs it.

Folders serve tests and demos: a volume's size is a promise, not a quota, and its data is as safe as that one folder. Folders and journal
agree at every moment at which a driver may be killed. A folder that the journal does not know was told to nobody and is empty, so `tidy`
removes it. One renaming to `.deleted-<id>` decides a deletion; whoever finds such a folder completes it.
"""

import contextlib
import ctypes
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_RETIRED: Final = ".deleted-"
_BLOCK_SIZE: Final = 512
_RDONLY, _REMOUNT, _BIND = 0x1, 0x20, 0x1000
_UNMOUNT_NOFOLLOW: Final = 0x8


class NotOurs(Exception):
    """Something else is where the driver would put, or take away, something of its own."""


class Backing:
    """A volume is nothing but its entry in the journal. Where it is published, there is an empty folder or file.

    Each method is idempotent, and may fail with an OSError or NotOurs. The driver writes its journal between them, and may be killed in
    every gap: a creation is `make`, then the journal; a deletion is `retire`, which decides it, then the journal, then `discard`.
    """

    def refuses(self, *, block: bool, mount_flags: Sequence[str]) -> str:
        """The reason why a volume cannot be used like this; empty if it can."""
        return ""

    def retired(self) -> Iterable[str]:
        """Ids of volumes whose deletion was decided but not completed."""
        return ()

    def tidy(self, known: Iterable[str]) -> None:
        """After a start: removes what nobody was told of."""

    def make(self, volume_id: str) -> None: ...

    def unmake(self, volume_id: str) -> None:
        """Removes what was made but could not be recorded in the journal."""

    def retire(self, volume_id: str) -> None: ...

    def discard(self, volume_id: str) -> None: ...

    def publish(self, target: Path, volume_id: str, *, block: bool, readonly: bool) -> None:
        """The folder around the target must exist: whoever runs the node has made it."""
        if block:
            target.touch()
        else:
            target.mkdir(exist_ok=True)

    def unpublish(self, target: Path, volume_id: str) -> None:
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)

    def lasting(self, target: Path, volume_id: str) -> bool:
        """Whether what was published there is still there. Mounts end with the machine, the journal does not."""
        return True

    def is_shared(self, volume_id: str) -> bool:
        """Whether a person has put it there, as on storage that several nodes reach: no journal knows it, and nobody here deletes it."""
        return False

    def in_use(self, volume_id: str, recorded: Sequence[str]) -> Sequence[str]:
        """Where the volume is in use: as the kernel says for real mounts, else as recorded."""
        return recorded

    def room(self, promised: Mapping[str, int]) -> int:
        """Bytes that are neither written nor promised to a volume; `promised` is each volume's size by its id."""
        raise NotImplementedError("an entry in a journal takes no room; a budget says how much there is")


class Folders(Backing):
    """Real folders. It needs the right to mount."""

    def __init__(self, roof: Path, *, node_id: str) -> None:
        roof.mkdir(parents=True, exist_ok=True)
        self._roof = Path(os.path.realpath(roof))
        self._id = re.compile(re.escape(node_id) + r"-vol-\d+")

    def refuses(self, *, block: bool, mount_flags: Sequence[str]) -> str:
        if block:
            return "a volume here is a folder: raw block volumes (volumeMode Block) are not supported"
        return f"a volume here is a folder: mount options ({', '.join(mount_flags)}) are not supported" if mount_flags else ""

    def retired(self) -> list[str]:
        return [path.name.removeprefix(_RETIRED) for path in self._roof.iterdir() if path.name.startswith(_RETIRED)]

    def tidy(self, known: Iterable[str]) -> None:
        for volume_id in self.retired():
            self.discard(volume_id)
        for path in self._roof.iterdir():
            if self._id.fullmatch(path.name) and path.name not in set(known):
                with contextlib.suppress(OSError):  # it holds data: the journal is not the one of this folder
                    path.rmdir()

    def make(self, volume_id: str) -> None:
        folder = self._roof / volume_id
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise NotOurs(f"{folder} is there already and holds data")
        folder.chmod(0o777)  # pods run as any user; a product would leave that to fsGroup

    def unmake(self, volume_id: str) -> None:
        (self._roof / volume_id).rmdir()

    def retire(self, volume_id: str) -> None:
        try:
            (self._roof / volume_id).rename(self._roof / f"{_RETIRED}{volume_id}")
        except FileNotFoundError:
            pass  # retired before, or lost: either way there is nothing left to keep

    def discard(self, volume_id: str) -> None:
        if self._id.fullmatch(volume_id):
            shutil.rmtree(self._roof / f"{_RETIRED}{volume_id}", ignore_errors=True)

    def publish(self, target: Path, volume_id: str, *, block: bool, readonly: bool) -> None:
        place = Path(os.path.realpath(target))
        there = self._mounted(place, volume_id)
        if there is None:
            place.mkdir(exist_ok=True)
            if any(place.iterdir()):
                raise NotOurs(f"{place} is there already and is not empty: a mount would hide what is in it")
            _mount(self._roof / volume_id, place, _BIND)
        elif there.readonly and not readonly:
            raise NotOurs(f"{target} shows volume {volume_id} read-only, and it is wanted writable")
        if readonly and not (there and there.readonly):  # also if the driver was killed between the two steps of a mount
            _mount(None, place, _REMOUNT | _BIND | _RDONLY)

    def unpublish(self, target: Path, volume_id: str) -> None:
        place = Path(os.path.realpath(target))
        while self._mounted(place, volume_id) is not None:
            _unmount(place)
        try:
            place.rmdir()  # never more: what is in it when nothing is mounted there is not this driver's
        except FileNotFoundError:
            pass

    def lasting(self, target: Path, volume_id: str) -> bool:
        there = mounted_at(table(), Path(os.path.realpath(target)))
        return there is not None and there.origin == self._origin(volume_id)

    def in_use(self, volume_id: str, recorded: Sequence[str]) -> list[str]:
        folder, (device, path) = self._roof / volume_id, self._origin(volume_id)

        def shows(mount: Mount) -> bool:
            """Also a part of the volume that the kubelet mounts for a subPath, and anything mounted inside the folder."""
            part = mount.origin[0] == device and Path(mount.origin[1]).is_relative_to(path)
            return part or mount.place.is_relative_to(folder)

        return [str(mount.place) for mount in table() if shows(mount)]

    def room(self, promised: Mapping[str, int]) -> int:
        disk = os.statvfs(self._roof)
        unwritten = sum(max(0, size - _bytes_in(self._roof / volume_id)) for volume_id, size in promised.items())
        return disk.f_bavail * disk.f_frsize - unwritten

    def is_shared(self, volume_id: str) -> bool:
        return re.fullmatch(r"shared-[a-z0-9-]+", volume_id) is not None and (self._roof / volume_id).is_dir()

    def _mounted(self, place: Path, volume_id: str) -> "Mount | None":
        """This volume's mount there, None if nothing is mounted there; anything else is not ours."""
        there = mounted_at(table(), place)
        if there is not None and there.origin != self._origin(volume_id):
            raise NotOurs(f"{place} does not show volume {volume_id}: {there.origin} is mounted there")
        return there

    def _origin(self, volume_id: str) -> tuple[str, str]:
        """Device and path. Two folders with the same origin are the same one."""
        folder = self._roof / volume_id
        below = max((mount for mount in table() if folder.is_relative_to(mount.place)), key=lambda mount: len(mount.place.parts))
        device, root = below.origin
        return device, str(Path(root) / folder.relative_to(below.place))


def _bytes_in(folder: Path) -> int:
    """Pods write meanwhile: what is gone before it is counted does not count."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * _BLOCK_SIZE
        except FileNotFoundError:
            continue
    return total


class Mount(NamedTuple):
    """One line of /proc/self/mountinfo."""

    place: Path
    origin: tuple[str, str]
    readonly: bool


def table() -> list[Mount]:
    return [_parsed(line) for line in os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()]


def mounted_at(mounts: Sequence[Mount], place: Path) -> Mount | None:
    """The uppermost at exactly this place: the table lists those below it before."""
    return next((mount for mount in reversed(mounts) if mount.place == place), None)


def _parsed(line: str) -> Mount:
    _, _, device, root, place, options = line.split()[:6]
    # The kernel marks a folder that was removed under its mount. It is still the folder that had this name.
    return Mount(Path(_unescaped(place)), (device, _unescaped(root).removesuffix("//deleted")), "ro" in options.split(","))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _mount(folder: Path | None, place: Path, flags: int) -> None:
    source = None if folder is None else os.fsencode(folder)
    _check(ctypes.CDLL(None, use_errno=True).mount(source, os.fsencode(place), None, ctypes.c_ulong(flags), None), f"mounting at {place}")


def _unmount(place: Path) -> None:
    """A mount in use is an error; it is never detached lazily."""
    _check(ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(place), _UNMOUNT_NOFOLLOW), f"unmounting {place}")


def _check(done: int, what: str) -> None:
    if done != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())} (a driver that mounts runs privileged)")
