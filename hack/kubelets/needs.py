"""Checks what this machine must have before anything is touched. What is missing is named at once, with what to do about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hack.kubelets import programs, remains
from hack.kubelets.errors import MachineLacks
from hack.kubelets.namespaces import ALL, ENVIRONMENT

TOOLS = ("unshare", "nsenter", "setsid", "losetup", "pivot_root", "mount", "umount", "ip", "openssl")
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


def check() -> None:
    if lacks := list(_lacks()):
        raise MachineLacks(lacks)


def _lacks() -> Iterator[str]:
    if sys.platform != "linux":
        yield f"this is {sys.platform}, and namespaces are Linux': use kind (hack/kind), or a Linux machine"
        return
    if os.geteuid() != 0:
        yield "it is not run as root: run it with sudo, or as root in a virtual machine"
        return  # without root nothing else can be tried
    if missing := [tool for tool in TOOLS if not _has(tool)]:
        yield f"{', '.join(missing)} not in PATH: install util-linux, mount, iproute2 and openssl"
    elif said := _tried(TRIAL):
        yield f"namespaces with a network and mounts cannot be made ({said}): a container must be privileged for it"
    if not all(os.access(tree, os.W_OK) for tree in remains.trees()):  # to root it says no only of a read-only mount
        yield f"{remains.CGROUPS} is read-only: mount it anew for writing, or make the container privileged"
    if not (programs.are_here() or (_has("apt-get") and _has("dpkg"))):
        yield "containerd comes from packages of Debian or Ubuntu, and there is no apt-get or dpkg: use kind (hack/kind), or such a machine"


def snapshotter(folder: Path) -> str:
    """overlayfs where the kernel lets this folder be a layer (on another overlayfs it does not), else copies, which take time."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        return "native" if _tried(OVERLAY, scratch) else "overlayfs"


def _has(tool: str) -> bool:
    return shutil.which(tool, path=ENVIRONMENT["PATH"]) is not None


def _tried(script: str, *arguments: str) -> str:
    """Runs the script in namespaces of its own. Returns what went wrong; empty if nothing did."""
    command = ["unshare", *ALL, "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    return " ".join((done.stderr or f"exit {done.returncode}").split()) if done.returncode else ""
