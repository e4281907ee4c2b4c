"""A real control plane for the end-to-end tests of one process, with upstream's role. Each test has namespaces and names of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.lib.control_plane import binaries
from tests.harness.cluster import bin_dir, cluster, plane, pytest_runtest_makereport, role
from tests.harness.drains import drainer, ground

__all__ = ["bin_dir", "cluster", "drainer", "ground", "plane", "pytest_runtest_makereport", "role"]


@pytest.fixture(scope="session")
def peer_binary() -> Path:
    """external-provisioner, built from its own module."""
    return binaries("csi-provisioner") / "csi-provisioner"
