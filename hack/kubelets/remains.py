"""Removes what a cluster would leave behind on the machine: processes, cgroups, loop devices, folders.

Mounts, networks and addresses need no removal: they live in namespaces, and end with the processes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from hack.kubelets import cgroups
from hack.kubelets.errors import ClusterError
from hack.kubelets.namespaces import all_processes, kill_all, run
from hack.kubelets.place import Place, ident_in
from hack.kubelets.waiting import until


def clear(place: Place) -> None:
    """Removes everything of this cluster, in whatever state it was left. Does nothing where nothing is left."""
    end_processes(idents(place.ident))
    cgroups.remove(place.ident)
    if place.folder.exists():
        detach_loops(place.folder)
        remove_folder(place)


def sweep() -> None:
    """Removes cgroups of clusters whose processes, and those that started them, have ended: nobody else would."""
    alive = {ident for _, arguments in all_processes() for argument in arguments if (ident := ident_in(argument))}
    for cgroup in cgroups.ours():
        ident = ident_in(cgroup.name)
        if ident and ident not in alive:
            cgroups.remove(ident)


def idents(ident: str) -> list[str]:
    """The idents of a cluster and its nodes, as far as there are processes."""
    found = {argument for _, arguments in all_processes() for argument in arguments}
    return sorted(argument for argument in found if ident_in(argument) == ident)


def end_processes(idents: Sequence[str]) -> None:
    """Ends the processes of a namespace, the first one last: when it is gone, all are."""

    def alive() -> list[int]:
        return [pid for pid, arguments in all_processes() if any(ident in arguments for ident in idents)]

    def ended() -> bool:
        kill_all(alive())  # repeated, because a process may have been about to start another
        return not alive()

    until(ended, f"the end of {', '.join(idents)}", seconds=30)


def detach_loops(folder: Path) -> None:
    """Detaches loop devices, which belong to the machine and outlive their users. They are found by their backing file."""
    loops = _loops()
    if not loops:
        return
    ours = {(info.st_dev, info.st_ino) for info in map(os.lstat, _files_below(folder))}
    for device, file in loops.items():
        if file in ours:
            run(["losetup", "--detach", device])


def _loops() -> dict[str, tuple[int, int]]:
    """Each device's file, as the numbers of its file system and of itself."""
    listed = run(["losetup", "--list", "--json", "--output", "NAME,BACK-MAJ:MIN,BACK-INO"])
    rows = json.loads(listed)["loopdevices"] if listed else []
    return {row["name"]: (os.makedev(*map(int, row["back-maj:min"].split(":"))), int(row["back-ino"])) for row in rows}


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def remove_folder(place: Place) -> None:
    """Removes only what a cluster has made. A folder of somebody else, or something mounted in ours, is not touched."""
    mounted = [point for point in mount_points() if Path(point).is_relative_to(place.folder)]
    if mounted:
        raise ClusterError(f"{place.folder} stays, as something is mounted there: umount {' '.join(mounted)}")
    content = [entry for entry in place.folder.iterdir() if entry != place.mark]
    if content and not place.mark.exists():
        raise ClusterError(f"{place.folder} is not a cluster's: name another one in --dir, or an empty one")
    for entry in content:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    place.mark.unlink(missing_ok=True)  # last, for whoever goes on with this if we are killed now
    place.folder.rmdir()


def mount_points() -> list[str]:
    table = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1].encode().decode("unicode_escape") for line in table]
