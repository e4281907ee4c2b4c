"""Which machine has a volume, noted on a real API server: by the program with upstream's role and those of the components."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import all_of
from sidecar.drain.machine_mark import Machine, text
from sidecar.model import names
from tests.e2e.conftest import VOLUMES, Cluster
from tests.e2e.draining import Ground, installed, still

ALPHA, BETA = "alpha.example.com", "beta.example.com"
Noted = dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def rights(plane: ControlPlane) -> Iterator[None]:
    with installed(plane):
        yield


@pytest.fixture
def ground(cluster: Cluster, rights: None, tmp_path: Path) -> Iterator[Ground]:
    found = Ground(cluster, tmp_path)
    yield found
    found.clean()


def noted(ground: Ground) -> Noted:
    """By claim."""
    found = {}
    for volume in ground.cluster.items(VOLUMES):
        notes = volume["metadata"].get("annotations") or {}
        found[volume["spec"]["claimRef"]["name"]] = notes.get(names.LIES_ON, ""), notes.get(names.LEAVING, "")
    return found


def test_each_sidecar_notes_its_own_volumes_and_a_restart_writes_nothing(ground: Ground) -> None:
    """Two drivers on one node, one of them on another node too."""
    drivers = [ground.driver(ALPHA, "n1"), ground.driver(BETA, "n1"), ground.driver(ALPHA, "n2")]
    sidecars = [ground.sidecar(driver) for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        ground.node("n1", *drivers[:2])
        ground.node("n2", drivers[2])
        for sidecar in sidecars:
            sidecar.until_ready()
        for name, driver in zip(("a", "b", "c"), drivers, strict=True):
            ground.use(name, driver)
        n1, n2 = (text(Machine(name, ground.get(name)["metadata"]["uid"])) for name in ("n1", "n2"))
        calm: Noted = {"a": (n1, ""), "b": (n1, ""), "c": (n2, "")}
        until(lambda: noted(ground) == calm, "all are noted", seconds=60)
        ground.taint("n1")
        leaving: Noted = {"a": (n1, n1), "b": (n1, n1), "c": (n2, "")}
        until(lambda: noted(ground) == leaving, "n1 leaves", seconds=20)
        ground.taint("n1", on=False)
        until(lambda: noted(ground) == calm, "n1 stays", seconds=20)

        def versions() -> dict[str, str]:
            return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in ground.cluster.items(VOLUMES)}

        before = still(versions, seconds=6, within=60)
        sidecars[0].kill()
        sidecars[0].start()
        sidecars[0].until_ready()
        assert still(versions, seconds=40, within=60) == before
