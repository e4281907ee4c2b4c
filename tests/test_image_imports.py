"""What the image leaves out is what only plug-ins of kubeconfigs ask for: commands live without it, and a plug-in ends with one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sidecar.kube
from sidecar.cli import main

ROOT = Path(__file__).resolve().parents[1]
READER = "kube/kubeconfig_plugins.py"
IN_THE_IMAGE = {"grpc", "google", "yaml"}
IMPORT = re.compile(r"^\s*(?:from|import) +(\w+)", re.MULTILINE)


def imports(text: str) -> set[str]:
    """Of whatever kind, also those inside of functions."""
    return set(IMPORT.findall(re.sub(r'"""(?s:.*?)"""', "", text)))


def sources() -> dict[str, str]:
    """Of what is in the image."""
    package = ROOT / "sidecar"
    names = {str(file.relative_to(package)): file for file in package.rglob("*.py")}
    return {name: file.read_text() for name, file in names.items()}


def test_one_file_asks_for_what_the_image_leaves_out() -> None:
    """Of all files, also of those that nobody loads today: nothing that is asked for in a pod is missing there."""
    known = {"sidecar", "csi_proto", *IN_THE_IMAGE, *sys.stdlib_module_names}
    strangers = {name: found for name, text in sources().items() if (found := imports(text) - known)}
    assert strangers == {READER: {"kubernetes"}}


# --- without them -----------------------------------------------------------------------------------------------------

USERS = {
    "exec": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true", "interactiveMode": "Never"}},
    "auth-provider": {"auth-provider": {"name": "oidc"}},
}


def written(folder: Path, user: dict[str, Any]) -> Path:
    file = folder / "k"
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}]
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "me"}}]
    content = {"clusters": clusters, "contexts": contexts, "users": [{"name": "me", "user": user}], "current-context": "x"}
    file.write_text(json.dumps(content))
    return file


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is as one of the image: what is not there cannot be imported."""
    monkeypatch.delitem(sys.modules, "sidecar.kube.kubeconfig_plugins", raising=False)
    monkeypatch.delattr(sidecar.kube, "kubeconfig_plugins", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)


@pytest.mark.usefixtures("without")
def test_a_plugin_ends_a_command_in_the_image_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for plugin, user in USERS.items():
        for words in (["explain", "nodes"], ["node", "retire", "n1", "--yes"]):
            assert main([*words, f"--kubeconfig={written(tmp_path, user)}"]) == 1
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert f'user "me" gets credentials by {plugin}' in err
            assert "no Python module kubernetes" in err and "give it a token" in err


WITHOUT = "import sys; sys.modules.update(kubernetes=None); from sidecar.cli import main; sys.exit(main())"


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_plugin_ends_the_program_in_the_image_with_one_line(by: str, tmp_path: Path) -> None:
    file = written(tmp_path, USERS["exec"])
    words = ["--node-deployment", *([f"--kubeconfig={file}"] if by == "flag" else [])]
    pod = {"NODE_NAME": "n1", "NAMESPACE": "csi", "POD_NAME": "p", "PYTHONPATH": str(ROOT)}
    environ = pod if by == "flag" else {**pod, "KUBECONFIG": str(file)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], check=False, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=60
    )
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("I")]
    assert done.returncode == 1 and "gets credentials by exec, which cannot be asked here" in line
