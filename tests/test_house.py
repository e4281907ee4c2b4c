"""The floors hold, and the guard that says so can fail: for each contract there is a breach that is planted here and caught."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = [item["name"] for item in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]]
EFFECTS = "effects have files of their own"
# Contract, the module in which a line is planted, and the line.
BREACHES = [
    ("rooms sit on floors", "model.objects", "import sidecar.kube.api"),
    ("rooms sit on floors", "capacity.rules", "import sidecar.provisioning.rules"),
    (EFFECTS, "provisioning.rules", "import asyncio"),
    (EFFECTS, "ownership.rules", "import logging"),
    (EFFECTS, "capacity.view", "import sidecar.capacity.controller"),
    (EFFECTS, "drain.judgement.assess", "async def f(it): await it"),
    (EFFECTS, "tracing.tracer", "import time"),
    ("rooms sit on floors", "tracing.controller", "import sidecar.provisioning.rules"),
    ("the motor knows neither storage nor Kubernetes", "engine.queue", "import sidecar.model.names"),
    ("rooms are given values, not configuration", "provisioning.controller", "import sidecar.config"),
    ("rooms are given values, not configuration", "ownership.rules", "import sidecar.config"),
    ("rooms are given values, not configuration", "drain.settings", "import sidecar.config.table"),
    ("rooms are given values, not configuration", "capacity.rules", "import sidecar.config.config"),
    ("rooms are given values, not configuration", "tracing.variables", "import sidecar.config.config"),
    ("the configuration sits on floors", "config.gates", "import sidecar.config.table"),
    ("kubernetes enters by kube.kubeconfig_plugins only", "capacity.controller", "import kubernetes"),
    ("prometheus_client is for tests: to load it is a tenth of a start", "observe.server", "import prometheus_client"),
    ("aiohttp is for tests", "observe.pages", "import aiohttp"),
    ("grpc enters by csi.channel and csi.driver only", "provisioning.controller", "import grpc"),
    ("csi_proto enters by csi.codec and csi.driver only", "provisioning.request", "import csi_proto"),
    ("sidecar.doors alone opens the doors; everyone else holds a Protocol", "provisioning.controller", "import sidecar.kube.client"),
    ("the program stands without its tools and its simulation", "wiring", "import hack.sim"),
]


def said_of(contract: str, module: str, line: str) -> str:
    """What the report has to say: which module, and what of it."""
    imported = line.removeprefix("import ")
    if contract != EFFECTS:
        return f"sidecar.{module} -> {imported}"
    return f"sidecar.{module} imports {imported}" if imported != line else f"sidecar.{module} awaits"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    # The command's own entry point, found beside the interpreter that runs the tests.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(folder), "PATH": ""})


def copied(folder: Path) -> Path:
    for name in ("sidecar", "csi_proto", "hack/lib"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By contract, what is reported of it where all the breaches are planted at once: a run takes seconds."""
    folder = copied(tmp_path_factory.mktemp("planted"))
    for _, module, line in BREACHES:
        with (folder / "sidecar" / module.replace(".", "/")).with_suffix(".py").open("a") as planted:
            planted.write(f"\n{line}\n")
    done = lint_imports(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    headings = {name: f"\n{name}\n{'-' * len(name)}\n" for name in CONTRACTS}
    starts = sorted((done.stdout.find(heading), name) for name, heading in headings.items() if heading in done.stdout)
    ends = [at for at, _ in starts[1:]] + [len(done.stdout)]
    return {name: " ".join(done.stdout[start:end].split()) for (start, name), end in zip(starts, ends, strict=True)}


def test_the_import_contracts_hold(tmp_path: Path) -> None:
    done = lint_imports(copied(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_breach_of_every_contract_is_planted() -> None:
    assert {contract for contract, *_ in BREACHES} == set(CONTRACTS)


@pytest.mark.parametrize(("contract", "said"), [(contract, said_of(contract, module, line)) for contract, module, line in BREACHES])
def test_a_planted_breach_is_found(reports: dict[str, str], contract: str, said: str) -> None:
    assert said in reports.get(contract, ""), reports


def test_a_listed_file_that_is_gone_or_pure_is_found(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "sidecar" / "capacity" / "owner.py").write_text("")
    settings = folder / "pyproject.toml"
    settings.write_text(settings.read_text().replace('"sidecar.capacity.owner",', '"sidecar.capacity.owner", "sidecar.gone",'))
    done = lint_imports(folder)
    said = " ".join(done.stdout.split())
    assert "sidecar.gone is listed, and there is no such file" in said
    assert "sidecar.capacity.owner is listed under `effects` and has none" in said


def imported_by(file: Path) -> set[str]:
    """Every module that the file names in an import, and what it takes from them: `from tests import x` counts as `tests.x`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_no_test_module_imports_another() -> None:
    guilty = {
        (str(file.relative_to(ROOT)), name)
        for file in (ROOT / "tests").rglob("*.py")
        for name in imported_by(file)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split(".")[1:])
    }
    assert not guilty, "move what they share into tests/harness"


def test_the_commands_of_hack_import_nothing_of_the_tests() -> None:
    programs = [
        file
        for file in (ROOT / "hack").rglob("*")
        if file.is_file() and (file.suffix == ".py" or file.read_bytes().startswith(b"#!/usr/bin/env python3"))
    ]
    assert len(programs) > 50
    assert not [(file.name, name) for file in programs for name in imported_by(file) if name.partition(".")[0] == "tests"]
