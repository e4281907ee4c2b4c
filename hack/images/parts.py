"""The images there are: what each is made of, how it starts and what it is called."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from images import base, buildah, cache, debian, oci
from images.failure import Failure

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = REPOSITORY / "Dockerfile"
RECIPES = tuple(Path(__file__).with_name(f"{name}.py") for name in ("oci", "base", "buildah", "debian", "pip_settings", "parts"))

SIDECAR = "csi-node-sidecar:dev"
DRIVER = "csi-node-sidecar-driver:dev"
VENV_PYTHON = "/opt/csi-node-sidecar/bin/python"
DRIVER_LABELS = {"org.opencontainers.image.description": "The CSI driver of demo and tests: not a product, nobody's data should live there"}


@functools.cache  # so that all images of one run hold the same sources
def sidecar() -> Path:
    """From the Dockerfile and what it copies, as they are at this moment."""
    bases = base.provide()
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        # A copy, because somebody may be working in the tree: what is built must be what the name says.
        context = Path(folder)
        copy_context(context)

        def make(out: Path, bench: Path) -> None:
            cache.say("building from the Dockerfile")
            with buildah.opened(bench) as tool:
                built = tool.build(context, {"BASE": bases.run, "BUILD_BASE": bases.build})
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
    """Everything that decides what is in the image, except which versions an index serves of what constraints.txt does not name."""
    names = ("Dockerfile", *buildah.copied_from_context((context / "Dockerfile").read_text()))
    sources = cache.key_of_files((context / name for name in names), below=context)
    return cache.key(oci.architecture(), bases.packages, sources, *_recipes())


def copy_context(context: Path) -> None:
    for name in ("Dockerfile", *buildah.copied_from_context(DOCKERFILE.read_text())):
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, target, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        else:
            shutil.copy(REPOSITORY / name, target)


def driver() -> Path:
    """The sidecar's files, started as the driver: FROM the sidecar's image, with another entry point."""
    source = sidecar()

    def make(out: Path, bench: Path) -> None:
        entrypoint = [VENV_PYTHON, "-m", "sidecar.simulation.serve_driver"]
        oci.derive_archive(out, source, name=DRIVER, entrypoint=entrypoint, labels=DRIVER_LABELS)

    return cache.archive("csi-node-sidecar-driver", cache.key(source.name, *_recipes()), make)


def peer() -> Path:
    """The program whose place ours takes, alone: it is linked statically."""
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
        packages = debian.fetch([wanted], bench / "packages", lists=cache.folder() / "debian-lists", whole=False)
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
    """Forget which Debian packages were taken: the next images take those of today."""
    base.provide(renew=True)
    for archive in cache.folder().glob("busybox-*.tar"):
        archive.unlink()


PARTS: dict[str, Callable[[], Path]] = {"sidecar": sidecar, "driver": driver, "peer": peer, "busybox": busybox, "pause": pause}
