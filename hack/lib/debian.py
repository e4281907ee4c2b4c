"""Packages of the Debian (or Ubuntu) this machine is, unpacked into a folder: nothing is installed, and no maintainer script runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from hack.lib import cache
from hack.lib.failure import Failure
from hack.lib.progress import say

NEEDED = ("apt-get", "dpkg-deb")
SECONDS = 1200


class With(Enum):
    """What is fetched besides the packages that were named."""

    NOTHING = "nothing"
    WHAT_IS_MISSING = "what they depend on and this machine has not installed"
    EVERYTHING = "all that they depend on, as on an empty machine"


def fetch(wanted: Sequence[str], folder: Path, besides: With, *, instead: str) -> list[Path]:
    """The .deb files, in the folder. `instead` is what a person does where there is no apt."""
    missing = [tool for tool in NEEDED if not shutil.which(tool)]
    if missing:
        raise Failure(f"{' and '.join(missing)} not found, so {', '.join(wanted)} cannot be fetched: {instead}")
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    lists = cache.root() / "debian-lists"
    command = _command(wanted, folder, archives, lists, besides)
    # Two runs at once must not renew the same lists. apt's own lock is off, because it would lock the machine's apt.
    with cache.only_one_at_a_time(lists):
        # The second try uses new lists: a mirror drops a version as soon as there is a newer one.
        if not _has_lists(lists) or _run(command, archives).returncode:
            _update(lists, folder)
            done = _run(command, archives)
            if done.returncode:
                raise Failure(f"cannot fetch {', '.join(wanted)}:\n{done.stdout[-2000:]}")
    return sorted(archives.glob("*.deb"))


def _command(wanted: Sequence[str], folder: Path, archives: Path, lists: Path, besides: With) -> list[str]:
    options = _options(lists, folder)
    if besides is With.NOTHING:
        return ["apt-get", "download", "--quiet", *options, *wanted]  # into the working folder
    options += ["-o", f"Dir::Cache::archives={archives}"]
    if besides is With.EVERYTHING:
        nothing = folder / "nothing-installed"
        nothing.touch()
        options += ["-o", f"Dir::State::status={nothing}"]
    return ["apt-get", "install", "--yes", "--quiet", "--download-only", "--no-install-recommends", *options, *wanted]


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
    # Lists of our own: the machine's may be missing or old, and only its owner should renew them.
    settings = {"Dir::State::lists": lists, "Dir::Cache": folder, "Debug::NoLocking": 1, "APT::Sandbox::User": "root"}
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _has_lists(lists: Path) -> bool:
    return any(lists.glob("*_Packages*"))


def _update(lists: Path, folder: Path) -> None:
    say("fetching the lists of Debian packages")
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    # A source that does not answer is no reason to stop: the download reports what is missing.
    _run(["apt-get", "update", "--quiet", *_options(lists, folder)], folder)


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    silent, kept, joined = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    try:
        return subprocess.run(command, cwd=folder, check=False, text=True, timeout=SECONDS, stdin=silent, stdout=kept, stderr=joined)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command[:2])} has not ended after {SECONDS} s: is the mirror of packages within reach?") from None
