"""Packages of the Debian (or Ubuntu) this machine is, unpacked into a folder: nothing is installed, and no maintainer script runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from images.cache import say
from images.failure import Failure

NEEDED = ("apt-get", "dpkg-deb")


def fetch(wanted: Sequence[str], folder: Path, *, lists: Path, whole: bool) -> list[Path]:
    """Download packages with all that they depend on; unless `whole`, only what this machine has not installed."""
    missing = [tool for tool in NEEDED if not shutil.which(tool)]
    if missing:
        tools = " and ".join(missing)
        raise Failure(f"{tools} not found: images are made of Debian packages; elsewhere use a container engine on the Dockerfile")
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    nothing = folder / "nothing-installed"
    nothing.touch()
    options = [*_options(lists, folder), "-o", f"Dir::Cache::archives={archives}"]
    if whole:
        options += ["-o", f"Dir::State::status={nothing}"]
    command = ["apt-get", "install", "--yes", "--quiet", "--download-only", "--no-install-recommends", *options, *wanted]
    # The second try is with new lists: a mirror drops a version as soon as there is a newer one.
    if not _has_lists(lists) or _run(command).returncode:
        _update(lists, folder)
        done = _run(command)
        if done.returncode:
            raise Failure(f"cannot fetch {', '.join(wanted)}:\n{done.stdout[-2000:]}")
    return sorted(archives.glob("*.deb"))


def unpack(packages: Sequence[Path], root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for package in packages:
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)


def control(package: Path) -> str:
    """What the package says of itself: the paragraph that a package manager would keep."""
    return subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout


def field(paragraph: str, name: str) -> str:
    """The first line of a field; empty if there is none."""
    return next((line.removeprefix(f"{name}: ") for line in paragraph.splitlines() if line.startswith(f"{name}: ")), "")


def _options(lists: Path, folder: Path) -> list[str]:
    # Lists of our own: the machine's may be missing or old, and to renew them is its owner's business.
    settings = {"Dir::State::lists": lists, "Dir::Cache": folder, "Debug::NoLocking": 1, "APT::Sandbox::User": "root"}
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _has_lists(lists: Path) -> bool:
    return any(lists.glob("*_Packages*"))


def _update(lists: Path, folder: Path) -> None:
    say("fetching the lists of Debian packages")
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    # A source that does not answer is no reason to stop: what is missing then is told by what asks for it.
    _run(["apt-get", "update", "--quiet", *_options(lists, folder)])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
