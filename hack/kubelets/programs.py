"""The programs nodes and control plane run, gathered in one folder; whatever is not there yet is built or fetched into the cache, once.

Kubernetes' come from hack/control-plane. containerd, runc and the network plugins come from PATH where all of them are installed, and
otherwise from this distribution's packages, which are unpacked and not installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from images import cache, oci

from kubelets.errors import ClusterError
from kubelets.place import REPOSITORY
from kubelets.progress import say, timed
from kubelets.servers import PROGRAMS as SERVERS
from kubelets.settings import PAUSE_IMAGE

RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
NETWORK = ("bridge", "host-local", "loopback")
PACKAGES = ("containerd", "runc", "containernetworking-plugins")
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


def gather(folder: Path) -> None:
    """Into a folder of the cluster's own: a cluster that runs must not notice when something is built anew."""
    built = build_kubernetes()
    wanted = [built / name for name in (*SERVERS, "kubelet", "pause")]
    wanted += installed() or unpacked()
    folder.mkdir()
    for program in wanted:
        _link_or_copy(program.resolve(), folder / program.name)


def build_kubernetes() -> Path:
    command = [sys.executable, str(REPOSITORY / "hack" / "control-plane"), "core", "kubelet", "pause"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # its progress is ours
    if done.returncode:
        raise ClusterError(f"hack/control-plane failed (exit {done.returncode}); what it said is above")
    return Path(done.stdout.strip())


def pause_archive(programs: Path, folder: Path) -> Path:
    """The image every pod's first container is made of."""
    root, archive = folder / "pause", folder / "pause.tar"
    root.mkdir()
    _link_or_copy(programs / "pause", root / "pause")
    oci.write_archive(archive, name=PAUSE_IMAGE, root=root, entrypoint=["/pause"])
    return archive


def installed() -> list[Path] | None:
    """This machine's own, if all are there."""
    runtime = [shutil.which(name) for name in RUNTIME]
    network = [next((folder / name for folder in PLUGIN_FOLDERS if (folder / name).exists()), None) for name in NETWORK]
    found = [*(Path(path) for path in runtime if path), *(path for path in network if path)]
    return found if len(found) == len(RUNTIME) + len(NETWORK) else None


def unpacked() -> list[Path]:
    home = _unpacked_home()
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with only_one_at_a_time(home.with_name(f"{home.name}.lock")):
            if not home.exists():
                _unpack(home)
    found = {
        path.name: path for path in home.rglob("*") if path.name in (*RUNTIME, *NETWORK) and os.access(path, os.X_OK) and path.is_file()
    }
    if missing := [name for name in (*RUNTIME, *NETWORK) if name not in found]:
        raise ClusterError(
            f"the packages {', '.join(PACKAGES)} of this distribution lack {', '.join(missing)}: install these, and see PATH"
        )
    return list(found.values())


def is_unpacked() -> bool:
    return _unpacked_home().exists()


def is_built() -> bool:
    """Perhaps of other pins, but then Go has most of what it takes."""
    return any(cache.root().glob("control-plane-*/kubelet"))


def _unpacked_home() -> Path:
    return cache.root() / f"containers-{_distribution()}"


def _distribution() -> str:
    release = platform.freedesktop_os_release()
    facts = (PACKAGES, release.get("ID"), release.get("VERSION_ID"), platform.machine())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _unpack(home: Path) -> None:
    with timed(f"fetching {', '.join(PACKAGES)}"), tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as scratch:
        fetched, root = Path(scratch, "packages"), Path(scratch, "root")
        fetched.mkdir()
        root.mkdir()
        _fetch(fetched, Path(scratch, "apt"))
        for package in sorted(fetched.glob("*.deb")):
            _run(["dpkg", "--extract", str(package), str(root)])
        (root / "packages").write_text("".join(f"{package.name}\n" for package in sorted(fetched.glob("*.deb"))))
        root.rename(home)


def _fetch(folder: Path, state: Path) -> None:
    """With the machine's package lists, or with lists of our own if it has none or old ones."""
    # As another user apt could not write into our folder; its index of packages it would write into the machine's.
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
    try:
        _run([*apt, "download", *PACKAGES], cwd=folder)
        return
    except ClusterError as error:
        say(f"{error}; trying again with fresh package lists")
    (state / "lists" / "partial").mkdir(parents=True)
    own = ["-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={state}"]
    _run([*apt, *own, "update"])
    _run([*apt, *own, "download", *PACKAGES], cwd=folder)


def _run(command: list[str], *, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise ClusterError(f"{' '.join(command)} failed (exit {done.returncode}): {' '.join(said)}")


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


@contextmanager
def only_one_at_a_time(lock: Path) -> Iterator[None]:
    """The lock file stays: to remove it would let two hold a lock of that name."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
