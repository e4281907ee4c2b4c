"""The floors hold, and the guard that says so can fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    # The command's own entry point, found beside the interpreter that runs the tests.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(folder), "PATH": ""})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("sidecar", "csi_proto"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_contracts_hold(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("engine/queue.py", "import sidecar.model.names", "the motor knows neither storage nor Kubernetes"),
        ("provisioning/rules.py", "import asyncio", "pure files stay pure"),
        ("model/objects.py", "import sidecar.kube.api", "rooms sit on floors"),
        ("capacity/controller.py", "import kubernetes", "kubernetes enters by kube.kubeconfig only"),
        ("provisioning/controller.py", "import grpc", "grpc enters by csi.channel"),
        ("provisioning/controller.py", "import sidecar.config", "rooms are given values"),
        ("provisioning/controller.py", "import sidecar.kube.client", "only wiring opens the doors"),
        ("wiring.py", "import sidecar.simulation", "never loads the simulation"),
    ],
)
def test_a_planted_breach_is_found(copy: Path, file: str, line: str, contract: str) -> None:
    planted = copy / "sidecar" / file
    planted.write_text(f"{planted.read_text()}\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode == 1
    broken = [text for text in done.stdout.splitlines() if " BROKEN" in text]
    assert any(contract in text for text in broken), done.stdout
