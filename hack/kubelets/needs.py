"""Checks what this machine must have before anything is touched. Everything that is missing is named at once, with what to do about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hack.kubelets import cgroups, programs
from hack.kubelets.errors import MachineLacks
from hack.kubelets.namespaces import ALL, ENVIRONMENT
from hack.lib import cache

# By the package that has them on Debian.
TOOLS = {
    "util-linux": ("unshare", "nsenter", "setsid", "losetup", "pivot_root"),
    "mount": ("mount", "umount"),
    "iproute2": ("ip",),
    "openssl": ("openssl",),
}
# The second version has no trees for the others.
CONTROLLERS_V1 = ("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids")
GIGABYTE = 10**9
SPACE = 4 * GIGABYTE
SPACE_TO_BUILD = 12 * GIGABYTE  # Kubernetes' sources and Go's own cache
MEMORY = 2 * GIGABYTE
# In namespaces of their own: neither bridge nor mount is ever seen outside.
TRIAL = """
set -e
ip link add name trial type bridge
ip link add name one type veth peer name other
mount -t tmpfs tmpfs /proc
mount -t sysfs sysfs /proc
"""
# $0 is a scratch folder.
OVERLAY = """
set -e
mkdir "$0/lower" "$0/upper" "$0/work" "$0/all"
mount -t overlay overlay -o "lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work" "$0/all"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found."""

    system: str
    is_root: bool
    missing_tools: tuple[str, ...]  # "tool (package)"
    namespaces: str  # what was said when they were tried; nothing if they work
    controllers: frozenset[str]
    cgroup_version: int
    cgroups_writable: bool
    has_containers: bool  # ready, unpacked in the cache, or to be had from packages
    free_space: int
    needed_space: int
    memory: int


def check(folder: Path) -> None:
    if lacks := list(lacks_of(look(folder))):
        raise MachineLacks(lacks)


def lacks_of(machine: Machine) -> Iterator[str]:
    if machine.system != "linux":
        yield f"this is {machine.system}, and namespaces are Linux': use a Linux machine"
        return
    if not machine.is_root:
        yield "it is not run as root: run it with sudo, or as root in a virtual machine"
    for tool in machine.missing_tools:
        yield f"{tool} is not in PATH: install that package"
    if machine.is_root and machine.namespaces:
        yield f"namespaces with a network and mounts cannot be made ({machine.namespaces}): a container must be privileged for it"
    if missing := sorted(_controllers_needed(machine.cgroup_version) - machine.controllers):
        yield f"cgroup controllers are not there: {', '.join(missing)}: boot with them, or mount them below /sys/fs/cgroup"
    if machine.is_root and not machine.cgroups_writable:
        yield "/sys/fs/cgroup is read-only: mount it anew for writing, or make the container privileged"
    if not machine.has_containers:
        yield "containerd, runc and the network plugins are neither installed nor to be unpacked with apt-get and dpkg: install them"
    if machine.free_space < machine.needed_space:
        needed, free = (f"{size / GIGABYTE:.0f} GB" for size in (machine.needed_space, machine.free_space))
        yield f"{needed} of disk are needed, {free} are free: free some, or name another folder in --dir and CSI_NODE_SIDECAR_CACHE"
    if machine.memory < MEMORY:
        yield f"{MEMORY / GIGABYTE:.0f} GB of free memory are needed, there are {machine.memory / GIGABYTE:.1f}: end other programs"


def _controllers_needed(version: int) -> frozenset[str]:
    return frozenset(CONTROLLERS_V1 if version == 1 else cgroups.HANDED_DOWN)


def look(folder: Path) -> Machine:
    home = _existing(folder)
    return Machine(
        system=sys.platform,
        is_root=os.geteuid() == 0,
        missing_tools=tuple(f"{tool} ({package})" for package, tools in TOOLS.items() for tool in tools if not _has(tool)),
        namespaces=_tried(TRIAL),
        controllers=cgroups.controllers(),
        cgroup_version=cgroups.version(),
        cgroups_writable=all(os.access(tree, os.W_OK) for tree in cgroups.trees()),  # to root it says no only of a read-only mount
        has_containers=programs.installed() is not None or programs.is_unpacked() or (_has("apt-get") and _has("dpkg")),
        free_space=min(shutil.disk_usage(path).free for path in (home, _existing(cache.root()))),
        needed_space=SPACE if programs.is_built() else SPACE_TO_BUILD,
        memory=_available_memory(),
    )


def snapshotter(folder: Path) -> str:
    """overlayfs where the kernel lets this folder be a layer (on another overlayfs it does not), else copies, which take time."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        return "native" if _tried(OVERLAY, scratch) else "overlayfs"


def _has(tool: str) -> bool:
    return shutil.which(tool, path=ENVIRONMENT["PATH"]) is not None


def _tried(script: str, *arguments: str) -> str:
    """Runs the script in namespaces of its own. Returns what went wrong; empty if nothing did."""
    command = ["unshare", *ALL, "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", script, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=ENVIRONMENT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return " ".join((done.stderr or f"exit {done.returncode}").split()) if done.returncode else ""


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


def _available_memory() -> int:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return next((int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"), 0)
