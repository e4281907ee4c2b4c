"""A real control plane for the smoke tests of one process: each promise of the README, shown once, on servers of Kubernetes.

A test here has a namespace and drivers of its own, deletes its nodes (n1, ...) at its end, restarts nothing that others use, draws no
number at random, and takes less than half a minute. etcd, kube-apiserver, controllers, scheduler and kwok are all that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, binaries
from tests.harness.cluster import ROLE, cluster, pytest_runtest_makereport, role
from tests.harness.drains import drainer, ground

__all__ = ["cluster", "drainer", "ground", "pytest_runtest_makereport", "role"]


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    return binaries("core", "kwok")


@pytest.fixture(scope="session")
def plane(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(bin_dir, tmp_path_factory.mktemp("plane"), components=ALL_COMPONENTS) as running:
        running.apply(ROLE.read_text())
        yield running
