"""The images of `hack/image`: each is a Dockerfile that buildah builds, kept as an archive under a hash of what went in."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hack.lib import cache
from hack.lib.command import Failure, step
from hack.lib.control_plane import REPOSITORY, binaries

NEEDED = ("buildah", "debootstrap")
SIDECAR, DRIVER, BUSYBOX, PAUSE = "csi-node-sidecar:dev", "csi-node-sidecar-driver:dev", "busybox:dev", "pause:dev"
DRBD = "csi-node-sidecar-drbd:dev"
# Isolation enough for our own Dockerfiles, which need the machine's network for their packages.
IN_A_CHROOT = ("--isolation", "chroot", "--network", "host")
KEPT = 4  # archives of one name: a cluster may still be loading the one before

# The base where no registry is available: Debian's Python. The official Python images, the Dockerfile's default, do as well.
BASE_PACKAGES = ("python3", "python3-venv", "python-is-python3", "ca-certificates", "media-types", "busybox-static")
NOT_IN_THE_BASE = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists", "var/log")
# The driver of demo and tests is no product. The sidecar's image has no simulation, so this one adds it.
DRIVERS_DOCKERFILE = f"""
FROM {SIDECAR}
COPY sim /opt/driver/hack/sim
ENV PYTHONPATH=/opt/driver
ENTRYPOINT ["/opt/csi-node-sidecar/bin/python", "-m", "hack.sim.driver.serve"]
LABEL org.opencontainers.image.title="csi-node-sidecar-driver" \
      org.opencontainers.image.description="The CSI driver of demo and tests: not a product, nobody's data should live there"
"""
# A shell and its tools for pods that write something.
BUSYBOX_DOCKERFILE = """
FROM base AS base
FROM scratch
COPY --from=base /bin/busybox /bin/busybox
COPY --from=base /etc/passwd /etc/passwd
RUN ["/bin/busybox", "sh", "-c", "/bin/busybox --install -s /bin && /bin/busybox mkdir -m 1777 /tmp"]
CMD ["/bin/sh"]
"""
# Of pip's settings, those that say where packages come from.
LENT = ("cert", "client-cert", "extra-index-url", "find-links", "index-url", "proxy", "timeout", "trusted-host")


@dataclass(frozen=True)
class Image:
    """`copied`: what the Dockerfile copies, by its name there; `base`: what it builds on, of those made here."""

    name: str
    dockerfile: str
    copied: Mapping[str, Path]
    base: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str = ""

    def archive(self) -> Path:
        below = {"base": _base, SIDECAR: sidecar}[self.base]() if self.base else None
        key = _key([platform.machine(), self.dockerfile, str(below), json.dumps(self.arguments)], self.copied)
        short = self.name.rpartition("/")[2].partition(":")[0]
        archive = _kept(f"{short}-{key}", f"building {self.name}", lambda work: self._build(work, below))
        archive.touch()  # the archive that was used last is removed last
        for old in sorted(archive.parent.glob(f"{short}-????????????.tar"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
        return archive

    def _build(self, work: Path, below: Path | None) -> Path:
        """On a copy, because somebody may be working in the tree, and in a store of its own, which goes with the folder."""
        context, draft = work / "context", work / "draft.tar"
        context.mkdir()
        (context / "Dockerfile").write_text(self.dockerfile)
        for place, source in self.copied.items():
            (context / place).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, context / place, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
            else:
                shutil.copy(source, context / place)
        given = dict(self.arguments)
        if below is not None and self.base == "base":
            (work / "base").mkdir()
            os.link(below, work / "base/base.tar")
            (work / "base/Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
            _buildah(work, "build", *IN_A_CHROOT, "--tag", "base", str(work / "base"))
            given["BASE"] = "localhost/base"
        elif below is not None:
            _buildah(work, "pull", f"docker-archive:{below}")
        words = [word for key, value in given.items() for word in ("--build-arg", f"{key}={value}")]
        words += ["--target", self.target] if self.target else []
        words += [word for mount in _lent(work) for word in ("--volume", mount)]
        _buildah(work, "build", *IN_A_CHROOT, *words, "--pull-never", "--tag", "built", str(context))
        full_name = self.name if "/" in self.name else f"docker.io/library/{self.name}"
        _buildah(work, "push", "built", f"docker-archive:{draft}:{full_name}")
        return draft


def sidecar(name: str = SIDECAR, *, target: str = "") -> Path:
    """From the Dockerfile and what it copies."""
    said = (REPOSITORY / "sidecar/__init__.py").read_text()
    (version,) = re.findall(r'^__version__.* = "(.+)"$', said, re.MULTILINE)
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    copied = [
        word.removeprefix("./") for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE) for word in line.split()
    ]
    # Without the commit: the archive is kept for as long as what goes in is the same, whatever else is committed.
    sources = {place: REPOSITORY / place for place in copied}
    return Image(name, dockerfile, sources, base="base", arguments={"VERSION": version}, target=target).archive()


def drbd() -> Path:
    """The reader of replicated storage, with the distribution's drbd-utils."""
    return sidecar(DRBD, target="read-drbd")


