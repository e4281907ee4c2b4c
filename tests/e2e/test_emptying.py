"""Emptying a node on a real control plane, beside what `tests/smoke/test_emptying.py` shows: a Pending pod, and a right that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import all_of
from sidecar.kube.api import PODS as POD
from sidecar.kube.api import STATEFUL_SETS as SETS
from sidecar.model import names
from sidecar.rights.rights import Right
from tests.harness.cluster import BUDGETS, CLAIMS, DEPLOYMENTS, EVENTS, STATEFUL_SETS, after_looks, late, now
from tests.harness.drains import Ground, budget, component, ephemeral
from tests.harness.lacking import naming, without

EVICTED = "csi_node_sidecar_evictions_total"


def volumes_are_on(ground: Ground) -> set[str]:
    bound = (claim for claim in ground.items(CLAIMS) if claim["status"].get("phase") == "Bound")
    return {claim["metadata"]["annotations"][names.SELECTED_NODE] for claim in bound}


def test_a_pod_that_waits_for_a_node_with_a_volume_of_this_one_is_evicted_and_gets_one_elsewhere(ground: Ground) -> None:
    """Nobody schedules it, and its volume is made at once: so it waits as one does whose node was closed before it was bound."""
    drivers = [ground.driver(node) for node in ("n1", "n2")]
    sidecars = [ground.judge(driver, "--evacuation-evict") for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        for driver, sidecar in zip(drivers, sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        ground.cordon("n2")
        until(lambda: "The node takes no volumes" in sidecars[1].output(), "the cordon has lasted long enough to count")
        waiting = ephemeral("waits", now(drivers[0]), 1)
        waiting["spec"]["template"]["spec"]["schedulerName"] = "nobody"
        ground.create(DEPLOYMENTS, waiting)
        ground.create(BUDGETS, budget("waits", {"app": "waits"}, minAvailable=1))
        until(lambda: ground.get(BUDGETS, "waits").get("status", {}).get("expectedPods") == 1, "the budget is counted")
        until(lambda: volumes_are_on(ground) == {"n1"}, "its volume is on n1")

        ground.cordon("n2", False)
        ground.taint("n1")
        until(lambda: volumes_are_on(ground) == {"n2"}, "the next pod has its volume on n2")
        ground.await_state(drivers[0], "Success")
        until(lambda: len(ground.told(names.POD_EVICTED, EVENTS)) == 1, "it is told once")
        assert sidecars[0].metric(EVICTED, result="evicted") == 1, "no budget is asked for a Pending pod"


WITHOUT = {Right("create", POD, "eviction"): ("Deployment", DEPLOYMENTS), Right("get", SETS): ("StatefulSet", STATEFUL_SETS)}
"""Without it no pod of that kind of workload is evicted."""


@pytest.fixture(params=WITHOUT, ids=str)
def right(request: pytest.FixtureRequest) -> Right:
    return cast(Right, request.param)


@pytest.fixture
def granted(plane: ControlPlane, right: Right, ground: Ground) -> Iterator[str]:
    """What gives the right back, which has been taken away."""
    manifest = component("emptying", "reprovision")
    lacking = list(yaml.safe_load_all(manifest))
    for item in lacking:
        if item["kind"] == "ClusterRole":
            item["rules"] = without(right, item["rules"])
    plane.apply(yaml.safe_dump_all(lacking))
    yield manifest
    plane.apply(manifest)


def test_without_a_right_nobody_is_evicted_which_is_told_until_it_is_granted(ground: Ground, granted: str, right: Right) -> None:
    driver, (kind, path) = ground.driver(), WITHOUT[right]
    with driver, ground.judge(driver, "--evacuation-evict") as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.create(path, ephemeral("lone", late(driver), 1, kind=kind))
        until(lambda: [*ground.ready().values()] == ["n1"], "it runs")
        ground.taint("n1")
        until(lambda: naming(right, sidecar.records("WEF")), "the log names the right")
        until(lambda: "drain: Degraded: " in sidecar.page("/readyz?verbose")[1], "/readyz says that something is refused")
        lines = len(sidecar.records("WEF"))
        after_looks(sidecar, at="drain")
        assert not ground.told(names.POD_EVICTED, EVENTS)
        assert len(sidecar.records("WEF")) - lines <= 2
        ground.plane.apply(granted)
        until(lambda: ground.told(names.POD_EVICTED, EVENTS), "it is evicted once the right is granted")
