"""zsh and fish, for tests of what they complete. The machine's, or Debian's, unpacked in the cache and not installed."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hack.lib import cache, debian
from hack.lib.failure import Failure
from hack.lib.progress import step


@dataclass(frozen=True)
class Shell:
    program: str
    environ: dict[str, str] = field(default_factory=dict)
    """What it needs to find its own files where it was unpacked."""


def provide(name: str) -> Shell:
    if found := shutil.which(name):
        return Shell(found)
    release = platform.freedesktop_os_release()
    kept = cache.root() / f"{name}-{release.get('ID')}-{release.get('VERSION_ID')}-{platform.machine()}"
    if not kept.exists():
        with cache.only_one_at_a_time(kept.parent / f"{name}-lock"):
            if not kept.exists():
                _fetch(name, kept)
    return Shell(str(_program(name, kept)), _environ(kept))


def _program(name: str, root: Path) -> Path:
    return next((place for place in (root / "usr/bin" / name, root / "bin" / name) if place.exists()), root / "usr/bin" / name)


def _environ(root: Path) -> dict[str, str]:
    """fish goes by where its program is, zsh by FPATH. Whoever starts zsh sets its `module_path` to ZSH_MODULES."""
    libraries = {str(file.parent) for file in root.rglob("*.so.*")}
    functions = {str(file.parent) for file in (root / "usr/share/zsh/functions").rglob("*") if file.is_file()}
    modules = {str(file.parent.parent) for file in root.rglob("zsh/complist.so")}
    found = {"LD_LIBRARY_PATH": libraries, "FPATH": functions, "ZSH_MODULES": modules}
    return {name: os.pathsep.join(sorted(folders)) for name, folders in found.items() if folders}


def _fetch(name: str, kept: Path) -> None:
    with step(f"fetching Debian's {name}", about=10), tempfile.TemporaryDirectory(dir=kept.parent, prefix=f".{name}-") as work:
        folder = Path(work)
        packages = debian.fetch([name], folder / "packages", debian.With.WHAT_IS_MISSING, instead=f"install {name}")
        debian.unpack(packages, folder / "unpacked")
        if not _program(name, folder / "unpacked").exists():
            raise Failure(f"Debian's package {name} holds no {name}: install it by hand")
        (folder / "unpacked" / "usr" / "etc" / name).mkdir(parents=True)  # without it fish does not believe that it was moved
        (folder / "unpacked").rename(kept)
