"""Kubernetes' own end-to-end mock driver in place of ours: volumes come and go the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import binaries
from hack.lib.programs import GoDriver, claim
from tests.harness.cluster import CLAIMS, SOON, Cluster, now
from tests.smoke.test_volumes import comes_and_goes


@pytest.fixture
def driver(cluster: Cluster, tmp_path: Path) -> Iterator[GoDriver]:
    """Its topology is a constant."""
    with GoDriver(tmp_path, node="n1", binary=binaries("core", "kwok", "mock-driver") / "mock-driver", name=cluster.driver_name) as made:
        cluster.node("n1", made, place=made.topology)  # type: ignore[arg-type]
        yield made


def test_a_late_binding_claim_becomes_a_bound_volume_and_goes_again(cluster: Cluster, driver: GoDriver) -> None:
    comes_and_goes(cluster, driver, driver.topology)


def test_an_immediate_claim_is_taken_and_bound(cluster: Cluster, driver: GoDriver) -> None:
    with cluster.sidecar(driver, *SOON) as sidecar:  # type: ignore[arg-type]
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("data", now(driver)))  # type: ignore[arg-type]
        cluster.bound("data")
        cluster.give_up("data")
