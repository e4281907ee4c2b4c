"""The CustomResourceDefinitions of snapshots and ReferenceGrants, from the Go modules that the peer is built with."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from hack.lib import cache
from hack.lib.command import Failure
from hack.lib.control_plane import REPOSITORY
from hack.lib.scripts import script

SNAPSHOTTER = "github.com/kubernetes-csi/external-snapshotter/client/v8"
GATEWAY = "sigs.k8s.io/gateway-api"
PINNED_BY = REPOSITORY / "hack" / "go" / "csi-provisioner"
SECONDS_TO_FETCH = 240


def manifests() -> list[Path]:
    """Of snapshots, one file for each kind."""
    return sorted((_module_folder(SNAPSHOTTER) / "config" / "crd").glob("snapshot.storage.k8s.io_*.yaml"))


def reference_grants() -> Path:
    """The manifest of ReferenceGrant, which lets one namespace use objects of another."""
    return _module_folder(GATEWAY) / "config" / "crd" / "standard" / "gateway.networking.k8s.io_referencegrants.yaml"


def _module_folder(module: str) -> Path:
    tool = script("control-plane")  # it knows where Go is
    command = [str(tool.find_go(cache.root())), "mod", "download", "-json", module]
    environment = {**os.environ, **tool.GO_ENVIRONMENT}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PINNED_BY, env=environment, timeout=SECONDS_TO_FETCH)
    if done.returncode:
        raise Failure(f"the module {module} cannot be fetched: {done.stderr or done.stdout}")
    return Path(json.loads(done.stdout)["Dir"])
