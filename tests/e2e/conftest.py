"""A real control plane for the end-to-end tests of one process, with upstream's role. Each test has a namespace and names of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, binaries
from tests.harness.cluster import ROLE, cluster, pytest_runtest_makereport, role
from tests.harness.drains import drainer, ground

__all__ = ["cluster", "drainer", "ground", "pytest_runtest_makereport", "role"]


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    return binaries("core", "kwok")


@pytest.fixture(scope="session")
def peer_binary() -> Path:
    """external-provisioner, built from its own module."""
    return binaries("csi-provisioner") / "csi-provisioner"


@pytest.fixture(scope="session")
def plane(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(bin_dir, tmp_path_factory.mktemp("plane"), components=ALL_COMPONENTS) as running:
        running.apply(ROLE.read_text())
        yield running


def from_hack(name: str) -> ModuleType:
    """A module below hack."""
    return importlib.import_module(f"hack.{name}")
