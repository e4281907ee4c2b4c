"""The image, built from the Dockerfile as it is, as a pod starts it: as uid 65532 on a read-only root file system."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import sidecar
from hack import images
from hack.lib import programs
from hack.lib.control_plane import until
from sidecar.kube.credentials import SERVICE_ACCOUNT

PROGRAM = "/opt/csi-node-sidecar/bin/csi-node-sidecar"
UPSTREAMS, BY_NAME = "/csi-provisioner", "csi-node-sidecar"
# Its own files only, and of the machine the devices; then what a kubelet adds. All of it is gone with the process. What is written goes to
# the folder below /run by that name alone: by the image's link at /var/run, which is absolute, it would go to the machine's.
IN_A_POD = (
    'mount --bind "$0" "$0" && mount --rbind /dev "$0/dev" && mount -t tmpfs none "$0/run" && mkdir -p "$0$ACCOUNT" "$0/run/csi" '
    '&& cp "$OF_THE_POD"/* "$0$ACCOUNT" && mount --bind "$SOCKETS" "$0/run/csi" && mount -o remount,bind,ro "$0" '
    '&& exec chroot --userspec=65532:65532 "$0" "$@"'
)


@dataclass(frozen=True)
class Image:
    root: Path
    settings: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.settings["Env"])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return unpacked(images.sidecar(), tmp_path_factory.mktemp("image"))


def unpacked(archive: Path, root: Path) -> Image:
    with tarfile.open(archive) as whole:
        (manifest,) = json.load(whole.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(whole.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        for layer in manifest["Layers"]:
            subprocess.run(["tar", "-C", root, "-x"], input=whole.extractfile(layer).read(), check=True)  # type: ignore[union-attr]
    root.chmod(0o755)
    return Image(root, config["config"])


@dataclass(frozen=True)
class Pod:
    """A cluster that speaks TLS, and what a kubelet gives a container: names and an address, a folder with CA and token."""

    image: Image
    driver: programs.OurDriver
    environment: dict[str, str]

    def command(self, *words: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", IN_A_POD, str(self.image.root), *words]

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), check=False, capture_output=True, text=True, env=self.environment)


@pytest.fixture(scope="module")
def pod(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    work = tmp_path_factory.mktemp("pod")
    file, account = work / "kubeconfig", work / "account"
    serving = ["-m", "tests.harness.hostile", "api", str(work), "selected", "0"]
    with programs.Process("cluster", [sys.executable, *serving], work), programs.OurDriver(work, node="n1") as driver:
        until(file.is_file, "the cluster serves")
        config = json.loads(file.read_text())
        (entry,), (user,) = config["clusters"], config["users"]
        account.mkdir()
        (account / "ca.crt").write_bytes(base64.b64decode(entry["cluster"]["certificate-authority-data"]))
        (account / "token").write_text(user["user"]["token"])
        for shared in (work, driver.socket):
            shared.chmod(0o777)
        server = urlsplit(entry["cluster"]["server"])
        found_by = {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
        names = {"NODE_NAME": "n1", "NAMESPACE": "csi", "POD_NAME": "p"}
        places = {"ACCOUNT": str(SERVICE_ACCOUNT).removeprefix("/var"), "OF_THE_POD": str(account), "SOCKETS": str(work)}
        yield Pod(image, driver, {"PATH": os.environ["PATH"], **image.environment, **found_by, **names, **places})


def test_the_program_runs_by_its_path_by_its_name_and_by_the_path_it_has_in_upstreams_image(pod: Pod) -> None:
    assert pod.image.settings["Entrypoint"] == [PROGRAM]
    for program in (PROGRAM, UPSTREAMS, BY_NAME):
        done = pod.ask(program, "version")
        assert (done.returncode, done.stdout) == (0, f"csi-node-sidecar {sidecar.__version__}\n"), done.stderr


def test_check_finds_its_cluster(pod: Pod) -> None:
    done = pod.ask(PROGRAM, "check", f"--driver={pod.driver.driver}", "--node-deployment")
    assert "Traceback" not in done.stderr, done.stderr
    assert f"CSINode has no entry of {pod.driver.driver} on node n1" in done.stdout, done.stdout


def test_the_program_lists_its_cluster_and_finds_its_driver(pod: Pod, tmp_path: Path) -> None:
    started = programs.Sidecar(tmp_path, node="n1", address="/run/csi/n1.sock", kubeconfig="", environ=pod.environment)
    flags = [word for word in started.command[started.command.index("sidecar") + 1 :] if not word.startswith("--kubeconfig")]
    more = ("--enable-capacity", "--capacity-ownerref-level=-1", "--drain-report", "--drain-gate-image=pause")
    started.command = pod.command(PROGRAM, *flags, *more)
    with started:
        until(lambda: '"Caches are complete"' in started.output(), "it has listed everything", seconds=60)
    assert "Traceback" not in started.output() and "ModuleNotFound" not in started.output()


def test_everything_it_loads_has_its_bytecode(pod: Pod) -> None:
    """A read-only root file system cannot keep what is compiled at a start."""
    script = "import sys, sidecar.process, sidecar.wiring; print(*(m.__spec__.cached for m in sys.modules.values()"
    script += " if getattr(m, '__spec__', None) and m.__spec__.has_location and m.__spec__.origin.endswith('.py')))"
    done = pod.ask("/opt/csi-node-sidecar/bin/python", "-c", script)
    cached = done.stdout.split()
    assert len(cached) > 300, done.stderr
    assert [name for name in cached if not (pod.image.root / name.lstrip("/")).is_file()] == []


def test_the_drivers_image_starts_the_simulated_driver(tmp_path: Path) -> None:
    driver = unpacked(images.driver(), tmp_path)
    command = ["chroot", str(driver.root), *driver.settings["Entrypoint"], "--help"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **driver.environment})
    assert "--kubelet-registration-dir" in done.stdout, done.stderr
