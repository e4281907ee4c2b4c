"""Emptying a node on a real control plane: replicas with ephemeral volumes leave one after the other, as their budget allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, all_of
from sidecar.model import names
from tests.e2e.conftest import CLAIMS, DEPLOYMENTS, PODS, Cluster
from tests.e2e.draining import ACCOUNT, BUDGETS, COMPONENTS, EVENTS, NAMESPACE, REPORTS, Ground, budget, component, late

ALPHA = "alpha.example.com"


@pytest.fixture(scope="module")
def rights(plane: ControlPlane) -> Iterator[None]:
    evicting = list(yaml.safe_load_all((COMPONENTS / "emptying/rbac.yaml").read_text()))
    for item in evicting:
        for subject in item.get("subjects", ()):
            subject |= {"name": ACCOUNT, "namespace": NAMESPACE}
    manifest = f"{component()}\n---\n{yaml.safe_dump_all(evicting)}"
    plane.apply(manifest)
    until(lambda: plane.serves(REPORTS), "the API server serves reports")
    yield
    plane.kubectl("delete", "--ignore-not-found", "--wait=true", "--timeout=60s", "-f", "-", input=manifest)


@pytest.fixture
def ground(cluster: Cluster, rights: None, tmp_path: Path) -> Iterator[Ground]:
    found = Ground(cluster, tmp_path)
    yield found
    found.clean()


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


def evicted(cluster: Cluster) -> int:
    return sum(event["reason"] == names.POD_EVICTED for event in cluster.items(EVENTS))


def test_replicas_leave_one_by_one_and_only_as_the_budget_allows(ground: Ground) -> None:
    cluster = ground.cluster
    drivers = [ground.driver(ALPHA, node) for node in ("n1", "n2")]
    sidecars = [ground.sidecar(driver, "--evacuation-evict") for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        for driver, sidecar in zip(drivers, sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        ground.cordon("n2")
        cluster.create(DEPLOYMENTS, replicated("app", late(drivers[0]), 3))
        until(lambda: ready_by_node(cluster) == {"n1": 3}, "all replicas run on n1", seconds=60)
        ground.cordon("n2", False)

        cluster.create(BUDGETS, budget("app", {"app": "app"}, minAvailable=3))
        until(lambda: cluster.get(BUDGETS, "app").get("status", {}).get("expectedPods") == 3, "the budget is counted", seconds=30)
        ground.taint("n1")
        until(lambda: ground.state("n1", drivers[0]) == "InProgress", "the evacuation is in progress", seconds=30)
        time.sleep(8.0)
        assert ready_by_node(cluster) == {"n1": 3}, "the budget allows none"
        assert evicted(cluster) == 0

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
        until(lambda: evicted(cluster) == 3, "each is told once", seconds=20)
        assert sidecars[0].metric("csi_node_sidecar_evictions_total", result="evicted") == 3
        until(lambda: len(cluster.items(CLAIMS)) == 3, "the claims of the evicted went with their pods", seconds=30)
