"""What a cluster needs: of this machine, which is looked at before anything is touched, and programs, which are gathered in one folder.

What is missing is named at once, with what to do about it. Kubernetes' programs come from hack/control-plane; containerd, runc and the
network plugins from packages of Debian or Ubuntu, which are unpacked, not installed. All of them are kept in the cache.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hack.kubelets import remains
from hack.kubelets.namespaces import ALL, ENVIRONMENT
from hack.kubelets.servers import PROGRAMS as SERVERS
from hack.lib import cache, debian
from hack.lib.command import Failure, say
from hack.lib.control_plane import binaries

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
RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
NETWORK = ("bridge", "host-local", "loopback")
PACKAGES = ("containerd", "runc", "containernetworking-plugins")


class MachineLacks(Failure):
    """This machine cannot hold such a cluster."""

    def __init__(self, lacks: list[str]) -> None:
        super().__init__("\n".join(["this machine cannot run a cluster of kubelets:", *(f"  - {lack}" for lack in lacks)]))


def check() -> None:
    if lacks := list(_lacks()):
        raise MachineLacks(lacks)


def _lacks() -> Iterator[str]:
    if os.geteuid() != 0:
        yield "it is not run as root: run it with sudo, or as root in a virtual machine"
        return  # without root nothing else can be tried
    if missing := [tool for tool in TOOLS if not _has(tool)]:
        yield f"{', '.join(missing)} not in PATH: install util-linux, mount, iproute2 and openssl"
    elif said := _tried(TRIAL):
        yield f"namespaces with a network and mounts cannot be made ({said}): a container must be privileged for it"
    if not all(os.access(tree, os.W_OK) for tree in remains.trees()):  # to root it says no only of a read-only mount
        yield f"{remains.CGROUPS} is read-only: mount it anew for writing, or make the container privileged"
    if not (_unpacked_home().exists() or (_has("apt-get") and _has("dpkg"))):
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


# --- programs ---------------------------------------------------------------------------------------------------------


def gather(folder: Path) -> None:
    """Links all programs into a folder of the cluster's own, so that a running cluster does not notice a new build."""
    built = binaries("core", "kubelet", "pause")
    wanted = [built / name for name in (*SERVERS, "kubelet", "pause")]
    wanted += _unpacked()
    folder.mkdir()
    for program in wanted:
        os.link(program.resolve(), folder / program.name)


def _unpacked() -> list[Path]:
    wanted, home = (*RUNTIME, *NETWORK), cache.kept(_unpacked_home(), _unpack)
    found = {path.name: path for path in home.rglob("*") if path.name in wanted and os.access(path, os.X_OK) and path.is_file()}
    if missing := [name for name in wanted if name not in found]:
        raise Failure(f"the packages {', '.join(PACKAGES)} of this distribution lack {', '.join(missing)}")
    return list(found.values())


def _unpacked_home() -> Path:
    release = platform.freedesktop_os_release()
    return cache.root() / f"containers-{release.get('ID')}-{release.get('VERSION_ID')}-{platform.machine()}"


def _unpack(folder: Path) -> Path:
    say(f"fetching {', '.join(PACKAGES)}")
    return debian.unpacked(PACKAGES, folder / "root")
