"""Writes a folder as an OCI archive, which container engines load. Knows the format, and nothing about the content."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

Json = dict[str, Any]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
# Not compressed: these archives are loaded on the machine that made them.
LAYER = "application/vnd.oci.image.layer.v1.tar"
FULL_NAME = "io.containerd.image.name"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NOTHING: Mapping[str, str] = MappingProxyType({})


def write_archive(
    out: Path,
    *,
    name: str,
    root: Path,
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
    env: Mapping[str, str] = NOTHING,
    labels: Mapping[str, str] = NOTHING,
    user: str = "",
    workdir: str = "/",
) -> None:
    """Writes the folder `root` as a single-layer image for this machine's architecture; equal input gives equal bytes.

    The image gets the name by which a kubelet asks for it: `csi-node-sidecar:dev` is stored as
    `docker.io/library/csi-node-sidecar:dev`, which is what containerd's CRI makes of that reference in a pod, so
    `ctr -n k8s.io images import` needs no further option. A name with a registry stays as it is; one without a tag gets `latest`.

    Every file belongs to root and dates from 1970, whoever made the folder and when: bytecode in it must not depend on its source's
    time. `out` appears only when it is whole.
    """
    settings = _settings(entrypoint=entrypoint, command=command, env=env, labels=labels, user=user, workdir=workdir)
    with tempfile.TemporaryFile(dir=out.parent) as layer:
        write_layer(layer, root)
        _write(out, full_name(name), [layer], settings)


def derive_archive(
    out: Path, source: Path, *, name: str, entrypoint: Sequence[str], added: Path, labels: Mapping[str, str] = NOTHING
) -> None:
    """The layers of `source` and one more with the files below `added`, under another name and started in another way.

    An engine that has one of both stores the common layers once.
    """
    with opened(source) as image, tempfile.TemporaryFile(dir=out.parent) as layer:
        settings = {**image.config["config"], "Entrypoint": list(entrypoint), "Labels": dict(sorted(labels.items()))}
        settings.pop("Cmd", None)
        write_layer(layer, added)
        _write(out, full_name(name), [*image.layers, layer], {key: value for key, value in settings.items() if value})


@dataclass(frozen=True, slots=True)
class Image:
    """An archive written here. The id is the digest of the config."""

    id: str
    names: Json
    config: Json
    layers: Sequence[IO[bytes]]  # tars that are not compressed, the lowest first


@contextmanager
def opened(archive: Path) -> Iterator[Image]:
    with tarfile.open(archive) as tar:

        def member(name: str) -> IO[bytes]:
            content = tar.extractfile(name)
            assert content is not None, f"{name} is not a file"
            return content

        def blob(digest: str) -> IO[bytes]:
            return member(f"blobs/sha256/{digest.removeprefix('sha256:')}")

        (one,) = json.load(member("index.json"))["manifests"]
        manifest = json.load(blob(one["digest"]))
        digest = manifest["config"]["digest"]
        yield Image(digest, one["annotations"], json.load(blob(digest)), [blob(layer["digest"]) for layer in manifest["layers"]])


def extract(image: Image, root: Path) -> None:
    """All that is in the image, as a container would see it."""
    for layer in image.layers:
        layer.seek(0)
        with tarfile.open(fileobj=layer) as tar:
            tar.extractall(root, filter="fully_trusted")


def names_in(archive: Path) -> list[str]:
    """Of all files and folders in the image."""
    with opened(archive) as image:
        return [name for layer in image.layers for name in tarfile.open(fileobj=layer).getnames()]


def _settings(**given: Any) -> Json:
    settings = {
        "Entrypoint": list(given["entrypoint"]),
        "Cmd": list(given["command"]),
        "Env": [f"{key}={value}" for key, value in given["env"].items()],
        "Labels": dict(sorted(given["labels"].items())),
        "User": given["user"],
        "WorkingDir": given["workdir"],
    }
    return {key: value for key, value in settings.items() if value}


def _write(out: Path, full: str, contents: Sequence[IO[bytes]], settings: Json) -> None:
    sums = [_digest(content) for content in contents]
    rootfs = {"type": "layers", "diff_ids": [digest for digest, _ in sums]}  # of the layers as they are, since they are not compressed
    config = _bytes({"architecture": architecture(), "os": "linux", "config": settings, "rootfs": rootfs})
    layers = [{"mediaType": LAYER, "digest": digest, "size": size} for digest, size in sums]
    manifest = _bytes({"schemaVersion": 2, "mediaType": MANIFEST, "config": _descriptor(CONFIG, config), "layers": layers})
    # Engines that do not know containerd's annotation read the tag from the other.
    names = {FULL_NAME: full, "org.opencontainers.image.ref.name": full.rpartition(":")[2]}
    index = _bytes({"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**_descriptor(MANIFEST, manifest), "annotations": names}]})
    with _whole_or_not_at_all(out) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", _bytes({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", index)
        _add(tar, _blob(manifest), manifest)
        _add(tar, _blob(config), config)
        for content, (digest, size) in zip(contents, sums, strict=True):
            _add_file(tar, f"blobs/sha256/{digest.removeprefix('sha256:')}", content, size)


def full_name(name: str) -> str:
    """The full name that a container engine makes of a short reference: registry, path and tag."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"library/{name}"
    if not slash or not (first == "localhost" or "." in first or ":" in first):
        name = f"docker.io/{name}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def write_layer(out: IO[bytes], root: Path) -> None:
    """All that is below `root`, in the order of the names."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _below(root):
            if path.is_socket():  # no archive can hold one
                continue
            info = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 0
            if info.isreg():
                with path.open("rb") as content:
                    tar.addfile(info, content)
            else:
                tar.addfile(info)


def _below(folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from _below(path)


@contextmanager
def _whole_or_not_at_all(out: Path) -> Iterator[IO[bytes]]:
    with tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name}-", delete=False) as file:
        try:
            yield file
            Path(file.name).chmod(0o644)
            Path(file.name).rename(out)
        except BaseException:
            Path(file.name).unlink()
            raise


def _bytes(content: Json) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _descriptor(media_type: str, content: bytes) -> Json:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _blob(content: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def _digest(file: IO[bytes]) -> tuple[str, int]:
    """Digest and size of the whole file; afterwards its position is at the start."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    file.seek(0)
    return f"sha256:{digest.hexdigest()}", size


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    _add_file(tar, name, io.BytesIO(content), len(content))


def _add_file(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    tar.addfile(info, content)
