"""Packages of the Debian (or Ubuntu) this machine is, unpacked into a folder: nothing is installed, and no maintainer script runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hack.lib import cache
from hack.lib.command import Failure, say


def unpacked(wanted: Sequence[str], folder: Path) -> Path:
    """The folder, with what these packages hold, without what they depend on."""
    if missing := [tool for tool in ("apt-get", "dpkg-deb") if not shutil.which(tool)]:
        raise Failure(f"{' and '.join(missing)} not found: install {', '.join(wanted)} yourself")
    archives = folder / "archives"
    archives.mkdir(parents=True)
    # Lists of our own: the machine's may be missing or old, and only its owner should renew them.
    lists = cache.root() / "debian-lists"
    settings = {"Dir::State::lists": lists, "Dir::Cache": folder, "Debug::NoLocking": 1, "APT::Sandbox::User": "root"}
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def apt_get(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["apt-get", *words, "--quiet", *options]
        kept, joined = subprocess.PIPE, subprocess.STDOUT
        return subprocess.run(command, cwd=archives, check=False, text=True, stdin=subprocess.DEVNULL, stdout=kept, stderr=joined)

    with cache.only_one_at_a_time(lists):
        # The second try uses new lists: a mirror drops a version as soon as there is a newer one.
        if not any(lists.glob("*_Packages*")) or apt_get("download", *wanted).returncode:
            say("fetching the lists of Debian packages")
            (lists / "partial").mkdir(parents=True, exist_ok=True)
            apt_get("update")
            done = apt_get("download", *wanted)
            if done.returncode:
                raise Failure(f"cannot fetch {', '.join(wanted)}:\n{done.stdout[-2000:]}")
    for package in archives.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    shutil.rmtree(archives)
    return folder
