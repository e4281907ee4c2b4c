"""Sidecars that watch claims by label, on a real control plane with upstream's role: the policy comes, goes, and comes again under them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.patience import patient
from hack.lib.programs import IMMEDIATE, LATE, OurDriver, Sidecar, all_of, claim, pod, storage_class
from sidecar.model import names
from tests.deploy.manifests import DEPLOY
from tests.e2e.conftest import CLAIMS, CLASSES, DRIVERS, PODS, Cluster

POLICY = (DEPLOY / "components" / "scoped-watches" / "policy.yaml").read_text()
BY_LABEL = "csi_node_sidecar_claims_by_label"
ARGS = ("--watch-scope=labelled", "--node-deployment-base-delay=500ms", "--node-deployment-max-delay=2s")
# A new policy is in force, and one that is gone is not, after a moment.
PROMPT = 10.0


def is_labelled(plane: ControlPlane) -> bool:
    made = plane.request("POST", f"{CLAIMS}?dryRun=All", claim("trial", "late"))
    return names.CLAIM_LABEL in made["metadata"].get("labels", {})


@pytest.fixture
def policy(plane: ControlPlane) -> Iterator[None]:
    plane.apply(POLICY)
    until(lambda: is_labelled(plane), "the policy is in force", seconds=30)
    yield
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=POLICY)
    until(lambda: not is_labelled(plane), "the policy is gone", seconds=30)


@pytest.fixture
def sidecars(policy: None, cluster: Cluster, tmp_path: Path) -> Iterator[list[Sidecar]]:
    drivers = [OurDriver(tmp_path, node=node) for node in ("n1", "n2")]
    name = drivers[0].driver
    for driver in drivers:
        cluster.plane.add_node(driver.node, labels={driver.key: driver.node})
        cluster.plane.add_csinode(driver.node, name, driver.node, [driver.key])
    cluster.create(DRIVERS, {"metadata": {"name": name}, "spec": {"storageCapacity": False, "attachRequired": False}})
    for class_, binding in (("late", LATE), ("now", IMMEDIATE)):
        cluster.create(CLASSES, storage_class(class_, name, binding))
    made = [Sidecar(tmp_path, node=driver.node, address=driver.socket, kubeconfig=cluster.role, args=ARGS) for driver in drivers]
    with all_of([*drivers, *made]):
        for sidecar in made:
            sidecar.until_ready()
        yield made


def both(cluster: Cluster, suffix: str) -> None:
    """One claim of each kind is bound soon."""
    begun = time.monotonic()
    for class_ in ("late", "now"):
        cluster.create(CLAIMS, claim(f"{class_}-{suffix}", class_))
    cluster.create(PODS, pod(f"consumer-{suffix}", f"late-{suffix}"))
    for class_ in ("late", "now"):
        until(lambda name=f"{class_}-{suffix}": cluster.phase(CLAIMS, name) == "Bound", f"{class_} is bound", seconds=30)  # type: ignore[misc]
    assert time.monotonic() - begun < patient(PROMPT)


def test_claims_are_bound_whether_the_policy_is_there_or_not(sidecars: list[Sidecar], cluster: Cluster) -> None:
    both(cluster, "before")
    assert [sidecar.metric(BY_LABEL) for sidecar in sidecars] == [1.0, 1.0]
    cluster.create(CLAIMS, claim("late-waits", "late"))
    until(lambda: bool(cluster.get(CLAIMS, "late-waits")["metadata"].get("labels")), "it has its label")
    cluster.plane.kubectl("delete", "-f", "-", input=POLICY)
    until(lambda: not is_labelled(cluster.plane), "the policy is gone", seconds=30)
    both(cluster, "without")
    until(lambda: [sidecar.metric(BY_LABEL) for sidecar in sidecars] == [0.0, 0.0], "both hear all claims", seconds=15)
    cluster.create(PODS, pod("consumer-waits", "late-waits"))
    until(lambda: cluster.phase(CLAIMS, "late-waits") == "Bound", "what waited is bound", seconds=PROMPT)
    for sidecar in sidecars:
        assert sum("All claims are watched" in line for line in sidecar.records("W")) == 1
    cluster.plane.apply(POLICY)
    until(lambda: is_labelled(cluster.plane), "the policy is in force", seconds=30)
    both(cluster, "after")
