"""Tests that take minutes, memory limits, other people's programs or dozens of processes. They run at night."""

from __future__ import annotations

from tests.e2e.conftest import bin_dir, peer_binary, plane
from tests.harness.cluster import cluster, pytest_runtest_makereport, role
from tests.harness.drains import drainer, ground

__all__ = ["bin_dir", "cluster", "drainer", "ground", "peer_binary", "plane", "pytest_runtest_makereport", "role"]
