"""The images themselves, built from the Dockerfile as it is: what is in them, what is not, and that the programs in them run."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import sidecar
from hack.images import oci, parts, report, sbom
from hack.lib import programs
from hack.lib.control_plane import until
from hack.pins.pin import parse, simple
from sidecar.kube.credentials import SERVICE_ACCOUNT
from tests.harness.not_tested import not_tested
from tests.harness.spdx import assert_is_spdx

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[1]

VENV = "opt/csi-node-sidecar"
PROGRAM = f"/{VENV}/bin/csi-node-sidecar"
UPSTREAMS = "/csi-provisioner"
BY_NAME = "csi-node-sidecar"
"""As people call it with `kubectl exec`."""
PYTHON = f"/{VENV}/bin/python"
# As in a pod: the service account's folder, and the driver's socket. Both are gone with the process.
IN_A_POD = (
    'mount --rbind /dev "$0/dev" && mount -t tmpfs none "$0/run" && mkdir -p "$0$ACCOUNT" "$0/run/csi" && cp "$OF_THE_POD"/* "$0$ACCOUNT" '
    '&& mount --bind "$SOCKETS" "$0/run/csi" && exec chroot "$0" "$@"'
)
MOST_MIB = 110
"""Unpacked. Today 75."""
KUBECONFIG = "/run/csi/kubeconfig"
"""Where the pod sees it."""
# Its own files only, and of the machine the devices; nobody's rights, and nothing can be written.
AS_NOBODY = (
    'mount --bind "$0" "$0" && mount --rbind /dev "$0/dev" && mount -o remount,bind,ro "$0" && exec chroot --userspec=65534:65534 "$0" "$@"'
)
LOADED = """
import sys, sidecar.process, sidecar.wiring, sidecar.report_only, sidecar.commands.explain
for name, module in sys.modules.items():
    spec = getattr(module, "__spec__", None)
    if spec and spec.has_location and spec.origin.endswith(".py"):
        print(name, spec.cached)
