"""A node that is lost with the only replica of a set, on a real control plane."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver
from sidecar.model import names
from tests.harness.cluster import NODES, PODS, REPORTS, STATEFUL_SETS, VOLUMES
from tests.harness.drains import Ground, stateful_set


def gone(ground: Ground, node: str = "n1") -> Json:
    """What is told of it."""
    name = names.drain_report(node, ground.driver_name)
    return dict(ground.get(REPORTS, name).get("status", {}).get("gone") or {}) if ground.exists(REPORTS, name) else {}


def leaving(ground: Ground, node: str = "n1") -> bool:
    """Its own sidecar has left its report to whoever finds it once the node is gone."""
    name = names.drain_report(node, ground.driver_name)
    report = ground.get(REPORTS, name) if ground.exists(REPORTS, name) else {"metadata": {"ownerReferences": ["not yet"]}}
    return not report["metadata"].get("ownerReferences") and bool(report["status"].get("leaving", {}).get("volumes"))


def lose(ground: Ground, driver: OurDriver, *args: str, announced: bool) -> None:
    """n1 has the only replica; its sidecar ends, and it is deleted with what garbage collection would take."""
    with ground.judge(driver, *args) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.create(STATEFUL_SETS, stateful_set("db", driver, 1))
        until(lambda: ground.phase(PODS, "db-0") == "Running", "db-0 runs")
        (volume,) = ground.items(VOLUMES)
        machine = f"n1/{ground.get(NODES, 'n1')['metadata']['uid']}"
        assert volume["metadata"]["annotations"][names.LIES_ON] == machine
        if announced:
            ground.taint("n1")
            until(lambda: leaving(ground), "the report says that the node goes for good, with its volumes")
    ground.forget_node("n1")
    ground.request("DELETE", f"{PODS}/db-0?gracePeriodSeconds=0")
