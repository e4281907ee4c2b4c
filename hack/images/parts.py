"""The images: what each is made of, how it starts, and its name."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hack.images import base, buildah, cache, oci
from hack.images import driver as driver_files
from hack.lib import debian
from hack.lib.failure import Failure
from hack.lib.progress import silent, step

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = REPOSITORY / "Dockerfile"
RECIPES = (
    *(Path(__file__).with_name(f"{name}.py") for name in ("oci", "base", "buildah", "driver", "pip_settings", "parts")),
    Path(debian.__file__),
)

SIDECAR = "csi-node-sidecar:dev"
DRIVER = "csi-node-sidecar-driver:dev"
DRIVER_LABELS = {
    "org.opencontainers.image.title": "csi-node-sidecar-driver",
    "org.opencontainers.image.description": "The CSI driver of demo and tests: not a product, nobody's data should live there",
    "org.opencontainers.image.licenses": "Apache-2.0",
}


@functools.cache  # so that all images of one run hold the same sources
def sidecar() -> Path:
    """From the Dockerfile and what it copies, as they are at this moment."""
    bases = base.provide()
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        # A copy, because somebody may be working in the tree, and the name must match what is built.
        context = Path(folder)
        copy_context(context)

        def make(out: Path, bench: Path) -> None:
            with step("building from the Dockerfile", about=50), buildah.opened(bench) as tool:
                # Without the commit: the archive is kept for as long as what goes in is the same, whatever else is committed.
                built = tool.build(context, {"BASE": bases.run, "BUILD_BASE": bases.build}, {"VERSION": version_in(context)})
                oci.write_archive(
                    out,
                    name=SIDECAR,
                    root=built.root,
                    entrypoint=built.entrypoint,
                    command=built.command,
                    env=built.env,
                    labels=built.labels,
                    user=built.user,
                    workdir=built.workdir,
                )

        return cache.archive("csi-node-sidecar", sidecar_key(bases, context), make)


def sidecar_key(bases: base.Base, context: Path) -> str:
    """A key of everything that decides what is in the image: packages are named by their hashes in a file that the Dockerfile copies."""
    names = ("Dockerfile", *buildah.copied_from_context((context / "Dockerfile").read_text()))
    sources = cache.key_of_files((context / name for name in names), below=context)
    return cache.key(oci.architecture(), bases.packages, sources, *_recipes())


def version_in(context: Path) -> str:
    (version,) = re.findall(r'^__version__ = "(.+)"$', (context / "sidecar/__init__.py").read_text(), re.MULTILINE)
    return str(version)


def copy_context(context: Path) -> None:
    for name in ("Dockerfile", *buildah.copied_from_context(DOCKERFILE.read_text())):
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, target, ignore=_left_out, symlinks=True)
        else:
            shutil.copy(REPOSITORY / name, target)


def _left_out(folder: str, names: list[str]) -> list[str]:
    """What .dockerignore hides from container engines."""
    return [name for name in names if name == "__pycache__" or Path(folder, name) == driver_files.SIMULATION]


def driver() -> Path:
    """FROM the sidecar's image: the simulation is added, and it starts as the driver."""
    source = sidecar()
    simulation = cache.key_of_files([driver_files.SIMULATION], below=REPOSITORY)

    def make(out: Path, bench: Path) -> None:
        added = bench / "added"
        driver_files.add_simulation(added, driver_files.package_in(oci.names_in(source)))
        oci.derive_archive(out, source, name=DRIVER, entrypoint=driver_files.COMMAND, added=added, labels=DRIVER_LABELS)

    return cache.archive("csi-node-sidecar-driver", cache.key(source.name, simulation, *_recipes()), make)


def peer() -> Path:
    """The program that ours replaces, alone: it is linked statically."""
    module = (REPOSITORY / "hack/go/csi-provisioner/go.mod").read_text()
    version = re.search(r"kubernetes-csi/external-provisioner/v\d+ (v\S+)", module)
    if not version:
        raise Failure("hack/go/csi-provisioner/go.mod does not say which csi-provisioner")
    return _go_program("csi-provisioner", name=f"csi-provisioner:{version[1]}")


def pause() -> Path:
    return _go_program("pause", name="pause:dev")


def busybox() -> Path:
    """A shell and its tools for pods that write something: Debian's static busybox under all its names."""
    name, wanted = "busybox", "busybox-static"
    key = cache.key(oci.architecture(), wanted, Path("/etc/os-release").read_text(), *_recipes())

    def make(out: Path, bench: Path) -> None:
        root = bench / "root"
        packages = debian.fetch([wanted], bench / "packages", debian.With.WHAT_IS_MISSING, instead=cache.WITHOUT_DEBIAN)
        debian.unpack([file for file in packages if file.name.startswith(wanted)], root)
        shutil.rmtree(root / "usr")
        program = root / "bin/busybox"
        for applet in subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split():
            if applet != name:
                (root / "bin" / applet).symlink_to(name)
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        oci.write_archive(out, name="busybox:dev", root=root, command=["/bin/sh"], env={"PATH": "/bin"})

    return cache.archive(name, key, make)


def _go_program(part: str, *, name: str) -> Path:
    with silent():
        done = subprocess.run([sys.executable, REPOSITORY / "hack/control-plane", part], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(f"hack/control-plane {part} failed")
    program = Path(done.stdout.strip()) / part

    def make(out: Path, bench: Path) -> None:
        root = bench / "root"
        root.mkdir()
        shutil.copy(program, root / part)
        oci.write_archive(out, name=name, root=root, entrypoint=[f"/{part}"])

    return cache.archive(part, cache.key(oci.architecture(), name, program.read_bytes(), *_recipes()), make)


def _recipes() -> list[bytes]:
    return [file.read_bytes() for file in RECIPES]


def renew() -> None:
    """Forgets which Debian packages were taken: the next images take today's."""
    base.provide(renew=True)
    for archive in cache.folder().glob("busybox-*.tar"):
        archive.unlink()


PARTS: dict[str, Callable[[], Path]] = {"sidecar": sidecar, "driver": driver, "peer": peer, "busybox": busybox, "pause": pause}