"""
IMPORT_EXTENSIONS = """
import importlib, pathlib, sysconfig
for file in sorted(pathlib.Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")):
    importlib.import_module(file.name.partition(".")[0])
    print(file.name)
"""


@dataclass(frozen=True)
class Image:
    archive: Path
    root: Path
    settings: dict[str, Any]
    layers: list[str]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in self.settings["Env"])

    def run(self, *command: str, enter: str = report.IN_IMAGE) -> str:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", enter, str(self.root), *command],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module", autouse=True)
def machine() -> None:
    lacking = [tool for tool in ("apt-get", "dpkg-deb", "unshare") if not shutil.which(tool)]
    lacking += ["root's rights"] if os.geteuid() else []
    if lacking:
        not_tested("the image", f"for want of {', '.join(lacking)}")


def unpacked(archive: Path, root: Path) -> Image:
    with oci.opened(archive) as image:
        oci.extract(image, root)
        root.chmod(0o755)
        return Image(archive, root, image.config["config"], image.config["rootfs"]["diff_ids"])


@pytest.fixture(scope="module")
def image(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    root = tmp_path_factory.mktemp("image")
    yield unpacked(parts.sidecar(), root)
    shutil.rmtree(root)


def test_it_starts_as_the_dockerfile_says(image: Image) -> None:
    text = re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text()).rpartition("\nFROM ")[2]
    said = re.findall(r"^ENV (.*)$", text, re.MULTILINE)
    words = " ".join(said).replace("${REVISION}", "").split()
    assert words == [f"{name}={value}" for name, value in image.environment.items() if name != "PATH"]
    assert image.settings["Entrypoint"] == [PROGRAM] == json.loads(text.strip().splitlines()[-1].removeprefix("ENTRYPOINT "))
    assert "User" not in image.settings and "Cmd" not in image.settings


def test_its_labels_say_what_it_is_and_make_nothing_up(image: Image) -> None:
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image.settings["Labels"].items()}
    assert labels.pop("description")
    assert labels == {"title": "csi-node-sidecar", "licenses": "Apache-2.0", "version": sidecar.__version__}


def test_the_licence_and_the_attributions_are_in_it(image: Image) -> None:
    (told,) = (image.root / VENV).glob("lib/python3*/site-packages/csi_node_sidecar-*.dist-info/licenses")
    for name in ("LICENSE", "NOTICE"):
        assert (told / name).read_bytes() == (ROOT / name).read_bytes()


@pytest.mark.parametrize("enter", [report.IN_IMAGE, AS_NOBODY], ids=["root", "nobody-read-only"])
@pytest.mark.parametrize("program", [PROGRAM, UPSTREAMS, BY_NAME])
def test_the_program_runs_by_its_path_by_its_name_and_by_the_path_it_has_in_upstreams_image(image: Image, program: str, enter: str) -> None:
    assert image.run(program, "--version", enter=enter) == f"csi-node-sidecar {sidecar.__version__}\n"


@dataclass(frozen=True)
class Pod:
    """A cluster that speaks TLS, and what a kubelet gives a container: names and an address, a folder with CA and token."""

    image: Image
    driver: programs.OurDriver
    environment: dict[str, str]

    def command(self, *words: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", IN_A_POD, str(self.image.root), PROGRAM, *words]

    def ask(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environ = {**self.environment, **more}
        return subprocess.run(self.command(*words), check=False, capture_output=True, text=True, env=environ, timeout=60)


@pytest.fixture(scope="module")
def pod(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    work = tmp_path_factory.mktemp("pod")
    file, account = work / "kubeconfig", work / "account"
    serving = ["-m", "hack.sim.cluster.serve", "--write-kubeconfig", str(file), "--tls", str(work), "--token", "secret"]
    with (
        programs.Process("cluster", [sys.executable, *serving], work),
        programs.OurDriver(work, node="n1") as driver,
    ):
        until(lambda: file.is_file() and file.read_text().endswith("}\n"), "the cluster serves")
        (entry,) = json.loads(file.read_text())["clusters"]
        account.mkdir()
        (account / "ca.crt").write_bytes(base64.b64decode(entry["cluster"]["certificate-authority-data"]))
        (account / "token").write_text("secret")
        server = urlsplit(entry["cluster"]["server"])
        found_by = {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
        names = {"NODE_NAME": "n1", "NAMESPACE": "csi", "POD_NAME": "p"}
        places = {"ACCOUNT": str(SERVICE_ACCOUNT), "OF_THE_POD": str(account), "SOCKETS": str(work)}
        yield Pod(image, driver, {"PATH": os.environ["PATH"], **image.environment, **found_by, **names, **places})


@pytest.mark.parametrize("by", ["service account", "kubeconfig"])
def test_in_a_pod_the_program_finds_its_cluster_and_its_driver(by: str, pod: Pod, tmp_path: Path) -> None:
    found_by = {"KUBERNETES_SERVICE_HOST": "", "KUBECONFIG": KUBECONFIG} if by == "kubeconfig" else {}
    environ = {**pod.environment, **found_by}
    sidecar = programs.Sidecar(tmp_path, node="n1", address="/run/csi/n1.sock", kubeconfig="", environ=environ)
    (at,) = [at for at, word in enumerate(sidecar.command) if word == "sidecar"]
    flags = [word for word in sidecar.command[at + 1 :] if not word.startswith("--kubeconfig")]
    sidecar.command = pod.command(
        *flags, "--enable-capacity", "--capacity-ownerref-level=-1", "--drain-report", "--drain-gate", "--drain-gate-image=pause"
    )
    with sidecar:
        until(lambda: '"Caches are complete"' in sidecar.output(), f"it has listed everything: {sidecar.output()}", seconds=30)
    assert "Traceback" not in sidecar.output() and "ModuleNotFound" not in sidecar.output()


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "nodes", "--driver=d"],
        ["explain", "volumes", "--driver=d", "-o", "yaml"],
        ["label", "--driver=d", "--dry-run", "-o", "json"],
        ["uninstall", "--driver=d", "--dry-run"],
    ],
    ids=" ".join,
)
def test_in_a_pod_commands_find_their_cluster_and_that_of_a_kubeconfig(pod: Pod, words: list[str]) -> None:
    done = pod.ask(*words)
    assert done.returncode == 0, done.stderr
    outside = {"KUBERNETES_SERVICE_HOST": ""}
    for done in (pod.ask(*words, f"--kubeconfig={KUBECONFIG}", **outside), pod.ask(*words, KUBECONFIG=KUBECONFIG, **outside)):
        assert done.returncode == 0, done.stderr
    refused = pod.ask(*words, "--kubeconfig=/k")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1) and "kubeconfig /k: no such file" in refused.stderr


def test_in_a_pod_leftovers_asks_the_driver_alone(pod: Pod) -> None:
    done = pod.ask("leftovers", f"--driver={pod.driver.driver}", "--csi-address=/run/csi/n1.sock")
    assert done.returncode == 0, done.stderr


def test_in_a_pod_the_program_ends_with_one_line_over_a_kubeconfig_that_is_not_there(pod: Pod) -> None:
    for done in (pod.ask("--node-deployment", "--kubeconfig=/k"), pod.ask("--node-deployment", KUBECONFIG="/k")):
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("I")]
        assert done.returncode == 1 and "kubeconfig /k: no such file" in line


def test_it_tells_an_issue_what_it_is(image: Image) -> None:
    """Whoever builds at home has not said of which commit."""
    told = json.loads(image.run(PROGRAM, "version", "-o", "json"))
    assert (told["version"], told["gitCommit"], told["platform"]) == (sidecar.__version__, None, f"linux/{oci.architecture()}")


def test_everything_it_loads_has_its_bytecode(image: Image) -> None:
    modules = [line.split() for line in image.run(PYTHON, "-c", LOADED).splitlines()]
    missing = [name for name, cached in modules if not (image.root / cached.lstrip("/")).is_file()]
    assert len(modules) > 400 and missing == []
    assert {name.rpartition(".opt-")[2] for _, name in modules} == {"2.pyc"}


def test_bytecode_outlives_a_change_of_times(image: Image) -> None:
    files = list((image.root / VENV).rglob("*.pyc"))
    unchecked = (1).to_bytes(4, "little")  # PEP 552: by hash, and not compared
    assert len(files) > 400 and {file.read_bytes()[4:8] for file in files} == {unchecked}


def test_every_library_of_python_finds_what_it_links_to(image: Image) -> None:
    assert len(image.run(PYTHON, "-c", IMPORT_EXTENSIONS).splitlines()) > 30


def test_it_is_small(image: Image) -> None:
    assert sum(report.sizes(image.root).values()) < MOST_MIB * 2**20


def test_nothing_of_the_build_is_left(image: Image) -> None:
    packages = {path.name for path in (image.root / VENV).glob("lib/python3*/site-packages/*")}
    assert {"sidecar", "csi_proto", "grpc"} <= packages
    assert packages.isdisjoint({"pip", "setuptools", "pkg_resources", "pytest", "hatchling", "tests", "grpc_tools", "psutil"})
    names = {path.name for path in image.root.rglob("*") if not path.is_dir()}
    assert {"csi-node-sidecar", "python3"} <= names
    assert names.isdisjoint({"gcc", "cc", "pip", "pip3", "sh", "bash", "dpkg", "apt-get", "pip.conf", "resolv.conf", "hosts"})
    assert not [name for name in names if name.startswith("constraints") and name.endswith(".txt")]
    empty = [
        name for name in ("src", "opt/build", "tmp", "root", "root/.cache", "var/cache/apt/archives") if any((image.root / name).glob("*"))
    ]
    assert empty == []


def test_files_are_as_the_build_found_them_and_nowhere_is_its_machine_named(image: Image) -> None:
    ours = (image.root / VENV).glob("lib/python3*/site-packages/sidecar")
    (package,) = ours
    assert (package / "cli.py").read_bytes() == (ROOT / "sidecar/cli.py").read_bytes()
    told = [path for path in image.root.rglob("*") if path.is_file() and path.suffix in (".cfg", ".json", ".txt", ".conf", "")]
    named = [path for path in told if path.stat().st_size < 2**20 and str(ROOT).encode() in path.read_bytes()]
    assert len(told) > 100 and named == []


def test_an_sbom_lists_what_was_pinned_and_the_packages_of_the_base(image: Image) -> None:
    found = sbom.components(image.root)
    assert_is_spdx(sbom.document(parts.SIDECAR, digest="sha256:" + "0" * 64, found=found))
    assert [one.license for one in found if one.name == "csi-node-sidecar"] == ["Apache-2.0"]
    pins = parse((ROOT / "hack/constraints-image.txt").read_text())
    wheels = {simple(one.name): one.version for one in found if one.purl.startswith("pkg:pypi/")}
    assert wheels.pop("csi-node-sidecar") == sidecar.__version__
    assert {"grpcio", "protobuf"} <= set(wheels) and wheels.keys().isdisjoint({"kubernetes", "prometheus-client", "aiohttp"})
    assert wheels == {name: pin.version for name, pin in pins.items()}
    assert {"libc6", "libssl3", "libstdc++6", "ca-certificates"} <= {one.name for one in found if one.purl.startswith("pkg:deb/debian/")}


def test_authorities_are_known(image: Image) -> None:
    script = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    bundle = (image.root / "etc/ssl/certs/ca-certificates.crt").read_text()
    assert int(image.run(PYTHON, "-c", script)) == bundle.count("BEGIN CERTIFICATE") > 100


def test_the_simulation_is_not_in_it_and_the_program_says_so(image: Image) -> None:
    (package,) = (image.root / VENV).glob("lib/python3*/site-packages/sidecar")
    assert not (package / "simulation").exists()
    said = image.run(PYTHON, "-c", "import sys; from sidecar import cli; sys.stderr = sys.stdout; print(cli.main(['simulate', 'race']))")
    assert "the container image has no simulation" in said and said.endswith("\n1\n")


def test_the_drivers_image_is_the_same_files_and_the_simulation_started_otherwise(image: Image, tmp_path: Path) -> None:
    other = unpacked(parts.driver(), tmp_path)
    assert other.layers[:-1] == image.layers
    assert "--kubelet-registration-dir" in other.run(*other.settings["Entrypoint"], "--help")


def test_a_report_tells_sizes_starts_and_where_the_sbom_is(image: Image, tmp_path: Path) -> None:
    text = report.of(image.archive, sbom_file=tmp_path / "sbom.json")
    assert_is_spdx(json.loads((tmp_path / "sbom.json").read_text()))
    unpacked_size, compressed = map(float, re.search(r"([\d.]+) MiB in \d+ files; ([\d.]+) MiB compressed", text).groups())  # type: ignore[union-attr]
    assert 0 < compressed < unpacked_size
    assert "| grpc |" in text and str(tmp_path / "sbom.json") in text
    times = [int(number) for number in re.findall(r"(\d+) ms", text)]
    assert len(times) == 3 and 0 < times[0] < times[1] <= times[2]


def test_busybox_is_a_shell_with_its_tools(tmp_path: Path) -> None:
    busybox = unpacked(parts.busybox(), tmp_path)
    assert busybox.settings["Cmd"] == ["/bin/sh"] and busybox.environment == {"PATH": "/bin"}
    enter = f'exec {shutil.which("chroot")} "$0" "$@"'  # its PATH is not the machine's
    assert busybox.run("/bin/sh", "-c", "echo x >/tmp/f && cat /tmp/f && wget --help 2>&1 | head -n 1", enter=enter).startswith(
        "x\nBusyBox"
    )
