"""Builds a Dockerfile into a folder with buildah, which needs no daemon. Without one installed, Debian's is unpacked into the cache.

Only the tool is wrapped here; which bases are used, and what becomes of the folder, is in `parts`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.images import cache, pip_settings
from hack.lib import debian
from hack.lib.failure import Failure
from hack.lib.progress import say

ALWAYS_LENT = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
# Everything that is pulled here was made here a moment ago.
POLICY = {"default": [{"type": "insecureAcceptAnything"}]}


@dataclass(frozen=True, slots=True)
class Built:
    root: Path
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    env: dict[str, str]
    labels: dict[str, str]
    user: str
    workdir: str


class Buildah:
    """One store of images and containers, which is removed with its folder."""

    def __init__(self, program: Path, bench: Path) -> None:
        self._program = program
        self._bench = bench
        policy = bench / "policy.json"
        policy.write_text(json.dumps(POLICY))
        self._trust = ("--signature-policy", str(policy))
        # The machine's settings and images are not used: the same Dockerfile must give the same image.
        settings = {"CONTAINERS_CONF": "", "CONTAINERS_STORAGE_CONF": '[storage]\ndriver = "vfs"\n', "CONTAINERS_REGISTRIES_CONF": ""}
        self._environment = dict(os.environ)
        for variable, content in settings.items():
            file = bench / variable.lower()
            file.write_text(content)
            self._environment[variable] = str(file)

    def build(self, context: Path, bases: Mapping[str, Path], values: Mapping[str, str]) -> Built:
        """Builds the context's Dockerfile. The build arguments are OCI archives to build on, and plain values."""
        arguments = {**{name: f"oci-archive:{archive}" for name, archive in bases.items()}, **values}
        words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        # chroot is isolation enough for our own Dockerfile, and it needs the machine's network for its packages.
        words += ["--isolation", "chroot", "--network", "host", *self._trust]
        words += ["--file", str(context / "Dockerfile"), "--tag", "built"]
        with pip_settings.as_mounts(self._bench) as mounts:
            self._run("build", *words, *(word for mount in mounts for word in ("--volume", mount)), str(context))
            lent = [mount.split(":")[1] for mount in mounts]
        config = json.loads(self._run("inspect", "--type", "image", "built"))["OCIv1"]["config"]
        container = self._run("from", *self._trust, "built").strip()
        root = Path(self._run("mount", container).strip())
        take_back(root, [*lent, *ALWAYS_LENT])
        return _built(root, config)

    def _run(self, command: str, *words: str) -> str:
        places = ["--root", str(self._bench / "store"), "--runroot", str(self._bench / "run"), "--storage-driver", "vfs"]
        done = subprocess.run(
            [str(self._program), *places, command, *words],
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self._environment,
        )
        if done.returncode:
            raise Failure(f"buildah {command} failed:\n{_last_lines(done.stdout + done.stderr)}")
        return done.stdout


def take_back(root: Path, lent: Sequence[str]) -> None:
    """Removes the empty files on which a RUN of the last stage had its mounts."""
    for name in lent:
        file = root / name.lstrip("/")
        if file.is_file() and not file.is_symlink() and not file.stat().st_size:
            file.unlink()


def _built(root: Path, config: Mapping[str, Any]) -> Built:
    return Built(
        root,
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
        dict(pair.split("=", 1) for pair in config.get("Env") or ()),
        said_labels(config.get("Labels") or {}),
        config.get("User") or "",
        config.get("WorkingDir") or "/",
    )


def said_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those that say something: neither the tool's own nor what nobody has handed in."""
    return {name: value for name, value in labels.items() if value and not name.startswith("io.buildah.")}


@contextmanager
def opened(bench: Path) -> Iterator[Buildah]:
    if os.geteuid() != 0:
        raise Failure("building from the Dockerfile needs root here (chroot, mounts); elsewhere use a container engine on it")
    yield Buildah(program(), bench)


def program() -> Path:
    """The machine's buildah, or one unpacked in the cache. The caller holds the lock."""
    installed = shutil.which("buildah")
    if installed:
        return Path(installed)
    where = cache.folder()
    release = Path("/etc/os-release").read_text()
    folder = where / f"buildah-{cache.key(release)}"
    if not folder.exists():
        say("unpacking buildah")
        fresh = where / ".building-buildah"
        packages = debian.fetch(["buildah", "patchelf"], fresh / "packages", debian.With.WHAT_IS_MISSING, instead=cache.WITHOUT_DEBIAN)
        debian.unpack(packages, fresh / "root")
        _let_it_find(fresh / "root", libraries=folder)
        (fresh / "root").rename(folder)
        shutil.rmtree(fresh)
    return folder / "usr/bin/buildah"


def _let_it_find(root: Path, *, libraries: Path) -> None:
    """Sets in the program where its libraries are: it starts itself again with an empty environment, and from a copy in memory.

    So neither LD_LIBRARY_PATH nor a path relative to the program would help. Libraries need libraries in turn, which RPATH covers and
    RUNPATH does not.
    """
    patchelf = shutil.which("patchelf") or root / "usr/bin/patchelf"
    folders = sorted({str(libraries / file.parent.relative_to(root)) for file in root.rglob("*.so.*")})
    subprocess.run([patchelf, "--force-rpath", "--set-rpath", ":".join(folders), root / "usr/bin/buildah"], check=True)


def _last_lines(output: str) -> str:
    # A progress bar is many lines in one.
    return "\n".join(f"  {line}" for line in re.sub(r"[^\n]*\r", "", output).splitlines()[-20:])


def copied_from_context(dockerfile: str) -> Sequence[str]:
    """The sources of COPY and ADD in a Dockerfile that come from the context and not from another stage."""
    sources: list[str] = []
    for line in re.sub(r"\\\n", " ", dockerfile).splitlines():
        words = line.split()
        if not words or words[0].upper() not in ("COPY", "ADD"):
            continue
        plain = [word for word in words[1:] if not word.startswith("--")]
        if not any(word.startswith("--from=") for word in words):
            sources += plain[:-1]
    return sources
