"""The Helm chart, and what Helm makes of it."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hack.lib.control_plane import binaries
from tests.deploy.manifests import DEPLOY, NAMESPACE, Json

CHART = DEPLOY / "chart"
RELEASE = "csi-node-sidecar"
SIDECAR = "csi-provisioner"
Values = dict[str, Any]


@cache
def _helm() -> Path:
    return binaries("core", "helm") / "helm"


def helm(*arguments: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
    given = ["--values=-"] if values is not None else []
    text = None if values is None else json.dumps(values)
    return subprocess.run([_helm(), *arguments, *given], input=text, capture_output=True, text=True, check=False, timeout=60)


def templated(values: Values, *, namespace: str = NAMESPACE, release: str = RELEASE) -> list[Json]:
    done = helm("template", release, str(CHART), f"--namespace={namespace}", "--include-crds", values=values)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


ON: Values = {"enabled": True}
GATE: Values = ON | {"guardImage": "docker.io/library/pause:dev"}
