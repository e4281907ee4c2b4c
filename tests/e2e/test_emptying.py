"""Emptying a node on a real control plane, beside what `tests/smoke/test_emptying.py` shows: a right that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from sidecar.kube.api import BUDGETS, REPLICA_SETS
from sidecar.kube.api import PODS as POD
from sidecar.kube.api import STATEFUL_SETS as SETS
from sidecar.model import names
from sidecar.rights.rights import Right
from tests.harness.accounts import naming, without
from tests.harness.cluster import DEPLOYMENTS, EVENTS, STATEFUL_SETS, after_looks, late
from tests.harness.drains import Ground, component, ephemeral

WITHOUT = {
    Right("create", POD, "eviction"): ("Deployment", DEPLOYMENTS),
    Right("list", BUDGETS): ("Deployment", DEPLOYMENTS),
    Right("get", SETS): ("StatefulSet", STATEFUL_SETS),
    Right("get", REPLICA_SETS): ("Deployment", DEPLOYMENTS),
}
"""Without it no pod of that kind of workload is evicted. (Upstream's role grants ReplicaSets in the program's own namespace.)"""


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
