"""What a cluster would leave behind on the machine: cgroups and its folder. They are removed here, with the processes.

Mounts, networks and addresses need no removal: they live in namespaces, and end with the processes.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from hack.kubelets.namespaces import all_processes, carriers
from hack.kubelets.place import Place
from hack.lib.patience import until

CGROUPS = Path("/sys/fs/cgroup")
# A kubelet needs these; in version 2 each has to be enabled at every level.
HANDED_DOWN = ("cpu", "cpuset", "memory", "pids")


def clear(place: Place) -> None:
    """Removes everything of this cluster, in whatever state it was left. Does nothing where nothing is left."""
    end(*{argument for _, arguments in all_processes() for argument in arguments if place.owns(argument)})
    remove_cgroups(*{group.name for tree in trees() for group in tree.iterdir() if place.owns(group.name)})
    if place.folder.exists():
        shutil.rmtree(place.folder)


def end(*idents: str) -> None:
    """Ends the processes of namespaces, the first ones last: when they are gone, all are."""

    def ended() -> bool:
        alive = carriers(idents)
        for pid in alive:  # repeated, because a process may have been about to start another
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not alive

    until(ended, f"the end of {', '.join(idents)}")


def _is_unified() -> bool:
    """Version 2, in which all controllers share one tree: only that has such a file at the top."""
    return (CGROUPS / "cgroup.controllers").exists()


def trees() -> list[Path]:
    """In version 1 there is one for each controller, some under several names."""
    return [CGROUPS] if _is_unified() else [each for each in CGROUPS.iterdir() if each.is_dir() and not each.is_symlink()]


def make_cgroups(name: str) -> None:
    """A kubelet wants the root of its cgroups to be there."""
    for tree in trees():
        (tree / name).mkdir(exist_ok=True)
    if _is_unified():
        for folder in (CGROUPS, CGROUPS / name):
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in HANDED_DOWN))


def remove_cgroups(*names: str) -> None:
    """A killed process stays in its cgroup for a moment, so this is repeated."""
    doomed = [tree / name for tree in trees() for name in names]
    until(lambda: all(_is_removed(cgroup) for cgroup in doomed), f"the cgroups {', '.join(names)} to be empty")


def _is_removed(cgroup: Path) -> bool:
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return True
