"""The manifests below deploy/, as kustomize renders them and as they lie in their files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hack.lib.control_plane import REPOSITORY, binaries

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


def granted(rules: Iterable[Json]) -> set[tuple[str, str, str]]:
    assert not any(rule.keys() - {"apiGroups", "resources", "verbs"} for rule in rules)
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


DIGEST = "@sha256:" + "0123456789abcdef" * 4


def foreign_daemon_set(*provisioners: Json) -> Json:
    """The DaemonSet of somebody else's driver, with these containers between its own."""
    others = [
        {"name": "node-driver-registrar", "image": "registry.example/sig-storage/csi-node-driver-registrar:v2.15.0"},
        {"name": "driver", "image": f"example.com/csi-provisioner/driver:v1{DIGEST}", "ports": [{"containerPort": 9898}]},
        {"name": "liveness-probe", "image": "registry.example/sig-storage/livenessprobe:v2.17.0"},
    ]
    pod = {
        "containers": [*others[:1], *provisioners, *others[1:]],
        "volumes": [{"name": "socket-dir", "hostPath": {"path": "/var/lib/kubelet/plugins/x", "type": "DirectoryOrCreate"}}],
    }
    labels = {"app": "plugin"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "plugin", "namespace": "default", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
