"""What an image costs: its size, what takes the most space, and how long its program needs until it answers."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hack.images import cache, driver, oci, sbom
from hack.lib.failure import Failure

MIB = 2**20
TRIES = 5
PATIENCE = 60.0
SOCKET = "/tmp/csi.sock"
NO_API = "http://127.0.0.1:1"
# The program sees the machine's devices, for random numbers, and its own files only; the mount ends with the process.
IN_IMAGE = 'mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'


def of(archive: Path, *, sbom_file: Path) -> str:
    """Markdown for people; the SBOM goes to a file, unless nothing in the image says what it is (a single program)."""
    with tempfile.TemporaryDirectory(prefix=".report-", dir=cache.folder()) as folder, oci.opened(archive) as image:
        root = Path(folder)
        compressed = sum(_compressed(layer) for layer in image.layers)
        oci.extract(image, root)
        files = sizes(root)
        lines = [
            f"{archive.name}: {sum(files.values()) / MIB:.1f} MiB in {len(files)} files; {compressed / MIB:.1f} MiB compressed (gzip)",
            "",
        ]
        lines += ["| folder | files | MiB |", "| --- | ---: | ---: |"]
        lines += [f"| {name} | {count} | {size / MIB:.1f} |" for name, count, size in by_folder(files)]
        found = sbom.components(root)
        if found:
            document = sbom.document(image.names[oci.FULL_NAME], digest=image.id, found=found)
            sbom_file.write_text(json.dumps(document, indent=1))
            lines += ["", f"{len(found)} packages, listed in {sbom_file}"]
        settings = image.config["config"]
        if settings.get("Entrypoint", [""])[0].endswith("/csi-node-sidecar"):
            driver.add_simulation(root, driver.package_in(files))
            lines += ["", *_starts(root, settings["Entrypoint"], dict(pair.split("=", 1) for pair in settings["Env"]))]
        return "\n".join(lines)


def sizes(root: Path) -> dict[str, int]:
    """Of every file that is not a link, by its name in the image."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                found[str(path.relative_to(root))] = path.stat().st_size
    return found


def by_folder(files: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Folder, files and bytes, the largest first: two levels, and in our own folder each library."""
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for name, size in files.items():
        folder = _folder(name)
        counts[folder] += 1
        totals[folder] += size
    large = [(folder, counts[folder], size) for folder, size in totals.most_common() if size >= MIB]
    rest = set(totals) - {folder for folder, _, _ in large}
    return [*large, ("all others", sum(counts[folder] for folder in rest), sum(totals[folder] for folder in rest))]


def _folder(name: str) -> str:
    parts = name.split("/")
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    return "/" + "/".join(parts[: min(3, len(parts) - 1)])


def _compressed(layer: IO[bytes]) -> int:
    """The size as a registry would store it."""
    with tempfile.TemporaryFile() as packed:
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as stream:
            shutil.copyfileobj(layer, stream, MIB)
        layer.seek(0)
        return packed.tell()


def _starts(root: Path, entrypoint: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    if os.geteuid() != 0:
        return ["Time to start: not measured, as entering the image needs root."]
    version = min(_seconds_of_version(root, entrypoint, environment) for _ in range(TRIES))
    with _running(root, [*driver.COMMAND, "--endpoint", SOCKET, "--node-id", "n1"], environment):
        _until((root / SOCKET.lstrip("/")).exists, "the driver's socket")
        healthy, connected = map(min, zip(*(_seconds_to_answer(root, entrypoint, environment) for _ in range(TRIES)), strict=True))
    return [
        f"The shortest of {TRIES} starts: --version {1000 * version:.0f} ms; until /healthz answers {1000 * healthy:.0f} ms; "
        f"until the driver is connected {1000 * connected:.0f} ms (with a driver, without an API server)."
    ]


def _seconds_of_version(root: Path, entrypoint: Sequence[str], environment: Mapping[str, str]) -> float:
    began = time.monotonic()
    with _running(root, [*entrypoint, "--version"], environment) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        code = process.wait()  # with a timeout it would look every 50 ms, which is most of what is measured
        taken = time.monotonic() - began
        watchdog.cancel()
    if code:
        raise Failure("the program in the image does not even tell its version")
    return taken


def _seconds_to_answer(root: Path, entrypoint: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    port = _free_port()
    flags = [f"--csi-address={SOCKET}", "--node-deployment", f"--master={NO_API}", f"--http-endpoint=127.0.0.1:{port}"]
    names = {"NODE_NAME": "n1", "NAMESPACE": "default", "POD_NAME": "n1"}
    began = time.monotonic()
    with _running(root, [*entrypoint, *flags], {**environment, **names}):
        _until(lambda: _page(port, "/healthz")[0] == 200, "/healthz")
        healthy = time.monotonic() - began
        # Without an API server it is never ready, but what is missing then is not the driver.
        _until(lambda: _page(port, "/readyz")[0] and "driver:" not in _page(port, "/readyz")[1], "the driver to be connected")
        return healthy, time.monotonic() - began


@contextmanager
def _running(root: Path, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    entered = ["unshare", "--mount", "sh", "-c", IN_IMAGE, str(root), *command]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(entered, env={**os.environ, **environment}, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.005)


def _page(port: int, path: str) -> tuple[int, str]:
    """(0, "") as long as nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port