def driver() -> Path:
    return Image(DRIVER, DRIVERS_DOCKERFILE, {"sim": REPOSITORY / "hack/sim"}, base=SIDECAR).archive()


def busybox() -> Path:
    return Image(BUSYBOX, BUSYBOX_DOCKERFILE, {}, base="base").archive()


def peer() -> Path:
    """The program that ours replaces."""
    module = (REPOSITORY / "hack/go/csi-provisioner/go.mod").read_text()
    (version,) = re.findall(r"kubernetes-csi/external-provisioner/v\d+ (v\S+)", module)
    return _single(binaries("csi-provisioner") / "csi-provisioner", name=f"csi-provisioner:{version}")


def pause() -> Path:
    """The sandbox of every pod."""
    return _single(binaries("pause") / "pause", name=PAUSE)


def _single(program: Path, *, name: str) -> Path:
    """An image of one program, which is linked statically."""
    dockerfile = f'FROM scratch\nCOPY program /{program.name}\nENTRYPOINT ["/{program.name}"]\n'
    return Image(name, dockerfile, {"program": program}).archive()


IMAGES: Mapping[str, Callable[[], Path]] = {make.__name__: make for make in (sidecar, drbd, driver, peer, busybox, pause)}


# --- with buildah -----------------------------------------------------------------------------------------------------


def _buildah(work: Path, command: str, *words: str) -> None:
    policy = work / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')  # all that is pulled was made here a moment ago
    places = ("--root", str(work / "store"), "--runroot", str(work / "run"), "--storage-driver", "vfs")
    _run("buildah", *places, command, "--signature-policy", str(policy), *words)


def _kept(name: str, what: str, make: Callable[[Path], Path]) -> Path:
    """The archive of this name, made if it is not there."""

    def built(work: Path) -> Path:
        _check_machine()
        with step(what):
            return make(work)

    return cache.kept(cache.root() / "images" / f"{name}.tar", built)


def _lent(work: Path) -> list[str]:
    """This machine's settings of pip as volumes for a build: addresses and passwords must not stay in an image."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True).stdout
    # What stands in the environment wins, and is told first.
    found = [(option, value) for option, value in re.findall(r"^[\w:]+\.([\w-]+)='(.*)'$", told, re.MULTILINE) if option in LENT]
    settings = dict(reversed(found))
    file = work / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{option} = {value}\n" for option, value in settings.items()))
    named = {word for value in settings.values() for word in value.split() if word.startswith("/") and Path(word).exists()}
    return [f"{file}:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in sorted(named))]


def _base() -> Path:
    release = Path("/etc/os-release").read_text()
    (suite,) = re.findall(r"^VERSION_CODENAME=(\S+)$", release, re.MULTILINE)

    def make(work: Path) -> Path:
        root, draft = str(work / "root"), work / "draft.tar"
        _run("debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", suite, root)
        _run("tar", "-C", root, "-cf", str(draft), *(f"--exclude=./{name}/*" for name in NOT_IN_THE_BASE), ".")
        return draft

    key = _key([platform.machine(), release, *BASE_PACKAGES, *NOT_IN_THE_BASE], {})
    return _kept(f"base-{key}", "making the base image of Debian packages", make)


def _check_machine() -> None:
    missing = [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing:
        raise Failure(
            f"not in PATH: {', '.join(missing)} (apt-get install {' '.join(NEEDED)}); or use a container engine on the Dockerfile"
        )
    if os.geteuid():
        raise Failure("building needs root here (chroot, mounts); elsewhere use a container engine on the Dockerfile")


def _run(*command: str) -> None:
    environ = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    done = subprocess.run(command, check=False, text=True, stdin=subprocess.DEVNULL, capture_output=True, env=environ)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-20:]
        raise Failure("\n".join([f"{' '.join(command[:1])} failed:", *(f"  {line}" for line in lines)]))


def _key(words: Iterable[str], copied: Mapping[str, Path]) -> str:
    """Of words, and of the names, contents and executable bits of files, without bytecode."""
    digest = hashlib.sha256(json.dumps([*words]).encode())
    for place, source in copied.items():
        for file in sorted([source] if source.is_file() else source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{place} {file.relative_to(source)} {os.access(file, os.X_OK)}\n".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
