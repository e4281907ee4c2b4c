"""What `version` says of the program, and where that comes from."""

import json
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sidecar
from sidecar.commands import version
from sidecar.config.errors import UsageError
from sidecar.csi.version import CSI_VERSION

ROOT = Path(__file__).resolve().parents[2]

USAGE = "usage: csi-node-sidecar version [-o json]"


def said(capsys: pytest.CaptureFixture[str], *words: str, **environ: str) -> str:
    assert version.run(words, environ) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("-o", "text")])
def test_one_line_for_people(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert said(capsys, *words) == f"csi-node-sidecar {sidecar.__version__}\n"


@pytest.mark.parametrize("words", [("-o", "json"), ("-ojson",), ("--output=json",)])
def test_json_says_what_an_issue_needs(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    told = json.loads(said(capsys, *words))
    assert told == {
        "version": sidecar.__version__,
        "gitCommit": None,
        "csi": CSI_VERSION,
        "python": platform.python_version().rstrip("+"),
        "platform": told["platform"],
    }
    system, _, architecture = told["platform"].partition("/")
    assert system == platform.system().lower() and architecture not in ("", "x86_64", "aarch64")


@pytest.mark.parametrize(("variable", "commit"), [("0123abc", "0123abc"), ("", None)], ids=["told", "not told"])
def test_the_commit_is_the_one_that_the_image_says(capsys: pytest.CaptureFixture[str], variable: str, commit: str | None) -> None:
    environ = {version.REVISION: variable}
    assert json.loads(said(capsys, "-o", "json", **environ))["gitCommit"] == commit


def test_the_dockerfile_hands_the_commit_to_the_program() -> None:
    text = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert f"\nARG REVISION=\nENV {version.REVISION}=${{REVISION}}\n" in text


@pytest.mark.parametrize("words", [("-o", "xml"), ("it",), ("--kubeconfig=k",), ("--nonsense",)])
def test_what_it_does_not_take_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        version.run(words, {})
    assert USAGE in refused.value.messages


def test_help_is_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--help") == f"{USAGE}\n"


def test_to_say_it_neither_messages_nor_clients_are_loaded() -> None:
    script = "import sys; from sidecar.cli import main; main(['version', '-o', 'json']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {"grpc", "google.protobuf", "csi_proto", "kubernetes", "asyncio"}.isdisjoint(done.stderr.split())


def test_the_version_stands_in_one_place() -> None:
    """Packaging reads it there, and so do hack/image and hack/release, whose tests say so."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["dynamic"] == ["version"] and "version" not in settings["project"]
    assert settings["tool"]["hatch"]["version"] == {"path": "sidecar/__init__.py"}
    assert "\nARG VERSION=\n" in (ROOT / "Dockerfile").read_text()
