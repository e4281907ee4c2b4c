"""What is shipped: the wheel's content, its command, and exactly the run-time dependencies that were agreed on."""

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import sidecar
from sidecar.csi.version import CSI_VERSION

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    (entry,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    return message_from_string(wheel.read(entry).decode())


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names} == {"sidecar", "csi_proto", f"csi_node_sidecar-{sidecar.__version__}.dist-info"}
    assert {"sidecar/cli.py", "sidecar/py.typed", "csi_proto/csi_pb2.py"} <= names
    assert not [name for name in names if name.endswith(".md")]


def test_the_wheel_brings_a_plugin_of_kubectl(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile", "--prefix", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel.filename)], check=True)
    (packages,) = tmp_path.glob("lib/python3*/site-packages")
    links = tmp_path / "links"  # as krew does, and deploy/commands/README.md
    links.mkdir()
    for name, words in (("csi-node-sidecar", "csi-node-sidecar"), ("kubectl-csi_node", "kubectl csi-node")):
        (links / name).symlink_to(tmp_path / "bin" / name)
        environ = {"PATH": f"{links}:{os.environ['PATH']}", "PYTHONPATH": str(packages), "HOME": str(tmp_path)}
        done = subprocess.run([name, "explain", "node", "--help"], check=True, capture_output=True, text=True, env=environ, cwd=tmp_path)
        assert done.stdout.startswith(f"usage: {words} explain node NAME [flags]\n")


def test_the_wheel_says_its_licence_and_carries_it(wheel: zipfile.ZipFile) -> None:
    metadata = metadata_of(wheel)
    assert metadata["License-Expression"] == "Apache-2.0"
    # An index refuses a wheel that has both.
    assert not [name for name in metadata.get_all("Classifier", []) if name.startswith("License ::")]
    carried = {name.rpartition("/licenses/")[2]: name for name in wheel.namelist() if "/licenses/" in name}
    assert {name: wheel.read(place) for name, place in carried.items()} == {
        name: (ROOT / name).read_bytes() for name in ("LICENSE", "NOTICE")
    }


def test_run_time_dependencies(wheel: zipfile.ZipFile) -> None:
    metadata = metadata_of(wheel)
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    fixed = {"grpcio", "protobuf", "kubernetes", "pyyaml", "prometheus-client"}
    assert {re.split(r"[<>=!~ ]", line)[0] for line in required} == fixed
    assert "kubernetes<38,>=37.0.2" in required
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_image_runs_the_program_as_whoever_it_is_told_to() -> None:
    """Like upstream's, so that an unchanged DaemonSet reaches a root-owned socket."""
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"^USER\b", text, re.MULTILINE)
    assert text.rstrip().splitlines()[-1].startswith("ENTRYPOINT [")


def test_the_generated_messages_are_what_csi_proto_says() -> None:
    done = subprocess.run([sys.executable, ROOT / "hack/generate-proto", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = re.match(r"// Container Storage Interface v(\d+\.\d+\.\d+):", (ROOT / "csi_proto/csi.proto").read_text())
    assert told and told[1] == CSI_VERSION
