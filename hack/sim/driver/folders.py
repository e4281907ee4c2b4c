"""Real volumes: each is a folder below one root, named by the volume's id, and bind-mounted where a pod needs it.

They serve tests and demos: a volume's size is a promise, not a quota, and its data is as safe as that one folder.

Folders and journal agree at every moment at which a driver may be killed. A folder that the journal does not know was told to nobody
and is empty, so `tidy` removes it. One renaming to `.deleted-<id>` decides a deletion; whoever finds such a folder completes it.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.sim.driver import mount_table
from hack.sim.driver.folders import NotOurs
from hack.sim.driver.mounts import Mounts

_RETIRED: Final = ".deleted-"
# Pods run as any user. A product would leave the permissions to fsGroup.
_FOR_ANYBODY: Final = 0o777
_BLOCK_SIZE: Final = 512


class Folders:
    """The backing with real folders. It needs the right to mount."""

    def __init__(self, roof: Path, *, node_id: str, mounts: Mounts, fsync: bool = True) -> None:
        if "/" in node_id:
            raise ValueError(f"folders are named after the node id, and {node_id} has a slash")
        roof.mkdir(parents=True, exist_ok=True)
        self._roof = Path(os.path.realpath(roof))
        self._id = re.compile(re.escape(node_id) + r"-vol-(\d+)")
        self._mounts = mounts
        self._fsync = fsync

    def refuses(self, *, block: bool, mount_flags: Sequence[str]) -> str:
        if block:
            return "a volume here is a folder: raw block volumes (volumeMode Block) are not supported"
        return f"a volume here is a folder: mount options ({', '.join(mount_flags)}) are not supported" if mount_flags else ""

    # ---- coming and going ----

    def retired(self) -> list[str]:
        return [path.name.removeprefix(_RETIRED) for path in self._roof.iterdir() if path.name.startswith(_RETIRED)]

    def tidy(self, known: Iterable[str]) -> list[str]:
        for volume_id in self.retired():
            self.discard(volume_id)
        expected = set(known)
        found = {path.name for path in self._roof.iterdir() if self._id.fullmatch(path.name)}
        unknown = [name for name in sorted(found - expected) if not _removed_if_empty(self._roof / name)]
        return [
            *(f"{self._roof / name} holds data and is no volume of the journal; it is left alone" for name in unknown),
            *(f"volume {name} has lost its folder {self._roof / name}" for name in sorted(expected - found)),
        ]

    def highest_serial(self) -> int:
        numbers = (self._id.fullmatch(path.name) for path in self._roof.iterdir())
        return max((int(number[1]) for number in numbers if number), default=0)

    def make(self, volume_id: str) -> None:
        folder = self._roof / volume_id
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise NotOurs(f"{folder} is there already and holds data")
        folder.chmod(_FOR_ANYBODY)  # the umask has had its say at mkdir
        self._sync()

    def unmake(self, volume_id: str) -> None:
        (self._roof / volume_id).rmdir()
        self._sync()

    def retire(self, volume_id: str) -> None:
        try:
            (self._roof / volume_id).rename(self._retired(volume_id))
        except FileNotFoundError:
            return  # retired before, or lost: either way there is nothing left to keep
        self._sync()

    def discard(self, volume_id: str) -> None:
        if not self._id.fullmatch(volume_id):
            return
        try:
            shutil.rmtree(self._retired(volume_id))
        except FileNotFoundError:
            pass

    # ---- in pods ----

    def publish(self, target: Path, volume_id: str, *, block: bool, readonly: bool) -> None:
        folder = self._roof / volume_id
        if not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} of volume {volume_id} is lost")
        place = Path(os.path.realpath(target))
        there = self._mounted(place, volume_id)
        if there is None:
            self._mount(folder, place, readonly=readonly)
        elif there.readonly and not readonly:
            raise NotOurs(f"{target} shows volume {volume_id} read-only, and it is wanted writable")
        elif readonly and not there.readonly:
            self._mounts.make_readonly(there)  # the driver was killed between the two steps of a mount

    def unpublish(self, target: Path, volume_id: str) -> None:
        place = Path(os.path.realpath(target))
        while self._mounted(place, volume_id) is not None:
            self._mounts.unmount(place)
        try:
            place.rmdir()  # never more: what is in it when nothing is mounted there is not this driver's
        except FileNotFoundError:
            pass

    def lasting(self, target: Path, volume_id: str) -> bool:
        table = self._mounts.table()
        there = mount_table.mounted_at(table, Path(os.path.realpath(target)))
        return there is not None and there.origin == self._origin(table, volume_id)

    def in_use(self, volume_id: str, recorded: Sequence[str]) -> list[str]:
        table, folder = self._mounts.table(), self._roof / volume_id
        own = self._origin(table, volume_id)
        # Also a part of the volume that the kubelet mounts for a subPath, and anything mounted inside the folder.
        return [str(mount.place) for mount in table if own.holds(mount.origin) or mount.place.is_relative_to(folder)]

    def used(self, volume_id: str, target: Path) -> int:
        return _bytes_in(self._roof / volume_id)

    def room(self, promised: Mapping[str, int]) -> int:
        disk = os.statvfs(self._roof)
        unwritten = sum(max(0, size - _bytes_in(self._roof / volume_id)) for volume_id, size in promised.items())
        return disk.f_bavail * disk.f_frsize - unwritten

    def _mount(self, folder: Path, place: Path, *, readonly: bool) -> None:
        place.mkdir(exist_ok=True)
        if any(place.iterdir()):
            raise NotOurs(f"{place} is there already and is not empty: a mount would hide what is in it")
        self._mounts.bind(folder, place)
        if readonly:
            try:
                self._mounts.make_readonly(self._must_be_mounted(place, folder.name))
            except OSError:
                self._mounts.unmount(place)
                raise

    def _mounted(self, place: Path, volume_id: str) -> mount_table.Mount | None:
        """This volume's mount there, None if nothing is mounted there; anything else is not ours."""
        table = self._mounts.table()
        there = mount_table.mounted_at(table, place)
        if there is not None and there.origin != self._origin(table, volume_id):
            raise NotOurs(f"{place} does not show volume {volume_id}: {there.root} of device {there.device} is mounted there")
        return there

    def _must_be_mounted(self, place: Path, volume_id: str) -> mount_table.Mount:
        there = self._mounted(place, volume_id)
        if there is None:
            raise OSError(f"{place} shows nothing right after volume {volume_id} was mounted there")
        return there

    def _origin(self, table: mount_table.Table, volume_id: str) -> mount_table.Origin:
        return mount_table.origin(table, self._roof / volume_id)

    def _retired(self, volume_id: str) -> Path:
        return self._roof / f"{_RETIRED}{volume_id}"

    def _sync(self) -> None:
        """A folder's coming and going must be on the disk before the journal says so."""
        if self._fsync:
            descriptor = os.open(self._roof, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _removed_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _bytes_in(folder: Path) -> int:
    """Pods write meanwhile: what is gone before it is counted does not count."""
    total, folders = 0, [folder]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_SIZE
            except FileNotFoundError:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
    return total
