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
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hack.lib import cache
from hack.lib.command import Failure, step
from hack.lib.control_plane import REPOSITORY, binaries

NEEDED = ("buildah", "debootstrap")
SIDECAR, DRIVER, BUSYBOX, PAUSE = "csi-node-sidecar:dev", "csi-node-sidecar-driver:dev", "busybox:dev", "pause:dev"
DRBD = "csi-node-sidecar-drbd:dev"
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
    return _built(name, dockerfile, sources, base="base", arguments={"VERSION": version}, target=target)


def drbd() -> Path:
    """The reader of replicated storage, with the distribution's drbd-utils."""
    return sidecar(DRBD, target="read-drbd")


def driver() -> Path:
    return _built(DRIVER, DRIVERS_DOCKERFILE, {"sim": REPOSITORY / "hack/sim"}, base=SIDECAR)


def busybox() -> Path:
    return _built(BUSYBOX, BUSYBOX_DOCKERFILE, {}, base="base")


def peer() -> Path:
    """The program that ours replaces."""
    module = (REPOSITORY / "hack/go/csi-provisioner/go.mod").read_text()
    (version,) = re.findall(r"kubernetes-csi/external-provisioner/v\d+ (v\S+)", module)
    return single(binaries("csi-provisioner") / "csi-provisioner", name=f"csi-provisioner:{version}")


def pause() -> Path:
    """The sandbox of every pod."""
    return single(binaries("pause") / "pause", name=PAUSE)


def single(program: Path, *, name: str) -> Path:
    """An image of one program, which is linked statically."""
    return _built(name, f'FROM scratch\nCOPY program /{program.name}\nENTRYPOINT ["/{program.name}"]\n', {"program": program})


IMAGES: Mapping[str, Callable[[], Path]] = {
    "sidecar": sidecar,
    "drbd": drbd,
    "driver": driver,
    "peer": peer,
    "busybox": busybox,
    "pause": pause,
}


# --- with buildah -----------------------------------------------------------------------------------------------------


def _built(
    name: str,
    dockerfile: str,
    copied: Mapping[str, Path],
    *,
    base: str = "",
    arguments: Mapping[str, str] | None = None,
    target: str = "",
) -> Path:
    """The archive of the image. `copied`: what the Dockerfile copies, by its name there; `base`: what it builds on, of those made here."""
    below = {"base": _base, SIDECAR: sidecar}[base]() if base else None
    key = _key([platform.machine(), dockerfile, str(below), json.dumps(arguments)], copied)
    short = name.rpartition("/")[2].partition(":")[0]

    def build(work: Path, draft: Path) -> None:
        # A copy, because somebody may be working in the tree, and a store of its own, which goes with the folder.
        _build(work, draft, name, dockerfile, copied, base=(base, below), arguments=arguments or {}, target=target)

    archive = _kept(f"{short}-{key}", f"building {name}", build)
    archive.touch()  # the archive that was used last is removed last
    for old in sorted(_folder().glob(f"{short}-????????????.tar"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
    return archive


def _kept(name: str, what: str, make: Callable[[Path, Path], None]) -> Path:
    """The archive of this name, made if it is not there: `make` gets a folder to work in, and where it puts the archive."""
    archive = _folder() / f"{name}.tar"
    with cache.only_one_at_a_time(_folder()):
        if not archive.exists():
            _check_machine()
            with step(what), tempfile.TemporaryDirectory(prefix=".building-", dir=_folder()) as work:
                make(Path(work), Path(work, "draft.tar"))
                Path(work, "draft.tar").rename(archive)
    return archive


def _build(
    work: Path,
    draft: Path,
    name: str,
    dockerfile: str,
    copied: Mapping[str, Path],
    *,
    base: tuple[str, Path | None],
    arguments: Mapping[str, str],
    target: str,
) -> None:
    context, store = work / "context", work / "store"
    context.mkdir()
    (context / "Dockerfile").write_text(dockerfile)
    for place, source in copied.items():
        (context / place).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, context / place, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        else:
            shutil.copy(source, context / place)
    policy = work / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')  # all that is pulled was made here a moment ago

    def buildah(command: str, *words: str) -> None:
        # chroot is isolation enough for our own Dockerfiles, and needs the machine's network for its packages.
        isolated = ("--isolation", "chroot", "--network", "host") if command == "build" else ()
        places = ("--root", str(store), "--runroot", str(work / "run"), "--storage-driver", "vfs")
        _run("buildah", *places, command, *isolated, "--signature-policy", str(policy), *words)

    label, below = base
    if below is not None and label == "base":
        (work / "base").mkdir()
        os.link(below, work / "base/base.tar")
        (work / "base/Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
        buildah("build", "--tag", "base", str(work / "base"))
    elif below is not None:
        buildah("pull", f"docker-archive:{below}")
    given = {**arguments, **({"BASE": "localhost/base"} if label == "base" else {})}
    words = [word for key, value in given.items() for word in ("--build-arg", f"{key}={value}")]
    words += ["--target", target] if target else []
    words += [word for mount in _lent(work) for word in ("--volume", mount)]
    buildah("build", *words, "--pull-never", "--tag", "built", str(context))
    buildah("push", "built", f"docker-archive:{draft}:{name if '/' in name else f'docker.io/library/{name}'}")


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

    def make(work: Path, draft: Path) -> None:
        _run("debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", suite, str(work / "root"))
        _run("tar", "-C", str(work / "root"), "-cf", str(draft), *(f"--exclude=./{name}/*" for name in NOT_IN_THE_BASE), ".")

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


def _folder() -> Path:
    images = cache.root() / "images"
    images.mkdir(parents=True, exist_ok=True)
    return images


def _key(words: Iterable[str], copied: Mapping[str, Path]) -> str:
    """Of words, and of the names, contents and executable bits of files, without bytecode."""
    digest = hashlib.sha256(json.dumps([*words]).encode())
    for place, source in copied.items():
        for file in sorted([source] if source.is_file() else source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{place} {file.relative_to(source)} {os.access(file, os.X_OK)}\n".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
