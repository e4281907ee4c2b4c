"""What is shipped: the wheel's content, its command, and exactly the run-time dependencies that were agreed on."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import sidecar
from hack.lib import cache

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names} == {"sidecar", "csi_proto", f"csi_node_sidecar-{sidecar.__version__}.dist-info"}
    assert {"sidecar/cli.py", "sidecar/py.typed", "csi_proto/csi_pb2.py"} <= names
    assert not [name for name in names if name.endswith(".md")]


def test_the_command_is_installed(wheel: zipfile.ZipFile) -> None:
    (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "csi-node-sidecar = sidecar.cli:main" in wheel.read(entry).decode()


def kubectl() -> str | None:
    """The machine's, or the one that was built for the tests' control plane."""
    built = sorted(cache.root().glob("control-plane-*/kubectl"))
    return shutil.which("kubectl") or (str(built[-1]) if built else None)


def test_the_wheel_brings_a_plugin_of_kubectl(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile", "--prefix", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel.filename)], check=True)
    (packages,) = tmp_path.glob("lib/python3*/site-packages")
    links = tmp_path / "links"  # as krew does, and deploy/commands/README.md
    links.mkdir()
    for name in ("csi-node-sidecar", "kubectl-csi_node"):
        (links / name).symlink_to(tmp_path / "bin" / name)
    environ = {"PATH": f"{links}:{os.environ['PATH']}", "PYTHONPATH": str(packages), "HOME": str(tmp_path)}

    def said(*command: str) -> tuple[int, str, str]:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=60)
        return done.returncode, done.stdout, done.stderr

    for program, words in ((["csi-node-sidecar"], "csi-node-sidecar"), (["kubectl-csi_node"], "kubectl csi-node")):
        assert said(*program, "version") == (0, f"csi-node-sidecar {sidecar.__version__}\n", "")
        code, out, _ = said(*program, "explain", "node", "--help")
        assert code == 0 and out.startswith(f"usage: {words} explain node NAME [flags]\n")
    if found := kubectl():
        assert said(found, "csi-node", "help", "uninstall") == said("kubectl-csi_node", "help", "uninstall")
        assert said(found, "csi-node", "nonsense")[0] == 2


def test_run_time_dependencies(wheel: zipfile.ZipFile) -> None:
    (entry,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    metadata = message_from_string(wheel.read(entry).decode())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    fixed = {"grpcio", "protobuf", "kubernetes", "pyyaml", "prometheus-client"}
    assert {re.split(r"[<>=!~ ]", line)[0] for line in required} == fixed
    assert "kubernetes<38,>=37.0.2" in required
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_constraints_name_versions_and_no_addresses() -> None:
    lines = [line for line in (ROOT / "hack" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)


def test_the_image_runs_the_program_as_whoever_it_is_told_to() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"^USER\b", text, re.MULTILINE)
    assert text.rstrip().splitlines()[-1].startswith("ENTRYPOINT [")
