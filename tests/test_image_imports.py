"""What the image leaves out is what a pod never asks for: `run` and all commands live without it, and a kubeconfig ends with one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sidecar.kube
from hack.pins.command import not_in_the_image, roots
from hack.pins.pin import simple
from sidecar.cli import main

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
READER = "kube/kubeconfig.py"
IN_THE_IMAGE = {"grpc": "grpcio", "google": "protobuf"}
"""Modules, and the packages that bring them."""
IMPORT = re.compile(r"^\s*(?:from|import) +(\w+)", re.MULTILINE)


def imports(text: str) -> set[str]:
    """Of whatever kind, also those inside of functions."""
    return set(IMPORT.findall(re.sub(r'"""(?s:.*?)"""', "", text)))


def sources() -> dict[str, str]:
    """Of what is in the image."""
    package = ROOT / "sidecar"
    names = {str(file.relative_to(package)): file for file in package.rglob("*.py")}
    return {name: file.read_text() for name, file in names.items() if not name.startswith("simulation/")}


def test_imports_are_found_wherever_they_stand() -> None:
    text = (
        '"""import not_this"""\nimport a.b\nfrom c import d\ndef f():\n    try:\n        from e.f import g\n    except ImportError: ...\n'
    )
    assert imports(text) == {"a", "c", "e"}


def test_one_file_asks_for_what_the_image_leaves_out() -> None:
    """Of all files, also of those that nobody loads today: nothing that is asked for in a pod is missing there."""
    known = {"sidecar", "csi_proto", *IN_THE_IMAGE, *sys.stdlib_module_names}
    strangers = {name: found for name, text in sources().items() if (found := imports(text) - known)}
    assert strangers == {READER: {"kubernetes", "yaml"}}


def test_that_file_is_loaded_only_where_a_kubeconfig_is_named() -> None:
    asking = re.compile(r"sidecar\.kube import .*\bkubeconfig\b|(?:import|from) sidecar\.kube\.kubeconfig")
    where = {name: text[: found.start()].splitlines()[-3:] for name, text in sources().items() if (found := asking.search(text))}
    assert where.keys() == {"start.py", "kube/credentials.py"}
    assert all(re.search(r"if (self\._|config\.)kubeconfig:\n", "\n".join(lines)) for lines in where.values())


def test_nothing_is_loaded_by_a_name_that_is_made_up() -> None:
    assert [name for name, text in sources().items() if "import_module" in text or "__import__" in text] == []


def test_the_image_has_the_other_dependencies() -> None:
    left_out = not_in_the_image(PYPROJECT)
    asked = roots(PYPROJECT)
    assert {simple(re.split(r"[<>=]", text)[0]) for text in asked["image"]} == set(IN_THE_IMAGE.values())
    assert left_out == {"kubernetes", "pyyaml", "prometheus-client"}
    assert all(any(text.startswith(name) for text in asked["tests"]) for name in left_out), "the wheel requires them"


# --- without them -----------------------------------------------------------------------------------------------------


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is as one of the image: what is not there cannot be imported."""
    monkeypatch.delitem(sys.modules, "sidecar.kube.kubeconfig", raising=False)
    monkeypatch.delattr(sidecar.kube, "kubeconfig", raising=False)
    for name in ("kubernetes", "yaml"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "nodes"],
        ["explain", "node", "n1", "-o", "json"],
        ["explain", "pvc", "default/c"],
        ["label"],
        ["node", "retire", "n1", "--yes"],
        ["uninstall"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("by", ["flag", "variable"])
@pytest.mark.usefixtures("without")
def test_a_kubeconfig_ends_a_command_in_the_image_with_one_line(
    words: list[str], by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if by == "variable":
        monkeypatch.setenv("KUBECONFIG", "/k")
    driver = [] if words[0] == "node" else ["--driver=d"]
    code = main([*words, *driver, *(["--kubeconfig=/k"] if by == "flag" else [])])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.count("\n") == 1 and "kubeconfig /k cannot be read here" in err
    assert all(
        part in err
        for part in ("no Python module", "container image", "remove --kubeconfig", "service account", "install the Python package")
    )


WITHOUT = "import sys; sys.modules.update(kubernetes=None, yaml=None); from sidecar.cli import main; sys.exit(main())"


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_kubeconfig_ends_the_program_in_the_image_with_one_line(by: str, tmp_path: Path) -> None:
    words = ["--node-deployment", *(["--kubeconfig=/k"] if by == "flag" else [])]
    environ = {
        "NODE_NAME": "n1",
        "NAMESPACE": "csi",
        "POD_NAME": "p",
        "PYTHONPATH": str(ROOT),
        **({} if by == "flag" else {"KUBECONFIG": "/k"}),
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], check=False, capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=60
    )
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("I")]
    assert done.returncode == 1 and "kubeconfig /k cannot be read here" in line and "remove --kubeconfig" in line
