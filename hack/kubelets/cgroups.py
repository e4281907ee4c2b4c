"""Makes, finds and removes the cgroups of a node's containers, in the version that this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hack.kubelets.errors import ClusterError
from hack.kubelets.place import ident_in
from hack.kubelets.waiting import until

TOP = Path("/sys/fs/cgroup")
# Only version 2, in which all controllers share one tree, has such a file at the top.
UNIFIED = TOP / "cgroup.controllers"
# A kubelet needs these, and each has to be enabled at every level.
HANDED_DOWN = ("cpu", "cpuset", "memory", "pids")


def version() -> int:
    return 2 if UNIFIED.exists() else 1


def controllers() -> frozenset[str]:
    """The controllers that can limit containers; on a hybrid machine version 1 has them."""
    if version() == 2:
        return frozenset(UNIFIED.read_text().split())
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return frozenset(option for mount in mounts if mount[2] == "cgroup" for option in mount[3].split(","))


def trees() -> list[Path]:
    """The trees: one in version 2; in version 1 one for each controller, some under several names."""
    if version() == 2:
        return [TOP]
    return [folder for folder in TOP.iterdir() if folder.is_dir() and not folder.is_symlink()] if TOP.exists() else []


def make(name: str) -> None:
    """A kubelet wants the root of its cgroups to be there."""
    try:
        for tree in trees():
            (tree / name).mkdir(exist_ok=True)
        if version() == 2:
            for folder in (TOP, TOP / name):
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in HANDED_DOWN))
    except OSError as error:
        raise ClusterError(f"cgroups cannot be made: {error}; /sys/fs/cgroup must be the root of all cgroups, and writable") from error


def ours() -> Iterator[Path]:
    for tree in trees():
        yield from (entry for entry in tree.iterdir() if entry.is_dir() and ident_in(entry.name))


def remove(ident: str) -> None:
    """Removes the cgroups of a cluster or a node. A killed process stays in its cgroup for a moment, so this is repeated."""
    doomed = [cgroup for cgroup in ours() if cgroup.name == ident or cgroup.name.startswith(f"{ident}.")]
    until(lambda: all(_is_removed(cgroup) for cgroup in doomed), f"the cgroups of {ident} to be empty", seconds=15)


def _is_removed(cgroup: Path) -> bool:
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return True
