"""The two base images for the Dockerfile: Debian's Python with the libraries that wheels link to, and the same with venv and a shell.

The first one ends up on nodes: it has no shell, no package manager and no installer. The official Python images, the Dockerfile's
default, do as well; these are made where no registry is available. /var/lib/dpkg/status.d lists their packages, for scanners.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.images import cache
from hack.images.oci import write_archive
from hack.lib import debian
from hack.lib.cache import only_one_at_a_time
from hack.lib.progress import step

RUN = ("python3", "python-is-python3", "libstdc++6", "ca-certificates", "base-files", "media-types")
BUILD = (*RUN, "python3-venv", "dash")
# Needed only by maintainer scripts, which never run here, or by packages that are left out for that reason.
LEFT_OUT = (
    "debconf",
    "debianutils",
    "dpkg",
    "libacl1",
    "libmd0",
    "libpcre2-8-0",
    "libselinux1",
    "libzstd1",
    "mawk",
    "openssl",
    "perl-base",
    "tar",
)
# For terminals, compilers and other character sets; Python has tables of its own.
TRIMMED = (
    "usr/games",
    "usr/include",
    "usr/lib/*/gconv",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/pixmaps",
    "usr/src",
)
USERS = "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"
GROUPS = "root:x:0:\nnogroup:x:65534:\n"
HOSTS_FIRST = "hosts: files dns\n"  # without this file glibc asks the name server even for localhost
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECIPE = Path(__file__)


@dataclass(frozen=True, slots=True)
class Base:
    run: Path  # OCI archives
    build: Path
    packages: str  # name=version, one a line


def provide(*, renew: bool = False) -> Base:
    where = cache.folder()
    content = cache.key(platform.machine(), _release(), *(file.read_bytes() for file in (RECIPE, Path(debian.__file__))))
    folder = where / f"base-{content}"
    if renew or not (folder / "packages").exists():
        with only_one_at_a_time(where):
            if renew or not (folder / "packages").exists():
                with cache.workshop(where) as bench:
                    made = _make(bench)
                    shutil.rmtree(folder, ignore_errors=True)
                    made.rename(folder)
                for old in sorted(where.glob("base-*"), key=lambda path: path.stat().st_mtime)[:-2]:
                    shutil.rmtree(old)
    return Base(folder / "run.tar", folder / "build.tar", (folder / "packages").read_text())


def _release() -> str:
    return Path("/etc/os-release").read_text()


def _make(bench: Path) -> Path:
    made = bench / "made"
    made.mkdir()
    versions = set()
    for number, (name, wanted) in enumerate((("run", RUN), ("build", BUILD)), 1):
        with step(f"making base image {number} of 2 from Debian packages", about=30):
            packages = debian.fetch(wanted, bench / f"{name}-packages", debian.With.EVERYTHING, instead=cache.WITHOUT_DEBIAN)
            versions |= _furnish(bench / name, packages)
            write_archive(made / f"{name}.tar", name=f"csi-node-sidecar-{name}-base:dev", root=bench / name, env={"PATH": PATH})
    (made / "packages").write_text("".join(f"{version}\n" for version in sorted(versions)))
    return made


def _furnish(root: Path, packages: Sequence[Path]) -> set[str]:
    """Unpacks the packages and makes what their scripts would have made. Returns names and versions."""
    chosen = {package: paragraph for package in packages if _name(paragraph := debian.control(package)) not in LEFT_OUT}
    debian.unpack(list(chosen), root)
    _trim(root)
    status = root / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for paragraph in chosen.values():
        (status / _name(paragraph)).write_text(paragraph)
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(file.read_text() for file in certificates))
    # Where Debian's OpenSSL looks; these links come with its command line, which is left out.
    (root / "usr/lib/ssl").mkdir(exist_ok=True)
    (root / "usr/lib/ssl/certs").symlink_to("/etc/ssl/certs")
    (root / "usr/lib/ssl/cert.pem").symlink_to("/etc/ssl/certs/ca-certificates.crt")
    (root / "etc/passwd").write_text(USERS)
    (root / "etc/group").write_text(GROUPS)
    (root / "etc/nsswitch.conf").write_text(HOSTS_FIRST)
    return {f"{_name(paragraph)}={debian.field(paragraph, 'Version')}" for paragraph in chosen.values()}


def _name(paragraph: str) -> str:
    return debian.field(paragraph, "Package")


def _trim(root: Path) -> None:
    for pattern in TRIMMED:
        for path in root.glob(pattern):
            shutil.rmtree(path)
    # Of the documentation only the licences stay: they must go where the programs go.
    for path in sorted((root / "usr/share/doc").rglob("*"), reverse=True):
        if path.is_symlink() or (path.is_file() and path.name != "copyright"):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
