"""The manifests below deploy/, as kustomize renders them and as they lie in their files."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.controlplane import REPOSITORY, binaries

Json = dict[str, Any]

DEPLOY = REPOSITORY / "deploy"
NAMESPACE, DRIVER = "csi-node-sidecar", "local.csi-node-sidecar.io"
SECONDS_TO_RENDER = 60


def kustomizations() -> list[Path]:
    """Folders that can be applied as they are. Components cannot: they change what others bring."""
    files = sorted(DEPLOY.rglob("kustomization.yaml"))
    return [file.parent for file in files if yaml.safe_load(file.read_text())["kind"] == "Kustomization"]


def rendered(folder: Path) -> list[Json]:
    """What `kubectl apply -k` would send."""
    command = [str(_kubectl()), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_TO_RENDER)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@cache
def _kubectl() -> Path:
    return binaries("core") / "kubectl"


def written(*parts: str) -> list[Json]:
    """The objects of one file below deploy/."""
    return list(yaml.safe_load_all(DEPLOY.joinpath(*parts).read_text()))


def the(kind: str, objects: list[Json], name: str = "") -> Json:
    """The one object of this kind."""
    found = [item for item in objects if item["kind"] == kind and (not name or item["metadata"]["name"] == name)]
    assert len(found) == 1, f"{len(found)} objects are a {kind} {name}"
    return found[0]


def containers(daemon_set: Json) -> dict[str, Json]:
    return {item["name"]: item for item in daemon_set["spec"]["template"]["spec"]["containers"]}
