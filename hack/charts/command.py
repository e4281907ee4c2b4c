"""Renders the kustomizations with placeholders, and writes or compares the files of the chart."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hack.charts.placeholders import SETTINGS
from hack.charts.sources import SOURCES, Source, template, types
from hack.lib.control_plane import REPOSITORY, binaries

Json = dict[str, Any]
DEPLOY = REPOSITORY / "deploy"
CHART = DEPLOY / "chart"
SECONDS_TO_RENDER = 60


def run(*, is_check: bool) -> int:
    made = files()
    if not is_check:
        for file, text in made.items():
            file.write_text(text)
        return 0
    old = [file for file, text in made.items() if not file.exists() or file.read_text() != text]
    for file in old:
        sys.stderr.write(f"chart: {file.relative_to(REPOSITORY)} is not what its source is now: run hack/chart\n")
    return 1 if old else 0


def files() -> dict[Path, str]:
    found = {name: _objects(source) for name, source in SOURCES.items()}
    made = {CHART / "templates" / f"{name}.yaml": template(source, found[name]) for name, source in SOURCES.items()}
    return made | {CHART / "crds" / "nodedrainreports.yaml": types(found["drain"])}


def _objects(source: Source) -> Sequence[Json]:
    if source.of.endswith(".yaml"):
        return list(yaml.safe_load_all((DEPLOY / "base" / source.of).read_text()))
    with tempfile.TemporaryDirectory(prefix=".chart-", dir=DEPLOY) as folder:
        return _rendered(Path(folder), (source.of, *source.beside))


def _rendered(folder: Path, components: Sequence[str]) -> Sequence[Json]:
    """Kustomize takes components by relative path only, so the folder is one of deploy's."""
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "csi-node-sidecar-settings", "annotations": {"config.kubernetes.io/local-config": "true"}},
        "data": dict(SETTINGS),
    }
    build = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["settings.yaml"],
        "components": [f"../components/{name}" for name in components],
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(build))
    command = [str(binaries("core") / "kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_TO_RENDER)
    if done.returncode:
        raise SystemExit(f"chart: {components[0]} cannot be rendered: {done.stderr.strip()}")
    return list(yaml.safe_load_all(done.stdout))
