"""The programs nodes and control plane run, gathered in one folder; whatever is not there yet is built or fetched into the cache, once.

Kubernetes' come from hack/control-plane; containerd, runc and the network plugins from packages of Debian or Ubuntu, which are unpacked and
not installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

from hack import images
from hack.kubelets.errors import ClusterError
from hack.kubelets.servers import PROGRAMS as SERVERS
from hack.kubelets.settings import PAUSE_IMAGE
from hack.lib import cache, debian
from hack.lib.cache import only_one_at_a_time
from hack.lib.command import say
from hack.lib.control_plane import binaries

RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
NETWORK = ("bridge", "host-local", "loopback")
PACKAGES = ("containerd", "runc", "containernetworking-plugins")


def gather(folder: Path) -> None:
    """Links or copies all programs into a folder of the cluster's own, so that a running cluster does not notice a new build."""
    built = binaries("core", "kubelet", "pause")
    wanted = [built / name for name in (*SERVERS, "kubelet", "pause")]
    wanted += unpacked()
    folder.mkdir()
    for program in wanted:
        _link_or_copy(program.resolve(), folder / program.name)


def pause_archive(programs: Path) -> Path:
    """The image of every pod's sandbox container."""
    return images.single(programs / "pause", name=PAUSE_IMAGE)


def unpacked() -> list[Path]:
    home = _unpacked_home()
    if not home.exists():
        with only_one_at_a_time(home.parent):
            if not home.exists():
                _unpack(home)
    found = {
        path.name: path for path in home.rglob("*") if path.name in (*RUNTIME, *NETWORK) and os.access(path, os.X_OK) and path.is_file()
    }
    if missing := [name for name in (*RUNTIME, *NETWORK) if name not in found]:
        raise ClusterError(f"the packages {', '.join(PACKAGES)} of this distribution lack {', '.join(missing)}")
    return list(found.values())


def are_here() -> bool:
    return _unpacked_home().exists()


def _unpacked_home() -> Path:
    release = platform.freedesktop_os_release()
    return cache.root() / f"containers-{release.get('ID')}-{release.get('VERSION_ID')}-{platform.machine()}"


def _unpack(home: Path) -> None:
    say(f"fetching {', '.join(PACKAGES)}")
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as scratch:
        debian.unpacked(PACKAGES, Path(scratch, "root")).rename(home)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
