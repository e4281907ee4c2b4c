"""A node that is lost with the only replica of a set, on a real control plane."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver
from sidecar.model import names
from tests.e2e.conftest import NODES, PODS, VOLUMES, Cluster
from tests.e2e.draining import REPORTS, STATEFUL_SETS, Ground, stateful_set

ALPHA = "alpha.example.com"
LOOK = 90.0


def gone(cluster: Cluster) -> Json:
    name = names.drain_report("n1", ALPHA)
    return dict(cluster.get(REPORTS, name).get("status", {}).get("gone") or {}) if cluster.exists(REPORTS, name) else {}


def notes_of(cluster: Cluster) -> list[str | None]:
    """Of the only volume: where it lies, and whether that machine leaves."""
    (volume,) = cluster.items(VOLUMES)
    notes = volume["metadata"].get("annotations") or {}
    return [notes.get(names.LIES_ON), notes.get(names.LEAVING)]


def lose(ground: Ground, driver: OurDriver, *args: str, announced: bool) -> None:
    """n1 has the only replica; its sidecar ends, and it is deleted with what garbage collection would take."""
    cluster = ground.cluster
    with ground.sidecar(driver, *args) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        cluster.create(STATEFUL_SETS, stateful_set("db", driver, 1))
        until(lambda: cluster.phase(PODS, "db-0") == "Running", "db-0 runs", seconds=60)
        machine = f"n1/{ground.get('n1')['metadata']['uid']}"
        if announced:
            ground.taint("n1")
        noted = [machine, machine if announced else None]
        until(lambda: notes_of(cluster) == noted, "the volume says where it lies, and whether that leaves", seconds=60)
    cluster.plane.request("DELETE", f"{NODES}/n1")
    cluster.plane.request("DELETE", "/apis/storage.k8s.io/v1/csinodes/n1")
    cluster.plane.request("DELETE", f"{PODS}/db-0?gracePeriodSeconds=0")
