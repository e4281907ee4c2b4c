"""Where images are kept between runs and under which name; nothing half-made is left there."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.lib.cache import only_one_at_a_time, root

WITHOUT_DEBIAN = "images are made of Debian packages; elsewhere use a container engine on the Dockerfile"
KEPT = 4  # archives of one name: a cluster may still be loading the one before


def folder() -> Path:
    images = root() / "images"
    images.mkdir(parents=True, exist_ok=True)
    return images


def key(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()[:12]


def key_of_files(paths: Iterable[Path], *, below: Path) -> str:
    """A key of names, contents and executable bits of these files and of all files in these folders, without bytecode."""
    digest = hashlib.sha256()
    for file in sorted(found for path in paths for found in files_in(path)):
        kind = f"-> {file.readlink()}" if file.is_symlink() else "x" if os.access(file, os.X_OK) else ""
        digest.update(f"{file.relative_to(below)} {kind}\n".encode())
        if not file.is_symlink():
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def files_in(path: Path) -> Iterator[Path]:
    if path.is_symlink() or path.is_file():
        yield path
    elif path.is_dir():
        for entry in path.iterdir():
            if entry.name != "__pycache__":
                yield from files_in(entry)
    else:
        raise FileNotFoundError(path)


@contextmanager
def workshop(where: Path) -> Iterator[Path]:
    """A folder for a build. What killed runs left behind is removed first; the caller holds the lock."""
    for leftover in where.glob(".building-*"):
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=where) as made:
        yield Path(made)


def archive(name: str, content_key: str, make: Callable[[Path, Path], None]) -> Path:
    """The archive of this content, made by `make(out, workshop)` if it is missing; the oldest of that name are removed."""
    where = folder()
    out = where / f"{name}-{content_key}.tar"
    if not out.exists():
        with only_one_at_a_time(where):
            if not out.exists():
                with workshop(where) as bench:
                    make(out, bench)
                forget_old(where, name)
    out.touch()  # the archive that was used last is removed last
    return out


def forget_old(where: Path, name: str) -> None:
    dated = sorted(where.glob(f"{name}-????????????.tar"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in dated[KEPT:]:
        old.unlink()
        old.with_suffix(".spdx.json").unlink(missing_ok=True)
