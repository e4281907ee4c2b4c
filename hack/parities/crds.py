"""The CustomResourceDefinitions of snapshots and ReferenceGrants, from the Go modules that the peer is built with."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from hack.lib import cache
from hack.lib.control_plane import REPOSITORY

SNAPSHOTTER = "github.com/kubernetes-csi/external-snapshotter/client/v8"
GATEWAY = "sigs.k8s.io/gateway-api"
KINDS = ("volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots")
PINNED_BY = REPOSITORY / "hack" / "go" / "csi-provisioner"
SECONDS_TO_FETCH = 240


def manifests() -> list[Path]:
    """Of snapshots, one file for each kind."""
    folder = _module_folder(SNAPSHOTTER) / "config" / "crd"
    return [folder / f"snapshot.storage.k8s.io_{kind}.yaml" for kind in KINDS]


def reference_grants() -> Path:
    """The manifest of ReferenceGrant, which lets one namespace use objects of another."""
    return _module_folder(GATEWAY) / "config" / "crd" / "standard" / "gateway.networking.k8s.io_referencegrants.yaml"


def _module_folder(module: str) -> Path:
    tool = _control_plane()
    command = [str(tool.find_go(cache.root())), "mod", "download", "-json", module]
    environment = {**os.environ, **tool.GO_ENVIRONMENT}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PINNED_BY, env=environment, timeout=SECONDS_TO_FETCH)
    if done.returncode:
        raise SystemExit(f"hack/parity: the module {module} cannot be fetched: {done.stderr or done.stdout}")
    return Path(json.loads(done.stdout)["Dir"])


def _control_plane() -> ModuleType:
    """hack/control-plane knows where Go is; it is a script, and has no ending that an import would look for."""
    loader = SourceFileLoader("hack_control_plane", str(REPOSITORY / "hack" / "control-plane"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module
