"""The generated messages are what csi.proto says; nobody edits them by hand, and nobody forgets to regenerate them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def check(root: Path, *, python: tuple[str, ...] = (sys.executable,)) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*python, str(root / "hack/generate-proto"), "--check"], capture_output=True, text=True, check=False)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack/generate-proto", tmp_path / "hack")
    shutil.copytree(ROOT / "csi_proto", tmp_path / "csi_proto")
    return tmp_path


def test_the_generated_code_is_up_to_date() -> None:
    result = check(ROOT)
    assert result.returncode == 0, result.stderr


def test_a_change_of_the_proto_is_noticed_and_nothing_is_written(copied: Path) -> None:
    proto, generated = copied / "csi_proto/csi.proto", copied / "csi_proto/csi_pb2.pyi"
    proto.write_text(proto.read_text().replace("string vendor_version = 2;", "string vendors_version = 2;"))
    before = generated.read_text()
    result = check(copied)
    assert result.returncode == 1
    assert "vendors_version" in result.stderr
    assert "run hack/generate-proto" in result.stderr
    assert generated.read_text() == before


def test_regenerating_mends_an_edit(copied: Path) -> None:
    (copied / "csi_proto/csi_pb2.py").write_text("# edited by hand\n")
    (copied / "csi_proto/csi_pb2.pyi").unlink()
    assert check(copied).returncode == 1
    subprocess.run([sys.executable, str(copied / "hack/generate-proto")], check=True)
    assert check(copied).returncode == 0
    for name in ("csi_pb2.py", "csi_pb2.pyi"):
        assert (copied / "csi_proto" / name).read_bytes() == (ROOT / "csi_proto" / name).read_bytes()


def test_without_grpcio_tools_it_says_what_to_install(copied: Path) -> None:
    result = check(copied, python=(sys.executable, "-I", "-S"))
    assert result.returncode == 2
    assert "pip install" in result.stderr
