"""Emptying a node on a real control plane: replicas with ephemeral volumes leave one after the other, as their budget allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, OurDriver, Sidecar, all_of, storage_class, within
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE
from sidecar.rights.rights import Right
from tests.e2e.conftest import CLAIMS, CLASSES, DEPLOYMENTS, PODS, Cluster
from tests.e2e.draining import BUDGETS, EVENTS, NAMESPACE, STATEFUL_SETS, Ground, budget, component, installed, late
from tests.e2e.lacking import naming, without
from tests.e2e.rights_stories import EMPTIES

ALPHA = "alpha.example.com"
EVICTING = "emptying/rbac.yaml"


@pytest.fixture(scope="module")
def rights(plane: ControlPlane) -> Iterator[None]:
    with installed(plane, EVICTING):
        yield


@pytest.fixture
def ground(cluster: Cluster, rights: None, tmp_path: Path) -> Iterator[Ground]:
    found = Ground(cluster, tmp_path)
    yield found
    found.clean()


@contextmanager
def two_nodes(ground: Ground) -> Iterator[tuple[list[OurDriver], list[Sidecar]]]:
    """With sidecars that evict; the second is cordoned, so that what is made comes to the first."""
    drivers = [ground.driver(ALPHA, node) for node in ("n1", "n2")]
    sidecars = [ground.sidecar(driver, "--evacuation-evict") for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        for driver, sidecar in zip(drivers, sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        ground.cordon("n2")
        yield drivers, sidecars


def replicated(name: str, class_: str, replicas: int) -> Json:
    """A Deployment each of whose pods has a generic ephemeral volume."""
    labels = {"app": name}
    wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": class_, "resources": {"requests": {"storage": "1Gi"}}}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": wish}}}
    pod = {"containers": [{"name": "main", "image": "none"}], "volumes": [scratch], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def ready_by_node(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in cluster.items(PODS):
        ready = any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions") or ())
        if ready and not pod["metadata"].get("deletionTimestamp"):
            found[pod["spec"]["nodeName"]] = found.get(pod["spec"]["nodeName"], 0) + 1
    return found


def evicted(cluster: Cluster, app: str) -> int:
    """Of the pods of that Deployment."""
    told = (event for event in cluster.items(EVENTS) if event["reason"] == names.POD_EVICTED)
    return sum(event["involvedObject"]["name"].startswith(f"{app}-") for event in told)


def test_replicas_leave_one_by_one_and_only_as_the_budget_allows(ground: Ground) -> None:
    cluster = ground.cluster
    with two_nodes(ground) as (drivers, sidecars):
        cluster.create(DEPLOYMENTS, replicated("app", late(drivers[0]), 3))
        until(lambda: ready_by_node(cluster) == {"n1": 3}, "all replicas run on n1", seconds=60)
        ground.cordon("n2", False)

        cluster.create(BUDGETS, budget("app", {"app": "app"}, minAvailable=3))
        until(lambda: cluster.get(BUDGETS, "app").get("status", {}).get("expectedPods") == 3, "the budget is counted", seconds=30)
        ground.taint("n1")
        until(lambda: ground.state("n1", drivers[0]) == "InProgress", "the evacuation is in progress", seconds=30)
        time.sleep(8.0)
        assert ready_by_node(cluster) == {"n1": 3}, "the budget allows none"
        assert evicted(cluster, "app") == 0

        cluster.patch(BUDGETS, "app", {"spec": {"minAvailable": 2}})
        fewest = 3
        for _ in range(600):
            ready = ready_by_node(cluster)
            fewest = min(fewest, sum(ready.values()))
            if ready == {"n2": 3}:
                break
            time.sleep(0.1)
        assert ready_by_node(cluster) == {"n2": 3}
        assert fewest >= 2, "never two at once"
        until(lambda: ground.state("n1", drivers[0]) == "Success", "the evacuation succeeds", seconds=30)
        until(lambda: evicted(cluster, "app") == 3, "each is told once", seconds=20)
        assert sidecars[0].metric("csi_node_sidecar_evictions_total", result="evicted") == 3
        until(lambda: len(cluster.items(CLAIMS)) == 3, "the claims of the evicted went with their pods", seconds=30)


def volumes_are_on(cluster: Cluster) -> set[str]:
    bound = (claim for claim in cluster.items(CLAIMS) if claim["status"].get("phase") == "Bound")
    return {claim["metadata"]["annotations"][names.SELECTED_NODE] for claim in bound}


def test_a_pod_that_waits_for_a_node_with_a_volume_of_this_one_is_evicted_and_gets_one_elsewhere(ground: Ground) -> None:
    """Nobody schedules it, and its volume is made at once: so it waits as one does whose node was closed before it was bound."""
    cluster = ground.cluster
    with two_nodes(ground) as (drivers, sidecars):
        until(lambda: "The node takes no volumes" in sidecars[1].output(), "the cordon has lasted long enough to count", seconds=30)
        cluster.create(CLASSES, storage_class("at-once", ALPHA, IMMEDIATE))
        waiting = replicated("waits", "at-once", 1)
        waiting["spec"]["template"]["spec"]["schedulerName"] = "nobody"
        cluster.create(DEPLOYMENTS, waiting)
        cluster.create(BUDGETS, budget("waits", {"app": "waits"}, minAvailable=1))
        until(lambda: cluster.get(BUDGETS, "waits").get("status", {}).get("expectedPods") == 1, "the budget is counted", seconds=30)
        until(lambda: volumes_are_on(cluster) == {"n1"}, "its volume is on n1", seconds=60)

        ground.cordon("n2", False)
        ground.taint("n1")
        until(lambda: volumes_are_on(cluster) == {"n2"}, "the next pod has its volume on n2", seconds=90)
        until(lambda: ground.state("n1", drivers[0]) == "Success", "the evacuation succeeds", seconds=60)
        until(lambda: evicted(cluster, "waits") == 1, "it is told once", seconds=20)
        assert sidecars[0].metric("csi_node_sidecar_evictions_total", result="evicted") == 1, "no budget is asked for a Pending pod"


@pytest.fixture(params=EMPTIES, ids=str)
def right(request: pytest.FixtureRequest) -> Right:
    return cast(Right, request.param)


@pytest.fixture
def without_the_right(rights: None, plane: ControlPlane, right: Right) -> Iterator[str]:
    """Yields what gives it back."""
    manifest = component(EVICTING)
    lacking = list(yaml.safe_load_all(manifest))
    for item in lacking:
        if item["kind"] == "ClusterRole":
            item["rules"] = without(right, item["rules"])
    plane.apply(yaml.safe_dump_all(lacking))
    yield manifest
    plane.apply(manifest)


def test_without_a_right_nobody_is_evicted_which_is_told_until_it_is_granted(ground: Ground, without_the_right: str, right: Right) -> None:
    cluster, driver = ground.cluster, ground.driver(ALPHA, "n1")
    with driver, ground.sidecar(driver, "--evacuation-evict") as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        kind = EMPTIES[right]
        name, path = {"Deployment": ("lone", DEPLOYMENTS), "StatefulSet": ("set", STATEFUL_SETS)}[kind]
        cluster.create(path, replicated(name, late(driver), 1) | {"kind": kind})
        until(lambda: ready_by_node(cluster) == {"n1": 1}, "it runs", seconds=60)
        ground.taint("n1")
        until(lambda: naming(right, sidecar.records("WEF")), "the log names the right", seconds=60)
        until(lambda: naming(right, sidecar.page("/readyz?verbose")[1].splitlines()), "/readyz names it", seconds=10)
        before, lines = sidecar.metric("csi_node_sidecar_api_requests_total"), len(sidecar.records("WEF"))
        assert not within(10.0, lambda: evicted(cluster, name) > 0)
        assert sidecar.metric("csi_node_sidecar_api_requests_total") - before < 40
        assert len(sidecar.records("WEF")) - lines <= 2
        cluster.plane.apply(without_the_right)
        until(lambda: evicted(cluster, name) == 1, "it is evicted once the right is granted", seconds=60)
