"""One API server for the manifests, with the types of the Prometheus operator as far as deploy/ uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, binaries, until
from tests.deploy.manifests import NAMESPACE

CRDS = Path(__file__).with_name("monitoring-crds.yaml")
SERVED = [f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/{plural}" for plural in ("podmonitors", "prometheusrules")]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(binaries("core"), tmp_path_factory.mktemp("deploy"), components=("controller-manager",)) as running:
        running.apply(CRDS.read_text())
        for path in SERVED:
            until(lambda path=path: running.serves(path), f"the API server serves {path}")  # type: ignore[misc]
        yield running
